"""Snapshots of the state machine: after any crash the newest durable snapshot exists, and a transfer continues.

With any byte changed: a damaged snapshot is never loaded or sent; the previous one is used.
"""

from collections import Counter
from functools import partial
from random import Random

import pytest

import dledger.storage.snapshot_store
from dledger.storage.snapshot_store import SnapshotDamaged, SnapshotStore
from dledger.testing.disk.disk import SimDisk
from dledger.testing.faults import FaultCounts
from tests.crashpoints.crashes import IS_LONG, Crashes, nothing
from tests.crashpoints.images import killed
from tests.crashpoints.inspector import SECOND_CRASH_STRIDE
from tests.crashpoints.workload import DIRECTORY, files_on

CHUNK_SIZE = 300


def empty_disk():
    return SimDisk(Random(3), FaultCounts())


class Sender:
    """Another node, which has a snapshot to send."""

    def __init__(self, index, content):
        self.store = SnapshotStore.open(files_on(empty_disk()), DIRECTORY)
        self.info = self.store.save(index, 3, content)

    def chunk(self, offset):
        return self.store.read_chunk(self.info, offset, CHUNK_SIZE)


class Workload:
    """Saves, receives and deletes snapshots, and records which of them are durable."""

    def __init__(self, see):
        self.see = see
        self.disk = empty_disk()
        self.contents = {}
        self.guaranteed = -1
        self.coming = Sender(20, Random(4).randbytes(1_900))
        self.step = "open"
        self.open()

    def open(self):
        self.store = SnapshotStore.open(files_on(self.disk, self.before_operation), DIRECTORY)

    def before_operation(self, number):
        self.see(f"{self.step}, operation {number}", self)

    def save(self, index, size):
        self.step = f"save {index}"
        content = Random(index).randbytes(size)
        self.contents[index] = content
        self.store.save(index, 2, [content[: size // 3], content[size // 3 :]])
        self.guaranteed = index

    def receive(self, count):
        """Receive this many chunks from the position of the transfer."""
        self.step = "receive"
        info = self.coming.info
        incoming = self.store.incoming()
        received = incoming[1] if incoming is not None else 0
        for _ in range(count):
            received = self.store.write_chunk(info, received, self.coming.chunk(received))

    def finish(self):
        self.step = "finish"
        self.contents[20] = self.coming.store.load(self.coming.info)
        assert self.store.finish(self.coming.info)
        self.guaranteed = 20

    def restart(self):
        self.step = "restart"
        self.store.close()
        self.open()

    def run(self):
        self.save(3, 100)
        self.save(7, 1_400)
        self.receive(3)
        self.restart()
        self.save(9, 700)
        self.save(12, 10)
        self.restart()
        self.receive(2)
        self.save(15, 5_000)
        self.receive(20)
        self.finish()
        self.restart()
        self.save(31, 600)
        self.step = "end"
        self.before_operation(0)


class Inspector:
    """Opens the disks after a crash."""

    def __init__(self):
        self.crashes = Crashes(SECOND_CRASH_STRIDE)
        self.counts = self.crashes.counts

    def see(self, place, work):
        self.crashes.see(place, work.disk, partial(self.look, work))

    def look(self, work, disk, before_operation):
        store = SnapshotStore.open(files_on(disk, before_operation), DIRECTORY)
        newest = store.latest()
        assert (-1 if newest is None else newest.index) >= work.guaranteed
        for info in store.snapshots:
            assert store.load(info) == work.contents[info.index]
        assert store.damaged == ()
        incoming = store.incoming()
        if incoming is not None and before_operation is nothing:
            self.counts["transfers continued"] += 1
            info, received = incoming
            assert info == work.coming.info
            while received < info.size_bytes:
                received = store.write_chunk(info, received, work.coming.chunk(received))
            assert store.finish(info)
            assert store.load(info) == work.coming.store.load(info)


@pytest.mark.slow
def test_guaranteed_snapshot_exists_after_a_crash(monkeypatch, capsys):
    monkeypatch.setattr(dledger.storage.snapshot_store, "_SYNC_EVERY_BYTES", 2 * CHUNK_SIZE)
    inspector = Inspector()

    Workload(inspector.see).run()

    with capsys.disabled():
        print(f"\ncrash points of snapshots: {dict(inspector.counts)}")
    assert inspector.counts["transfers continued"] > 0


@pytest.mark.slow
def test_snapshot_with_a_changed_byte_is_neither_loaded_nor_sent(capsys):
    disk = empty_disk()
    store = SnapshotStore.open(files_on(disk), DIRECTORY)
    good = store.save(5, 1, b"the one before")
    content = Random(5).randbytes(700)
    store.save(8, 2, content)
    inode = disk.lookup(f"{DIRECTORY}/snapshot/{8:020d}")
    counts = Counter()
    for position, byte in enumerate(bytes(inode.cache)):
        for value in {0, 0xFF, *(byte ^ 1 << bit for bit in (range(8) if IS_LONG else (position % 8,)))} - {byte}:
            damaged = killed(disk).disk
            found = damaged.lookup(f"{DIRECTORY}/snapshot/{8:020d}")
            found.cache[position] = found.durable[position] = value
            counts[_load_newest(damaged, good)] += 1

    with capsys.disabled():
        print(f"\nchanged bytes of a snapshot, {counts.total()}: {dict(counts)}")
    assert set(counts) == {"found at the start", "found when it was loaded"}


def _load_newest(disk, good):
    store = SnapshotStore.open(files_on(disk), DIRECTORY)
    newest, end = store.latest(), "found at the start"
    if newest != good:
        assert store.read_chunk(newest, 0, CHUNK_SIZE) is None
        store = SnapshotStore.open(files_on(disk), DIRECTORY)
        with pytest.raises(SnapshotDamaged):
            store.load(newest)
        end = "found when it was loaded"
    assert store.latest() == good
    assert store.load(good) == b"the one before"
    return end
