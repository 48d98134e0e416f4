"""Appends: places, blanks, times, refusals."""

import struct

import pytest

from store.errors import Certainty, DiskFull, IllegalMessage, StorageFailed
from store.model.commit_log import Place, PutStatus
from store.model.message import Host
from tests.unit.commitlog.plain.conftest import FILE_SIZE, RECORD_SIZE, Clock, flush, message, sizes_of

BLANK_MAGIC = 0xCBD43194


def test_messages_are_consecutive_at_the_returned_positions(real_log):
    log = real_log(is_flush_sync=False)

    outcome = log.append([message(10), message(0, queue_id=3)], [7, 0]).outcome

    now_ms = Clock().now_ms
    assert (outcome.status, outcome.certainty) == (PutStatus.PUT_OK, Certainty.APPENDED)
    assert outcome.places == [
        Place(0, RECORD_SIZE + 10, 7, now_ms),
        Place(RECORD_SIZE + 10, RECORD_SIZE, 0, now_ms),
    ]
    assert all(isinstance(place, Place) for place in outcome.places)
    assert (log.begin_offset, log.end_offset, log.flushed_offset) == (0, 2 * RECORD_SIZE + 10, 0)
    record = log.read(RECORD_SIZE + 10, RECORD_SIZE)
    assert (record.topic, record.queue_id, record.queue_offset, record.physical_offset) == ("T", 3, 0, RECORD_SIZE + 10)


def test_batch_that_does_not_fit_goes_to_the_next_file_as_a_whole(machine, log):
    machine.append(3000)
    begin = log.end_offset

    machine.append(100, 800, 100)

    space = FILE_SIZE - begin
    assert struct.unpack_from(">iI", machine.inode().cache, begin) == (space, BLANK_MAGIC)
    assert not any(machine.inode().cache[begin + 8 :])
    assert [offset for offset, _ in sizes_of(log)[0]] == [0, FILE_SIZE, FILE_SIZE + 192, FILE_SIZE + 192 + 892]


@pytest.mark.parametrize(("left", "is_rolled"), [(8, False), (7, True), (0, True)])
def test_eight_bytes_stay_free_after_the_last_record_of_a_file(machine, log, left, is_rolled):
    machine.append(1000)

    machine.append(FILE_SIZE - log.end_offset - RECORD_SIZE - left)

    assert (log.end_offset > FILE_SIZE) == is_rolled
    machine.append(0)
    assert len(sizes_of(log)[0]) == 3


def test_records_that_fit_into_no_file_are_refused(machine, log):
    machine.append(10)
    before = machine.image()

    with pytest.raises(IllegalMessage, match=f"at most {FILE_SIZE - 8} bytes, found {FILE_SIZE - 7}"):
        machine.append(FILE_SIZE - 7 - RECORD_SIZE)

    assert machine.image() == before
    machine.append(FILE_SIZE - 8 - RECORD_SIZE)
    assert [offset for offset, _ in sizes_of(log)[0]] == [0, FILE_SIZE]


def test_illegal_message_leaves_the_log_as_it_was(machine, log):
    machine.append(10)
    before = machine.image(), log.end_offset

    with pytest.raises(IllegalMessage, match="topic"):
        log.append([message(5), message(5, topic="no such/topic")], [0, 0])

    assert (machine.image(), log.end_offset) == before


def test_store_timestamps_never_decrease(machine, log):
    machine.append(1)
    begun_ms = machine.clock.now_ms
    machine.clock.now_ms -= 60_000
    machine.append(1)
    machine.clock.now_ms = begun_ms + 5
    machine.append(1)

    times = log.scan(0, 1 << 20).store_timestamps.tolist()
    assert times == [begun_ms, begun_ms, begun_ms + 5]
    assert log.last_store_timestamp == begun_ms + 5


def test_store_timestamps_do_not_decrease_over_a_restart(machine, log):
    machine.append(1)
    begun_ms = machine.clock.now_ms
    flush(log)
    log.close()
    machine.clock.now_ms -= 60_000

    again = machine.open(is_clean=True, is_flush_sync=False)
    machine.append(1)

    assert again.scan(0, 1 << 20).store_timestamps.tolist() == [begun_ms, begun_ms]


def test_store_host_is_in_every_record(machine):
    host = Host(bytes(range(16)), 10_911)
    log = machine.open(is_flush_sync=False, store_host=host)

    machine.append(5)

    assert log.find(0).store_host == host


# ------------------------------------------------------------------------------------------------ full disks


@pytest.mark.parametrize("size", [1000, 3900])
def test_full_disk_appends_nothing_and_appends_continue_when_it_has_space(machine, log, size):
    machine.append(3000)
    before = machine.image(), log.end_offset
    machine.disk.capacity_bytes = FILE_SIZE

    with pytest.raises(DiskFull):
        machine.append(size)
    assert (machine.image(), log.end_offset) == before

    machine.append(10)
    assert log.end_offset < FILE_SIZE
    machine.disk.capacity_bytes = 2 * FILE_SIZE
    machine.append(3000)
    assert [offset for offset, _ in sizes_of(log)[0]] == [0, 3092, FILE_SIZE]


def test_full_disk_in_the_background_does_no_harm(machine, log):
    machine.append(3500)
    machine.disk.capacity_bytes = FILE_SIZE
    assert log.prepare_next_file().make() is None

    machine.append(10)
    machine.disk.capacity_bytes = 2 * FILE_SIZE
    assert log.prepare_next_file().make() is not None
    machine.append(3000)
    assert log.end_offset > FILE_SIZE


def test_after_a_failed_write_nothing_is_appended_or_flushed_any_more(machine, log):
    machine.append(10)
    machine.disk.write_fault.arm(1, is_lasting=False)

    with pytest.raises(StorageFailed):
        machine.append(10)

    with pytest.raises(StorageFailed):
        machine.append(10)
    with pytest.raises(StorageFailed):
        log.begin_flush()
    with pytest.raises(StorageFailed):
        log.close()


# ------------------------------------------------------------------------------------------------- the next file


def test_next_file_is_made_when_a_quarter_of_the_last_one_is_left(machine, log):
    assert log.prepare_next_file() is None
    machine.append(2900)
    assert log.prepare_next_file() is None
    machine.append(100)
    job = log.prepare_next_file()
    assert log.prepare_next_file() is None
    job.make()
    assert log.prepare_next_file() is None

    assert len(log.files()) == 2
    machine.append(2000)
    assert (len(log.files()), len(sizes_of(log)[0])) == (2, 3)


def test_log_can_be_opened_with_a_preallocated_file(machine, log):
    machine.append(3500)
    log.prepare_next_file().make()
    log.close()

    again = machine.open(is_flush_sync=False)

    assert again.recovery_notes == ()
    assert (again.end_offset, len(again.files())) == (3592, 2)
    machine.append(10)
    machine.append(2000)
    assert [offset for offset, _ in sizes_of(again)[0]] == [0, 3592, FILE_SIZE]
