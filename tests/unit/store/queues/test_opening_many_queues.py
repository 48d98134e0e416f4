"""Opening a store with many queues: unsynced data becomes durable, and work that can wait is postponed."""

import random
import shutil

import pytest

import store.dispatch.derived_data
from dledger.testing.disk.disk import SimDisk, Survival
from dledger.testing.disk.files import SimFiles
from dledger.testing.faults import FaultCounts
from store.dispatch.checkpoint import read_checkpoint
from store.errors import StorageFailed
from store.fs.linux.files import OsFiles
from store.fs.linux.tree_sync import sync_one_by_one, sync_tree
from store.model.message import QueueKey
from store.queues.consume_queues import ConsumeQueues
from store.queues.unit import UNIT, UNIT_SIZE
from tests.support.dispatch_batches import batch_of
from tests.support.message_stores import Clock, numbered, open_small, queued
from tests.support.store_damage import be_killed

FILE_SIZE = 50 * UNIT_SIZE


def test_zeros_written_by_a_killed_process_become_durable_whatever_files_the_pool_holds(monkeypatch):
    """The next process finds nothing to truncate, and relies on it; a power cut must not restore the units."""
    disk = SimDisk(random.Random(1), FaultCounts())
    SimFiles(disk, random.Random(1), FaultCounts()).make_directory("/store")
    queues = ConsumeQueues(SimFiles(disk, random.Random(1), FaultCounts()), "/store", FILE_SIZE)
    queues.append(batch_of([("orders", number, 0, number * 100, 100) for number in range(5)]))
    queues.append(batch_of([("orders", number, 1, 500 + number * 100, 100) for number in range(5)]))
    queues.flush()
    for number in range(5):
        path = f"/store/consumequeue/orders/{number}/{0:020d}"
        SimFiles(disk, random.Random(1), FaultCounts()).open(path).write(bytes(UNIT_SIZE), UNIT_SIZE)

    queues = ConsumeQueues(SimFiles(disk, random.Random(1), FaultCounts()), "/store", FILE_SIZE, open_files_max=1)
    queues.load(is_truncated_next=True)
    queues.truncate(500)

    monkeypatch.setattr(SimDisk, "_draw_survival", lambda _: Survival.NOTHING)
    disk.cut_power()
    again = ConsumeQueues(SimFiles(disk, random.Random(1), FaultCounts()), "/store", FILE_SIZE)
    again.load()
    assert {again.get(key).max_offset for key in again} == {1}


def test_units_that_the_disk_refused_to_a_killed_process_do_not_count():
    """Linux marks a page clean that it could not write: data that is only in memory must not count as durable."""
    disk = SimDisk(random.Random(1), FaultCounts())
    files = SimFiles(disk, random.Random(1), FaultCounts())
    files.make_directory("/store")
    queues = ConsumeQueues(files, "/store", FILE_SIZE)
    queues.append(batch_of([("orders", 0, 0, 0, 100)]))
    queues.flush()
    path = f"/store/consumequeue/orders/0/{0:020d}"
    file = files.open(path)
    file.write(UNIT.pack(100, 100, 0), UNIT_SIZE)
    disk.sync_fault.arm(1, is_lasting=False)
    with pytest.raises(StorageFailed):
        file.sync()

    again = ConsumeQueues(SimFiles(disk, random.Random(1), FaultCounts()), "/store", FILE_SIZE)
    again.load(is_truncated_next=True)

    assert again.get(QueueKey("orders", 0)).max_offset == 1


@pytest.fixture
def killed(tmp_path, monkeypatch):
    """A store that was killed, whose checkpoint covers only the first half of its messages."""
    monkeypatch.setattr(store.dispatch.derived_data, "_FLUSHED_AT_ONCE_MAX", 3)
    clock = Clock()
    opened = open_small(tmp_path / "store", clock=clock)
    for number in range(100):
        clock.pass_s(1)
        opened.messages.put(numbered(number, queues=10))
        if number == 50:
            opened.flush()
    opened.lifecycle.flush_log()
    opened.lifecycle.abandon()
    return tmp_path / "store", clock


def test_units_of_many_queues_are_written_after_the_opening_and_guaranteed_only_then(killed):
    root, clock = killed
    before = read_checkpoint(OsFiles(), str(root)).logics_msg_timestamp

    for _ in range(3):
        opened = open_small(root, clock=clock)

        assert opened.messages.derived.queues.pending_count == 10
        assert read_checkpoint(OsFiles(), str(root)).logics_msg_timestamp == before
        assert sum(len(rows) for rows in queued(opened).values()) == 100
        opened.lifecycle.abandon()

    opened = open_small(root, clock=clock)
    opened.flush()
    assert read_checkpoint(OsFiles(), str(root)).logics_msg_timestamp > before
    opened.close()
    shutil.rmtree(root / "index")
    be_killed(root)
    opened = open_small(root, clock=clock)
    assert sum(len(rows) for rows in queued(opened).values()) == 100
    opened.close()


def test_queues_that_lost_what_was_guaranteed_are_written_before_anything_is_guaranteed_again(killed):
    root, clock = killed
    shutil.rmtree(root / "consumequeue")

    opened = open_small(root, clock=clock)

    assert opened.messages.derived.queues.pending_count == 0
    assert read_checkpoint(OsFiles(), str(root)).logics_msg_timestamp > 0
    opened.close()


@pytest.mark.parametrize("sync", [sync_tree, sync_one_by_one])
def test_tree_is_synced_with_all_its_content(tmp_path, sync):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_bytes(b"x")
    sync(str(tmp_path))
