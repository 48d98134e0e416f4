"""Two stores against a list: whatever is appended, pushed, cut, synced, closed, killed and lost, they hold the list.

`local` leads now and then and `peer` the other times; each takes the other's entries by pushes. A power cut may take
what was not synced, sector by sector; what was durable must be there, and what is there must be a prefix of the list.
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

from dledger.entry import ENTRY_NOOP, ENTRY_NORMAL
from dledger.entry_store import EntryStore, EntryStoreConfig
from dledger.testing.faults import FaultCounts
from dledger.testing.sim_disk import SimDisk
from dledger.testing.sim_files import SimFiles
from dledger.types import TermRun

CONFIG = EntryStoreConfig(data_file_size_bytes=2048, index_file_size_bytes=32 * 16)
DIRECTORY = "/n0"


class Node:
    """A machine with one store: processes on it come and go."""

    def __init__(self, random):
        self.random = random
        self.disk = SimDisk(random, FaultCounts())
        self.tickets = []
        self.store = None
        self.start()

    def start(self):
        self.tickets.clear()
        self.store = EntryStore.open(SimFiles(self.disk, self.random, FaultCounts()), DIRECTORY, CONFIG)

    def data(self):
        names = self.disk.directories[f"{DIRECTORY}/data"].cached
        return b"".join(bytes(inode.cache) for _, inode in sorted(names.items())).rstrip(b"\0")


class TwoStores(RuleBasedStateMachine):
    """The model is a list of (term, magic, body)."""

    @initialize(seed=st.integers(0, 2**32 - 1))
    def begin(self, seed):
        self.random = Random(seed)
        self.nodes = [Node(self.random), Node(self.random)]
        self.model = []
        self.term = 1

    def body(self, size):
        """Make a body; some hold long runs of zeros, which look like what never reached the disk."""
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
            first_index = max(0, next_index - overlap)
            last_index = source.fit(first_index, source.last_index, push_size).last_index
            if last_index < next_index:
                first_index, last_index = next_index, source.fit(next_index, source.last_index, push_size).last_index
            span, payload = (
                source.span_of(first_index, last_index),
                source.read_span(source.span_of(first_index, last_index)),
            )
            target.check_push(span, payload, source.term_at(first_index - 1) if first_index else -1)
            target.reserve_span(span)
            target.append_encoded(span, payload, next_index)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def truncate(self, data):
        first_index = data.draw(st.integers(max(0, len(self.model) - 40), len(self.model)))
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
        """Sync any of the tickets that are out, not always the oldest."""
        node = self.nodes[number]
        if node.tickets:
            ticket = node.tickets.pop(data.draw(st.integers(0, len(node.tickets) - 1)))
            ticket.sync()
            node.store.end_flush(ticket)

    @rule(number=st.integers(0, 1))
    def save_checkpoint(self, number):
        store = self.nodes[number].store
        assert store.save_checkpoint(store.durable_index)

    @rule(number=st.integers(0, 1))
    def close_and_open(self, number):
        self.nodes[number].store.close()
        self.nodes[number].start()
        assert self.nodes[number].store.recovery_notes == ()

    @rule(number=st.integers(0, 1))
    def kill(self, number):
        """The process dies: the page cache, and so every entry, survives."""
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
        self.check(node, self.model[: node.store.last_index + 1])
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
        for node in getattr(self, "nodes", ()):
            self.check(node, self.model)

    @invariant()
    def data_files_are_the_same_bytes(self):
        if hasattr(self, "nodes"):
            assert self.nodes[0].data() == self.nodes[1].data()

    def check(self, node, model):
        store = node.store
        assert (store.begin_index, store.last_index) == (0, len(model) - 1)
        assert store.last_term == (model[-1][0] if model else -1)
        assert store.durable_index <= store.last_index
        assert store.end_position == (store.end_position_of(len(model) - 1) if model else 0)
        for index in {0, len(model) // 2, *range(max(0, len(model) - 12), len(model))} if model else ():
            entry = store.get(index)
            assert (entry.index, entry.term, entry.magic, entry.body) == (index, *model[index])
            assert store.index_at_position(entry.position) == index
        terms = [term for term, _, _ in model]
        runs = [TermRun(index, term) for index, term in enumerate(terms) if index == 0 or terms[index - 1] != term]
        assert list(store.log_state().term_runs) == runs


@pytest.mark.slow
def test_stores_hold_what_the_model_holds():
    run_state_machine_as_test(
        TwoStores,
        settings=settings(
            max_examples=120,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
