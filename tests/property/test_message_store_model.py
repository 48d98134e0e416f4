"""Compares a message store with a list, through puts, dispatch, syncs, expiry, kills and power cuts.

The process may be killed within any operation on files, and a power cut may lose any sector that was not synced. After
that the store holds a prefix of the list, with all durable messages; queues and index equal, byte for byte, those that
are built from the log alone; and no queue offset is assigned to two messages.
"""

from random import Random

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from commitlog.plain.commit_log import CommitLogConfig
from commitlog.plain.store import PlainStoreConfig, open_plain_store
from dledger.testing.disk.disk import UNLIMITED_BYTES, Directory, SimDisk
from dledger.testing.disk.files import SimFiles
from dledger.testing.disk.inode import Inode
from dledger.testing.faults import FaultCounts, SimulatedCrash
from store.model.config import MessageStoreConfig
from store.model.message import QueueKey
from store.model.sys_flag import has_queue_offset
from tests.support.message_stores import Clock, numbered

ROOT = "/s"
CONFIG = PlainStoreConfig(
    log=CommitLogConfig(mapped_file_size=2048, is_flush_sync=False),
    store=MessageStoreConfig(
        mapped_file_size_consume_queue=160, max_hash_slot_num=16, max_index_num=24, dispatch_size_bytes=700
    ),
)


class Put:
    """A message of the list."""

    def __init__(self, number, message):
        self.number = number
        self.message = message
        self.place = None

    @property
    def is_queued(self):
        return has_queue_offset(self.message.sys_flag)

    @property
    def key(self):
        return QueueKey(self.message.topic, self.message.queue_id)

    def is_found_in(self, record):
        return record is not None and (record.topic, record.queue_id, record.body) == (
            self.message.topic,
            self.message.queue_id,
            self.message.body,
        )


class OneStore(RuleBasedStateMachine):
    """The model: messages in the order of the log, each with its place; its durable end and its start."""

    @initialize(seed=st.integers(0, 2**32 - 1), is_flush_sync=st.booleans())
    def begin(self, seed, is_flush_sync):
        self.random = Random(seed)
        self.config = PlainStoreConfig(
            log=CommitLogConfig(mapped_file_size=2048, is_flush_sync=is_flush_sync),
            store=CONFIG.store,
        )
        self.disk = SimDisk(self.random, FaultCounts())
        self.clock = Clock()
        self.puts = []
        self.attempted = []
        self.durable_offset = 0
        self.number = 0
        self.next_offsets = {}
        self.begin_offset = 0
        self.start()

    # ------------------------------------------------------------------------------------------------- processes

    def start(self):
        self.files = SimFiles(self.disk, self.random, FaultCounts())
        self.store = open_plain_store(self.files, ROOT, self.config, process_id=1, clocks=self.clock)
        self.adopt()

    def adopt(self):
        """Update the model with the messages found after a start."""
        log = self.store.log
        end = log.written_offset
        self.begin_offset = log.begin_offset
        for put, place in self.attempted:
            # A put that was killed leaves some of its messages, in their order.
            record = log.find(place) if log.begin_offset <= place < end else None
            if record is None:
                break
            assert put.is_found_in(record)
            put.place = (place, record.size, record.queue_offset, record.store_timestamp)
            self.puts.append(put)
        self.attempted = []
        self.puts = [put for put in self.puts if put.place[0] < end]
        assert end >= self.durable_offset, (end, self.durable_offset)
        last = self.puts[-1].place if self.puts else (0, 0)
        # A blank may follow the last message, or zeros, if the rest of its file was given up.
        assert last[0] + last[1] <= end or not self.puts
        assert end - (last[0] + last[1]) < 2048
        self.next_offsets = {}
        for put in self.puts:
            if put.is_queued:
                self.next_offsets[put.key] = put.place[2] + 1
        self.durable_offset = end

    def survives(self, operation, dies_in, *, is_power_cut):
        """Run `operation`; return whether it ended. If the process died within (`dies_in` > 0), start another."""
        if dies_in:
            self.files.crash_point.arm(dies_in)
        try:
            operation()
        except SimulatedCrash:
            self.note_durable()
            if is_power_cut:
                self.disk.cut_power()
            else:
                self.durable_offset = max(self.durable_offset, self.appended_end())
            self.start()
            return False
        self.files.crash_point.disarm()
        self.note_durable()
        return True

    def note_durable(self):
        self.durable_offset = max(self.durable_offset, self.store.log.flushed_offset)

    def appended_end(self):
        return self.puts[-1].place[0] + self.puts[-1].place[1] if self.puts else 0

    # ----------------------------------------------------------------------------------------------------- rules

    @rule(
        sizes=st.lists(st.integers(0, 120) | st.integers(0, 900), min_size=1, max_size=6),
        topic=st.sampled_from(["A", "A", "B"]),
        flag=st.sampled_from([0, 0, 0, 0, 4, 8, 12]),
        dies_in=st.sampled_from([0, 0, 0, 0, 1, 2, 3]),
        is_power_cut=st.booleans(),
        seconds=st.sampled_from([0, 0.001, 1, 2, 60]),
    )
    def put(self, sizes, topic, flag, dies_in, is_power_cut, seconds):
        if sum(sizes) + 150 * len(sizes) > 2000:
            sizes = sizes[:1]
        self.clock.pass_s(seconds)
        puts = []
        for size in sizes:
            message = numbered(self.number, topic, 3, size, tag="ab"[self.number % 2], sys_flag=flag)
            puts.append(Put(self.number, message))
            self.number += 1
        log = self.store.log
        place = log.written_offset
        prepared = log._encoder.prepare([put.message for put in puts]).sizes
        if place % 2048 + sum(prepared) + 8 > 2048:
            place += 2048 - place % 2048
        for put, size in zip(puts, prepared, strict=True):
            self.attempted.append((put, place))
            place += size
        self.survives(lambda: self.really_put(puts), dies_in, is_power_cut=is_power_cut)

    def really_put(self, puts):
        done = []
        self.store.messages.put_many([put.message for put in puts]).when_done(done.append)
        if not done:
            self.store.lifecycle.flush_log()
        (outcome,) = done
        assert outcome.certainty == "Appended"
        for put, place in zip(puts, outcome.places, strict=True):
            put.place = tuple(place)
            if put.is_queued:
                # Never twice: the offset is the next one, whatever happened before.
                assert place.queue_offset == self.next_offsets.get(put.key, 0)
                self.next_offsets[put.key] = place.queue_offset + 1
        self.puts += puts
        self.attempted = []

    @rule()
    def dispatch_some(self):
        self.store.messages.dispatch_step()

    @rule(dies_in=st.integers(0, 12), is_power_cut=st.booleans())
    def dispatch(self, dies_in, is_power_cut):
        self.survives(self.store.dispatch, dies_in, is_power_cut=is_power_cut)

    @rule(dies_in=st.integers(0, 30), is_power_cut=st.booleans())
    def flush(self, dies_in, is_power_cut):
        self.survives(self.store.flush, dies_in, is_power_cut=is_power_cut)

    @rule()
    def flush_log(self):
        self.store.lifecycle.flush_log()
        self.note_durable()

    @rule(dies_in=st.sampled_from([0, 0, 0, 1, 2, 3, 4, 5, 6]), is_power_cut=st.booleans(), pages_min=st.integers(0, 1))
    def flush_part(self, dies_in, is_power_cut, pages_min):
        """One ticket, with messages put while it is in flight, and a checkpoint after it."""

        def run():
            ticket = self.store.messages.begin_flush(pages_min)
            self.store.messages.dispatch_step()
            if ticket is not None:
                ticket.sync()
                self.store.messages.end_flush(ticket)
            self.store.lifecycle.save_checkpoint()

        self.survives(run, dies_in, is_power_cut=is_power_cut)

    @rule(dies_in=st.integers(0, 20), is_power_cut=st.booleans())
    def expire(self, dies_in, is_power_cut):
        """The disk is nearly full: the oldest file is deleted, if all of it is certainly dispatched."""
        retention = self.store.lifecycle.retention
        floor = self.store.messages.derived.durable_offset
        self.disk.capacity_bytes = self.disk.used_bytes * 100 // 87
        retention.begin_round()
        self.survives(retention.step, dies_in, is_power_cut=is_power_cut)
        self.disk.capacity_bytes = UNLIMITED_BYTES
        self.begin_offset = self.store.log.begin_offset
        assert self.begin_offset <= max(floor, self.durable_offset)

    @rule(is_power_cut=st.booleans())
    def kill(self, is_power_cut):
        self.note_durable()
        if is_power_cut:
            self.disk.cut_power()
        else:
            self.durable_offset = self.appended_end()
        self.start()

    @rule(dies_in=st.integers(0, 30), is_power_cut=st.booleans())
    def close_and_open(self, dies_in, is_power_cut):
        if self.survives(self.store.close, dies_in, is_power_cut=is_power_cut):
            assert f"{ROOT}/abort" not in self.disk.directories
            self.start()
            assert self.store.notes == ()

    @rule(
        what=st.sampled_from(["consumequeue/A/0", "consumequeue/B/1", "consumequeue", "index"]), is_clean=st.booleans()
    )
    def lose(self, what, is_clean):
        """Derived files are removed; with those of one queue also the checkpoint, because the rest seems complete."""
        if self.begin_offset:
            return
        if is_clean:
            self.store.close()
        for path in [path for path in self.disk.directories if f"{path}/".startswith(f"{ROOT}/{what}/")]:
            del self.disk.directories[path]
        if what.count("/"):
            self.disk.directories[ROOT].change("abort", Inode(0))
            self.disk.directories[ROOT].change("checkpoint", None)
        self.durable_offset = self.appended_end()
        self.start()

    # --------------------------------------------------------------------------------------------------- invariants

    @invariant()
    def messages_are_found(self):
        if not hasattr(self, "store"):
            return
        log, messages = self.store.log, self.store.messages
        there = [put for put in self.puts if put.place[0] >= self.begin_offset]
        for put in there[-8:]:
            if put.place[0] < log.end_offset:
                assert put.is_found_in(log.find(put.place[0]))
        dispatched = messages.derived.dispatcher.offset
        by_queue = {}
        for put in there:
            if put.is_queued and put.place[0] < dispatched:
                by_queue.setdefault(put.key, []).append(put)
        for key, puts in by_queue.items():
            assert messages.min_offset(*key) == puts[0].place[2]
            assert messages.max_offset(*key) == puts[-1].place[2] + 1
            result = messages.get(*key, max(puts[0].place[2], puts[-1].place[2] - 7))
            assert result.status == "FOUND"
            for put, record in zip(puts[-8:][: len(result.messages)], result.messages, strict=True):
                assert put.is_found_in(record)
                assert record.queue_offset == put.place[2]
        for put in there[-3:]:
            if put.place[0] < dispatched:
                found = messages.query_by_key(put.message.topic, f"k{put.number}").messages
                is_indexed = put.message.sys_flag & 0xC != 0xC
                assert [record.physical_offset for record in found] == [put.place[0]] * is_indexed

    @invariant()
    def derived_files_are_those_of_a_rebuild(self):
        if not hasattr(self, "store") or self.store.messages.derived.dispatcher.behind_bytes:
            return
        if self.random.random() < 0.7:
            return
        self.store.messages.derived.flush()
        if not self.begin_offset:
            assert self.derived(self.disk) == self.rebuilt()

    def derived(self, disk):
        return {
            f"{path}/{name}": bytes(inode.cache)
            for path, directory in disk.directories.items()
            if path.startswith((f"{ROOT}/consumequeue", f"{ROOT}/index"))
            for name, inode in directory.cached.items()
        }

    def rebuilt(self):
        disk = SimDisk(Random(0), FaultCounts())
        source = self.disk.directories[f"{ROOT}/commitlog"]
        SimFiles(disk, Random(0), FaultCounts()).make_directory(f"{ROOT}/commitlog")
        target = disk.directories[f"{ROOT}/commitlog"] = Directory()
        files = SimFiles(disk, Random(0), FaultCounts())
        for name, inode in source.cached.items():
            file = files.create(f"{ROOT}/commitlog/{name}", len(inode.cache))
            file.write(bytes(inode.cache), 0)
        assert len(target.cached) == len(source.cached)
        store = open_plain_store(files, ROOT, self.config, process_id=1, clocks=Clock())
        store.close()
        return self.derived(disk)


@pytest.mark.slow
def test_store_holds_what_the_model_holds():
    run_state_machine_as_test(
        OneStore,
        settings=settings(
            max_examples=120,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            # Shrinking a run takes minutes; the failing one is printed unchanged.
            phases=[Phase.generate],
            report_multiple_bugs=False,
        ),
    )
