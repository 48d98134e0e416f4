"""After every file operation and every class of lost writes, a message store opens and has all flushed messages.

Queues and index equal a rebuild from the log, byte for byte, and the next messages get the next queue offsets.
"""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from commitlog.plain.commit_log import CommitLogConfig
from commitlog.plain.store import PlainStoreConfig, open_plain_store
from dledger.testing.disk.disk import Directory, SimDisk
from dledger.testing.faults import FaultCounts
from store.model.config import MessageStoreConfig
from store.model.sys_flag import has_queue_offset
from tests.crashpoints.crashes import IS_LONG, Crashes
from tests.crashpoints.workload import files_on
from tests.support.message_stores import Clock, numbered

ROOT = "/s"
CONFIG = PlainStoreConfig(
    log=CommitLogConfig(mapped_file_size=2048),
    store=MessageStoreConfig(
        mapped_file_size_consume_queue=160, max_hash_slot_num=16, max_index_num=20, dispatch_size_bytes=700
    ),
)
# One in this many images of an operation is opened, and one in this many of these is also crashed within its recovery.
STRIDE = 1 if IS_LONG else 13
SECOND_CRASH_STRIDE = 29 if IS_LONG else 101


class Workload:
    """One or several processes on a store; before each file operation the possible disks after a crash are opened.

    Attributes:
        puts: messages in log order; a crash leaves a prefix of these.
        flushed_count: number of flushed messages.
        has_expired: whether older messages may have been deleted.
    """

    def __init__(self):
        self.crashes = Crashes(SECOND_CRASH_STRIDE, stride=STRIDE, second_stride=37)
        self.disk = SimDisk(Random(1), FaultCounts())
        self.clock = Clock()
        self.puts = []
        self.flushed_count = 0
        self.has_expired = False
        self.step = "open"
        self.store = None
        self.open()

    def open(self):
        self.step = "open"
        self.store = open_plain_store(files_on(self.disk, self.see), ROOT, CONFIG, process_id=1, clocks=self.clock)
        self.flushed_count = len(self.puts)

    def put(self, *sizes, topic="A", sys_flag=0, later_s=1.0):
        self.step = f"put {sizes}"
        self.clock.pass_s(later_s)
        begin = len(self.puts)
        messages = [numbered(begin + at, topic, 2, size, tag="t", sys_flag=sys_flag) for at, size in enumerate(sizes)]
        self.puts += messages
        self.store.messages.put_many(messages)

    def flush_log(self):
        self.step = "flush the log"
        count = len(self.puts)
        self.store.lifecycle.flush_log()
        self.flushed_count = count

    def dispatch(self):
        self.step = "dispatch"
        self.store.dispatch()

    def flush(self):
        self.step = "flush"
        count = len(self.puts)
        self.store.flush()
        self.flushed_count = count

    def flush_while_dispatching(self):
        """Messages are dispatched while a flush of queues and index is in progress; then a checkpoint is saved."""
        self.step = "flush while dispatching"
        ticket = self.store.messages.begin_flush()
        self.dispatch()
        ticket.sync()
        self.store.messages.end_flush(ticket)
        self.store.lifecycle.save_checkpoint()

    def save_checkpoint(self):
        self.step = "save the checkpoint"
        self.store.lifecycle.save_checkpoint()

    def expire(self):
        self.step = "expire"
        self.has_expired = True
        self.store.log.delete_before(self.store.messages.derived.durable_offset)
        self.store.messages.expire()

    def kill(self):
        self.step = "kill"

    def close(self):
        self.step = "close"
        self.store.close()

    def end(self):
        self.step = "end"
        self.see(0)

    # ------------------------------------------------------------------------------------------------- what is seen

    def see(self, number):
        self.crashes.see(f"{self.step}, operation {number}", self.disk, self.inspect, is_end=number == 0)

    def inspect(self, disk, before_operation):
        """Open a disk and compare its messages with those that were put."""
        files = files_on(disk, before_operation)
        store = open_plain_store(files, ROOT, CONFIG, process_id=1, clocks=self.clock)
        files.crash_point = files_on(disk).crash_point
        messages, log = store.messages, store.log
        found = []
        offset = log.begin_offset
        while (batch := log.scan(offset, 1 << 20)) is not None:
            assert not batch.skipped
            found += [log.find(at) for at in batch.physical_offsets.tolist()]
            offset = batch.next_offset
        bodies = [message.body for message in self.puts]
        first = bodies.index(found[0].body) if found else 0
        assert [record.body for record in found] == bodies[first : first + len(found)]
        assert not first or self.has_expired
        assert first + len(found) >= self.flushed_count, (first, len(found), self.flushed_count)
        next_offsets = self.queue_offsets(first + len(found))
        self.check_queues(messages, found, next_offsets)
        outcome = messages.put_many([numbered(999, "A", 2), numbered(998, "A", 2)]).outcome
        assert outcome is None
        store.flush()
        assert messages.max_offset("A", 1) == next_offsets.get(("A", 1), 0) + 1
        if not log.begin_offset:
            assert derived(disk) == rebuilt(disk)

    def queue_offsets(self, count):
        """Return the next offset of each queue after this many messages."""
        offsets = Counter()
        for message in self.puts[:count]:
            offsets[message.topic, message.queue_id] += has_queue_offset(message.sys_flag)
        return offsets

    def check_queues(self, messages, found, next_offsets):
        for key, next_offset in next_offsets.items():
            expected = [
                record.body for record in found if (record.topic, record.queue_id) == key and not record.sys_flag & 4
            ]
            assert messages.max_offset(*key) == next_offset, key
            assert messages.min_offset(*key) == next_offset - len(expected), key
            result = messages.get(*key, messages.min_offset(*key))
            assert [record.body for record in result.messages] == expected[: len(result.messages)]
            assert len(result.messages) == min(len(expected), 32)
        for record in found[-2:]:
            keys = record.properties["KEYS"].split(" ")
            offsets = [hit.physical_offset for hit in messages.query_by_key(record.topic, keys[0]).messages]
            assert offsets == [record.physical_offset]


def derived(disk):
    return {
        f"{path}/{name}": bytes(inode.cache)
        for path, directory in disk.directories.items()
        if path.startswith((f"{ROOT}/consumequeue", f"{ROOT}/index"))
        for name, inode in directory.cached.items()
    }


# By the log, which alone says what they are: many images differ in nothing but queues and index.
REBUILT = {}


def rebuilt(disk):
    """Return the derived files that are rebuilt from the log of a disk."""
    log = tuple((name, bytes(inode.cache)) for name, inode in disk.directories[f"{ROOT}/commitlog"].cached.items())
    if log not in REBUILT:
        REBUILT[log] = built_from(log)
    return REBUILT[log]


def built_from(log):
    other = SimDisk(Random(0), FaultCounts())
    files = files_on(other)
    files.make_directory(f"{ROOT}/commitlog")
    for name, content in log:
        files.create(f"{ROOT}/commitlog/{name}", len(content)).write(content, 0)
    assert isinstance(other.directories[f"{ROOT}/commitlog"], Directory)
    config = replace(CONFIG, log=replace(CONFIG.log, is_flush_sync=False))
    open_plain_store(files, ROOT, config, process_id=1, clocks=Clock()).close()
    return derived(other)


def put_and_flush(work):
    work.put(100, 200)
    work.flush_log()
    work.dispatch()
    work.put(300, 20, 20, topic="B", later_s=4)
    work.flush()
    work.put(100, sys_flag=4)
    work.put(500, 40, later_s=4)
    work.flush_log()
    work.dispatch()
    work.put(10, 20, later_s=4)
    work.flush_log()
    work.flush_while_dispatching()
    work.put(700)
    work.flush()


def close_kill_and_open(work):
    work.put(100, 200, 50)
    work.close()
    work.open()
    work.put(60, 70, later_s=5)
    work.flush()
    work.put(60, 90, later_s=5)
    work.flush_log()
    work.dispatch()
    work.kill()
    work.open()
    work.put(400, 90, later_s=5)
    work.close()


def expire_and_continue(work):
    for _ in range(4):
        work.put(300, 200, 400, later_s=2)
    work.flush()
    work.put(30, topic="B", later_s=4)
    work.flush_log()
    work.dispatch()
    work.expire()
    work.put(100, 200, later_s=4)
    work.flush()
    work.expire()
    work.kill()
    work.open()
    work.put(500, later_s=4)
    work.close()
    work.open()


def checkpoint_behind_dispatch(work):
    """Dispatched but unsynced messages must not be in the checkpoint."""
    work.put(100, 100)
    work.flush()
    for topic in "BCA":  # no later message of its queue shows that a unit is missing
        work.put(100, 100, topic=topic, later_s=10)
        work.flush_log()
        work.dispatch()
        work.save_checkpoint()


WORKLOADS = {
    workload.__name__: workload
    for workload in (put_and_flush, close_kill_and_open, expire_and_continue, checkpoint_behind_dispatch)
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
def test_nothing_flushed_is_missing_after_a_crash(name, capsys):
    work = Workload()
    WORKLOADS[name](work)
    work.end()

    with capsys.disabled():
        print(f"\ncrash points of the message store, {name}: {dict(work.crashes.counts)}")
    # Units are written and synced in one go, which leaves a crash little to choose from.
    assert work.crashes.counts["images"] > 50
