"""Reading: single records, columns, skipped bytes, times, and truncations at both ends."""

import pytest

from store.errors import CorruptData
from tests.unit.commitlog.plain.conftest import FILE_SIZE, RECORD_SIZE, flush, message, sizes_of

# In a record with IPv4 hosts.
TIMESTAMP_POSITION = 56


@pytest.fixture
def records(machine, log):
    """Fill the log with six records in three files, ten milliseconds apart; return their places."""
    for number in range(6):
        log.append([message(1500, queue_id=number)], [number])
        machine.clock.now_ms += 10
    flush(log)
    return sizes_of(log)[0]


def test_records_are_read_by_their_place(log, records):
    for number, (offset, size) in enumerate(records):
        assert log.read(offset, size).queue_id == log.find(offset).queue_id == number


def test_offset_outside_of_the_log_finds_nothing(machine, log, records):
    last, size = records[-1]
    log.delete_before(FILE_SIZE)

    assert log.read(*records[0]) is None
    assert log.find(records[1][0]) is None
    assert log.read(last, size + 1) is None
    assert log.read(log.end_offset, size) is None
    assert log.find(log.end_offset) is None
    assert log.find(-1) is None
    assert log.read(1 << 60, 100) is None
    assert log.peek(1 << 60, 100) is None
    assert log.peek(*records[0]) is None


@pytest.mark.parametrize(("shift", "longer"), [(1, 0), (-1, 0), (0, 1), (0, -1), (400, -400)])
def test_offset_where_no_record_begins_is_corruption_with_its_position(log, records, shift, longer):
    offset, size = records[2]

    with pytest.raises(CorruptData, match=r"0{16}\d{4}: corrupt at byte \d+"):
        log.read(offset + shift, size + longer)
    assert log.peek(offset + shift, size) is None or shift == 0


def test_blank_is_no_record(log, records):
    with pytest.raises(CorruptData, match="magic"):
        log.find(sum(records[1]))


def test_changed_body_is_found_when_it_is_read(machine, log, records):
    machine.patch(records[3][0] + 500, b"\xee\xef")

    with pytest.raises(CorruptData, match="CRC-32"):
        log.read(*records[3])
    assert log.scan(records[3][0], 1).skipped == ()
    assert len(log.scan(records[3][0], 1, is_body_checked=True).skipped) == 1


def test_scan_takes_at_least_one_record_and_about_as_many_bytes_as_asked(log, records):
    one = log.scan(0, 1)
    assert (len(one), one.begin_offset, one.next_offset) == (1, 0, records[0][1])
    two = log.scan(0, 3_000)
    assert two.next_offset in (sum(records[0]), sum(records[1]), FILE_SIZE)
    assert log.scan(log.end_offset, 100) is None


def test_scan_goes_over_blanks_and_ends_with_the_log(log, records):
    assert sizes_of(log) == (records, [])
    assert log.scan(sum(records[1]), 1 << 20).physical_offsets.tolist()[0] == records[2][0]


def test_scan_begins_where_the_log_does(log, records):
    log.delete_before(FILE_SIZE)

    assert log.scan(0, 1 << 20).begin_offset == FILE_SIZE


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("damage", ["size", "huge size", "negative size", "magic", "zeros", "offset"])
def test_scan_continues_after_a_bad_record_and_reports_what_it_skipped(machine, log, records, number, damage):
    offset, size = records[number]
    at, content = {
        "size": (0, b"\0\0\2\7"),
        "huge size": (0, b"\x7f\xff\xff\xff"),
        "negative size": (0, b"\xff\xff\xff\xf0"),
        "magic": (5, b"\0"),
        "zeros": (0, bytes(size)),
        "offset": (35, b"\x99"),
    }[damage]
    machine.patch(offset + at, content)

    found, skipped = sizes_of(log)

    assert found == [place for place in records if place[0] != offset]
    assert len(skipped) == 1
    assert (skipped[0].offset, skipped[0].path) == (offset, log.files()[offset // FILE_SIZE].path)
    assert skipped[0].size >= size
    assert skipped[0].position == offset % FILE_SIZE


def test_times_are_converted_to_offsets(machine, log, records):
    begun_ms = machine.clock.now_ms - 60

    found = {at: log.offset_at_timestamp(begun_ms + at) for at in (-5, 0, 1, 10, 19, 20, 49, 50, 51)}

    offsets = [offset for offset, _ in records]
    assert found == {
        -5: offsets[0],
        0: offsets[0],
        1: offsets[1],
        10: offsets[1],
        19: offsets[2],
        20: offsets[2],
        49: offsets[5],
        50: offsets[5],
        51: log.end_offset,
    }
    assert [log.peek(*place).store_timestamp - begun_ms for place in records] == [0, 10, 20, 30, 40, 50]


def test_first_of_many_records_of_one_millisecond_is_found_over_a_file_border(machine, log):
    machine.append(1500)
    machine.clock.now_ms += 1
    begin = log.end_offset
    for _ in range(5):
        machine.append(1500)

    assert log.offset_at_timestamp(machine.clock.now_ms) == begin


@pytest.mark.parametrize("moved_ms", [-1_000, 1_000])
@pytest.mark.parametrize("number", range(1, 6))
def test_changed_time_of_one_record_makes_no_offset_of_a_time_too_late(machine, log, records, number, moved_ms):
    """No checksum covers it. The log is dispatched again from such an offset on: messages before it would be lost."""
    times = [log.peek(*place).store_timestamp for place in records]
    machine.patch(records[number][0] + TIMESTAMP_POSITION, (times[number] + moved_ms).to_bytes(8, "big"))

    for at, time in enumerate(times):
        found = log.offset_at_timestamp(time)
        assert found <= records[at][0], at
        # Too low by the record before, or by the part of a file that is scanned then.
        assert moved_ms > 0 or found >= records[max(at - 1, 0)][0], at
    found = log.offset_at_timestamp(times[-1] + 1)
    assert moved_ms > 0 or found == (records[-1][0] if number == 5 else log.end_offset)


# ----------------------------------------------------------------------------------------------------------- cuts


def test_old_files_are_deleted_and_the_last_record_is_kept(machine, log, records):
    log.delete_before(FILE_SIZE - 1)
    assert log.begin_offset == 0
    held = log.find(0)
    log.delete_before(FILE_SIZE)
    assert (log.begin_offset, [file.begin_offset for file in log.files()]) == (FILE_SIZE, [FILE_SIZE, 2 * FILE_SIZE])
    assert held.queue_id == 0
    log.prepare_next_file()
    log.delete_before(1 << 60)
    assert log.begin_offset == 2 * FILE_SIZE
    assert sizes_of(log)[0] == records[4:]


def test_preallocated_file_does_not_make_the_one_before_deletable(machine, log):
    machine.append(3500)
    log.prepare_next_file().make()
    assert log.prepare_next_file() is None
    assert len(log.files()) == 2

    log.delete_before(1 << 60)

    assert (log.begin_offset, len(sizes_of(log)[0])) == (0, 1)


@pytest.mark.parametrize("number", range(6))
def test_cut_removes_everything_after_it(machine, log, records, number):
    offset, size = records[number]

    log.truncate(offset)

    assert sizes_of(log)[0] == records[:number]
    assert (log.end_offset, log.flushed_offset) == (offset, offset)
    times = [log.peek(*place).store_timestamp for place in records[:number]]
    assert log.flushed_store_timestamp == log.last_store_timestamp == (times[-1] if times else -1)
    assert all(not any(inode.durable[max(0, offset - int(name)) :]) for name, inode in inodes(machine))
    machine.append(size - RECORD_SIZE)
    again = sizes_of(log)[0]
    assert again[:number] == records[:number]
    assert len(again) == number + 1


def inodes(machine):
    return machine.disk.directories["/n0/commitlog"].cached.items()
