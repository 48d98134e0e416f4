"""Compares two entry stores with a list, through appends, pushes, truncations, syncs, restarts, kills and power cuts.

`local` and `peer` lead alternately; each receives the other's entries in pushes. A power cut may lose unsynced sectors;
durable entries must exist, and the entries must be a prefix of the list.

Each store deletes old files, or resets to an entry of the other one, independently; the process may die in the middle
of it. Both hold the list from where they begin. Only what was durable in both is ever deleted.
"""

from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dledger.entries.format.entry import ENTRY_NOOP, ENTRY_NORMAL
from dledger.entries.push_check import Predecessor
from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.testing.disk.disk import SimDisk
from dledger.testing.disk.files import SimFiles
from dledger.testing.faults import FaultCounts, SimulatedCrash
from dledger.types import TermRun

CONFIG = EntryStoreConfig(data_file_size_bytes=2048, index_file_size_bytes=32 * 16)
DIRECTORY = "/n0"


class Node:
    """A machine with one store, and its successive processes."""

    def __init__(self, random):
        self.random = random
        self.disk = SimDisk(random, FaultCounts())
        self.tickets = []
        self.store = None
        self.start()

    def start(self):
        self.tickets.clear()
        self.files = SimFiles(self.disk, self.random, FaultCounts())
        self.store = EntryStore.open(self.files, DIRECTORY, CONFIG)

    def data(self, begin_position):
        """Return the bytes of the data files from a position on."""
        names = self.disk.directories[f"{DIRECTORY}/data"].cached
        parts = [
            bytes(inode.cache[max(0, begin_position - int(name)) :])
            for name, inode in sorted(names.items())
            if int(name) + len(inode.cache) > begin_position
        ]
        return b"".join(parts).rstrip(b"\0")

    def flush(self):
        """Make everything durable and complete all pending flushes."""
        for ticket in [*self.tickets, self.store.begin_flush()]:
            ticket.sync()
            self.store.end_flush(ticket)
        self.tickets.clear()


class TwoStores(RuleBasedStateMachine):
    """The model is a list of (term, magic, body)."""

    @initialize(seed=st.integers(0, 2**32 - 1))
    def begin(self, seed):
        self.random = Random(seed)
        self.nodes = [Node(self.random), Node(self.random)]
        self.model = []
        self.term = 1
        self.floor = 0  # entries below were durable in both stores: a group would have committed them
        self.begins = [0, 0]

    def body(self, size):
        """Return a body; some have long runs of zeros, which look like unwritten sectors."""
        return self.random.randbytes(size) if self.random.random() < 0.8 else bytes(size)

    @rule(
        leader=st.integers(0, 1),
        sizes=st.lists(st.integers(0, 300) | st.integers(0, 1992), min_size=1, max_size=25),
        step=st.sampled_from([0, 0, 0, 1, 3]),
        push_size=st.integers(1, 3000),
        overlap=st.integers(0, 5),
    )
    def append(self, leader, sizes, step, push_size, overlap):
        self.term += step
        bodies = [self.body(size) for size in sizes]
        self.write(leader, bodies, ENTRY_NORMAL)
        self.replicate(leader, push_size, overlap)

    @rule(leader=st.integers(0, 1))
    def begin_term(self, leader):
        self.term += 1
        self.write(leader, [b""], ENTRY_NOOP)
        self.replicate(leader, 1, 0)

    def write(self, leader, bodies, magic):
        store = self.nodes[leader].store
        store.reserve([len(body) for body in bodies])
        store.append(bodies, len(self.model), self.term, magic=magic)
        self.model += [(self.term, magic, body) for body in bodies]

    def replicate(self, leader, push_size, overlap):
        source, target = self.nodes[leader].store, self.nodes[1 - leader].store
        while target.last_index < source.last_index:
            next_index = target.last_index + 1
            first_index = max(source.begin_index, next_index - overlap)
            last_index = source.fit(first_index, source.last_index, push_size).last_index
            if last_index < next_index:
                first_index, last_index = next_index, source.fit(next_index, source.last_index, push_size).last_index
            span, payload = (
                source.span_of(first_index, last_index),
                source.read_span(source.span_of(first_index, last_index)),
            )
            target.check_push(span, payload, self.term_before(first_index))
            target.reserve_span(span)
            target.append_encoded(span, payload, next_index)

    def term_before(self, index):
        return self.model[index - 1][0] if index else -1

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def truncate(self, data):
        first_index = data.draw(st.integers(max(self.floor, len(self.model) - 40), len(self.model)))
        self.cut(first_index)

    def cut(self, first_index):
        for node in self.nodes:
            if node.store.last_index >= first_index:
                node.store.truncate(first_index)
        del self.model[first_index:]
        self.term += 1

    @rule(number=st.integers(0, 1))
    def begin_flush(self, number):
        node = self.nodes[number]
        if len(node.tickets) < 3:
            node.tickets.append(node.store.begin_flush())

    @rule(number=st.integers(0, 1), data=st.data())
    def end_flush(self, number, data):
        """Complete any of the pending flushes, not always the oldest."""
        node = self.nodes[number]
        if node.tickets:
            ticket = node.tickets.pop(data.draw(st.integers(0, len(node.tickets) - 1)))
            ticket.sync()
            node.store.end_flush(ticket)

    @rule()
    def flush_all(self):
        for node in self.nodes:
            node.flush()

    def raise_floor(self):
        self.floor = max(self.floor, min(node.store.durable_index for node in self.nodes) + 1)

    @rule(number=st.integers(0, 1), data=st.data(), dies_in=st.integers(0, 12), is_power_cut=st.booleans())
    def delete_before(self, number, data, dies_in, is_power_cut):
        self.raise_floor()
        node, index = self.nodes[number], data.draw(st.integers(0, self.floor))
        self.begins[number] = self.begin_of_deletion(node.store, index)
        old_begin = node.store.begin_index
        if self.survives(node, lambda: node.store.delete_before(index), dies_in, is_power_cut):
            assert node.store.begin_index == self.begins[number]
        else:
            assert node.store.begin_index in (old_begin, self.begins[number])
            self.begins[number] = node.store.begin_index
            self.cut(node.store.last_index + 1)

    def begin_of_deletion(self, store, index):
        """Return the first entry of the last data file before which all entries are below `index`."""
        heads = [
            at
            for at in range(store.begin_index + 1, store.last_index + 1)
            if store.position_of(at) % CONFIG.data_file_size_bytes == 0 and at <= index
        ]
        return heads[-1] if heads else store.begin_index

    @rule(number=st.integers(0, 1), data=st.data(), dies_in=st.integers(0, 25), is_power_cut=st.booleans())
    def reset(self, number, data, dies_in, is_power_cut):
        """Reset to any entry that the other store has and that is not needed any more, and catch up."""
        self.raise_floor()
        node, other = self.nodes[number], self.nodes[1 - number].store
        if self.begins[1 - number] > self.floor:
            return
        index = data.draw(st.integers(self.begins[1 - number], self.floor))
        position = other.position_of(index) if index <= other.last_index else other.end_position
        head = (index, position, self.term_before(index))
        is_done = self.survives(node, lambda: node.store.reset(*head), dies_in, is_power_cut)
        store = node.store
        if not is_done and (store.begin_index, store.last_index, store.begin_position) != (index, index - 1, position):
            self.cut(store.last_index + 1)  # it had no effect
            return
        assert (store.begin_index, store.last_index) == (index, index - 1)
        assert (store.begin_position, store.end_position) == (position, position)
        self.begins[number] = index
        self.replicate(1 - number, 500, 0)
        node.flush()

    def survives(self, node, operation, dies_in, is_power_cut):
        """Run `operation`; return whether it completed. After a kill (`dies_in` > 0), start another one."""
        durable_index = node.store.durable_index
        if dies_in:
            node.files.crash_point.arm(dies_in)
        try:
            operation()
        except SimulatedCrash:
            if is_power_cut:
                node.disk.cut_power()
            node.start()
            assert node.store.last_index >= durable_index or node.store.last_index < node.store.begin_index
            return False
        node.files.crash_point.disarm()
        return True

    @rule(number=st.integers(0, 1))
    def save_checkpoint(self, number):
        store = self.nodes[number].store
        assert store.begin_checkpoint(store.durable_index).save()

    @rule(number=st.integers(0, 1))
    def close_and_open(self, number):
        self.nodes[number].store.close()
        self.nodes[number].start()
        assert self.nodes[number].store.recovery_notes == ()

    @rule(number=st.integers(0, 1))
    def kill(self, number):
        """Kill the process: the page cache, and so every entry, survives."""
        self.nodes[number].store.abandon()
        self.nodes[number].start()
        assert self.nodes[number].store.durable_index == len(self.model) - 1

    @rule(number=st.integers(0, 1))
    def cut_power(self, number):
        node = self.nodes[number]
        durable_index = node.store.durable_index
        node.store.abandon()
        node.disk.cut_power()
        node.start()
        assert durable_index <= node.store.last_index < len(self.model)
        self.check(node, self.model[: node.store.last_index + 1], self.begins[number])
        self.cut(node.store.last_index + 1)

    @rule(number=st.integers(0, 1))
    def lose_the_index(self, number):
        node = self.nodes[number]
        node.store.abandon()
        files = SimFiles(node.disk, self.random, FaultCounts())
        for name in files.list_directory(f"{DIRECTORY}/index"):
            files.remove(f"{DIRECTORY}/index/{name}")
        node.start()

    @invariant()
    def stores_hold_the_model(self):
        for number, node in enumerate(getattr(self, "nodes", ())):
            self.check(node, self.model, self.begins[number])

    @invariant()
    def data_files_are_the_same_bytes(self):
        if hasattr(self, "nodes"):
            begin_position = max(node.store.begin_position for node in self.nodes)
            assert self.nodes[0].data(begin_position) == self.nodes[1].data(begin_position)

    def check(self, node, model, begin):
        store = node.store
        assert (store.begin_index, store.last_index) == (begin, len(model) - 1)
        is_empty = len(model) == begin
        assert store.last_term == (-1 if is_empty else model[-1][0])
        assert store.durable_index <= store.last_index
        if not is_empty:
            # Known without a read, and equal to what a read finds.
            read = Predecessor(store.end_position_of(store.last_index), store._reader.chain_crc_of(store.last_index))
            assert store.predecessor(store.last_index) == read
        assert store.end_position == (store.begin_position if is_empty else store.end_position_of(len(model) - 1))
        for index in sorted({begin, (begin + len(model)) // 2, *range(max(begin, len(model) - 12), len(model))}):
            if index < len(model):
                entry = store.get(index)
                assert (entry.index, entry.term, entry.magic, entry.body) == (index, *model[index])
                assert store.index_at_position(entry.position) == index
        terms = [term for term, _, _ in model]
        runs = [
            TermRun(index, terms[index])
            for index in range(begin, len(terms))
            if index == begin or terms[index - 1] != terms[index]
        ]
        state = store.log_state()
        assert (state.begin_index, state.begin_prev_term) == (begin, self.term_before(begin))
        assert list(state.term_runs) == runs


@pytest.mark.slow
def test_stores_hold_what_the_model_holds():
    run_state_machine_as_test(
        TwoStores,
        settings=settings(
            max_examples=200,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
