"""Opening a log: torn tails are truncated, corruption is refused, and they are distinguished."""

import struct

import pytest

from store.errors import CorruptData, ForeignFile, MissingFile, WrongFileSize
from store.model.message import LOOPBACK
from tests.support.records import encode_record
from tests.unit.commitlog.plain.conftest import DIRECTORY, FILE_SIZE, RECORD_SIZE, flush, message, sizes_of


def write(machine, *sizes, step_ms=1, **config):
    """Write a log of one record each and close it; return offset and size of each record."""
    log = machine.open(is_flush_sync=False, **config)
    for size in sizes:
        machine.clock.now_ms += step_ms
        log.append([message(size)], [0])
    flush(log)
    records, _ = sizes_of(log)
    log.close()
    return records


def refused(machine, **options):
    """Open a log that is corrupt; return the error, having checked that nothing was changed."""
    before = machine.image()
    with pytest.raises(CorruptData) as caught:
        machine.open(is_flush_sync=False, **options)
    assert machine.image() == before
    return caught.value


# ----------------------------------------------------------------------------------------------------- torn tails


@pytest.mark.parametrize("sizes", [(40, 700, 30), (30,)], ids=["with others before it", "the first of all"])
def test_last_record_torn_at_any_byte_is_cut(machine, sizes):
    records = write(machine, *sizes)
    begin, size = records[-1]
    whole = machine.image()
    content = bytes(machine.inode().cache[begin : begin + size])
    # The first bytes, of the size, are zeros anyway; so are the last two, the length of no properties.
    for kept in range(4, size - 2):
        machine.patch(begin, content[:kept] + bytes(size - kept))
        log = machine.open(is_flush_sync=False)
        assert (log.end_offset, len(log.recovery_notes)) == (begin, 1), kept
        assert f"torn tail cut at byte {begin}" in log.recovery_notes[0]
        assert not any(machine.inode().cache[begin:])
        log.close()
        assert machine.open().recovery_notes == ()
        machine.patch(begin, content)
        assert machine.image() == whole


def test_properties_that_did_not_reach_the_disk_make_a_torn_tail(machine):
    """No checksum covers them, and zeros in their place leave all lengths right."""
    properties = {"KEYS": "k" * 700, "TAGS": "a\0b"}
    log = machine.open(is_flush_sync=False)
    log.append([message(100, properties=properties)] * 2, [0, 0])
    flush(log)
    begin, size = sizes_of(log)[0][1]
    log.close()
    content = bytes(machine.inode().cache[begin : begin + size])
    for first in range(begin + size - 700, begin + size - 1):
        machine.patch(begin, content)
        machine.patch(first, bytes(min(-first % 512 or 512, begin + size - first)))
        is_torn = first % 512 == 0 or begin + size - first < 512 - first % 512
        log = machine.open(is_flush_sync=False, synced_timestamp=machine.clock.now_ms)
        assert (log.end_offset == begin, len(log.recovery_notes)) == (is_torn, is_torn), first
        log.close()
    machine.patch(begin, content)
    assert machine.open().recovery_notes == ()


@pytest.mark.parametrize("lost", range(1, 5))
def test_lost_sector_before_good_records_is_a_torn_tail(machine, lost):
    records = write(machine, 100, 900, 900, 100)
    machine.patch(lost * 512, bytes(512))

    log = machine.open(is_flush_sync=False)

    first_bad = next(begin for begin, size in records if begin + size > lost * 512)
    assert (log.end_offset, len(log.recovery_notes)) == (first_bad, 1)
    assert not any(machine.inode().cache[first_bad:])


@pytest.mark.parametrize("kept", range(8))
def test_torn_blank_is_a_torn_tail_with_the_files_after_it(machine, kept):
    write(machine, 3900, 100, 200)
    blank = RECORD_SIZE + 3900
    machine.patch(blank, bytes(machine.inode().cache[blank : blank + kept]) + bytes(8 - kept))

    log = machine.open(is_flush_sync=False)

    assert (log.end_offset, len(log.files()), len(log.recovery_notes)) == (blank, 1, 1)


def test_leftovers_that_are_older_than_the_log_do_not_count(machine):
    """Java does not overwrite what it truncates: intact old records may follow a log's end, at their old positions."""
    records = write(machine, 100, 100, 100)
    end = sum(records[-1])
    old = encode_record(
        message(300), physical_offset=end + 50, queue_offset=0, store_timestamp=1_000, store_host=LOOPBACK
    )
    machine.patch(end, b"\x01" * 50 + old)

    log = machine.open(is_flush_sync=False, synced_timestamp=machine.clock.now_ms)

    assert (log.end_offset, len(log.recovery_notes)) == (end, 1)
    assert not any(machine.inode().cache[end:])


def test_body_that_holds_a_record_does_not_count_as_one(machine):
    inner = encode_record(
        message(100), physical_offset=77, queue_offset=0, store_timestamp=1 << 50, store_host=LOOPBACK
    )
    log = machine.open(is_flush_sync=False)
    log.append([message(50)], [0])
    begin = log.end_offset
    log.append([message(body=b"\x01" * 40 + inner + b"\x01" * 40)], [0])
    flush(log)
    machine.patch(begin + 88, b"\x02")

    again = machine.open(is_flush_sync=False)

    assert (again.end_offset, len(again.recovery_notes)) == (begin, 1)


# ----------------------------------------------------------------------------------------------------- corruption


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("is_synced", [True, False])
def test_changed_byte_with_good_records_after_it_is_corruption(machine, is_clean, is_synced):
    """For every kind of last exit, and every byte that a checksum covers."""
    records = write(machine, 100, 300, 100, has_property_crc=True)
    begin, size = records[1]
    synced_timestamp = machine.clock.now_ms if is_synced else 0
    content = bytes(machine.inode().cache[begin : begin + size])
    # A change in the property CRC itself makes the record one without it, which is allowed.
    for at in range(size - 20):
        machine.patch(begin + at, bytes([content[at] ^ 0x40]))
        error = refused(machine, is_clean=is_clean, synced_timestamp=synced_timestamp, has_property_crc=True)
        assert error.path == f"{DIRECTORY}/{0:020d}"
        assert begin <= error.position < begin + size
        assert error.expected != error.found
        machine.patch(begin + at, content[at : at + 1])


def test_reading_continues_after_corruption_with_the_option(machine):
    records = write(machine, 100, 300, 100, 3000, 50)
    machine.patch(records[1][0] + 100, b"\xff")

    log = machine.open(is_flush_sync=False, is_corruption_skipped=True)

    assert "corrupt data skipped" in log.recovery_notes[0]
    found, skipped = sizes_of(log, is_body_checked=True)
    assert found == [records[0], *records[2:]]
    assert [(each.offset, each.size) for each in skipped] == [records[1]]
    assert log.end_offset == sum(records[-1])
    log.append([message(5)], [0])
    assert sizes_of(log, is_body_checked=True)[0] == [*found, (FILE_SIZE, RECORD_SIZE + 5)]


def test_last_record_that_was_synced_and_has_only_a_wrong_checksum_is_corruption(machine):
    records = write(machine, 100, 300)
    machine.patch(records[1][0] + 100, b"\xff")

    error = refused(machine, synced_timestamp=machine.clock.now_ms + 1)
    assert "CRC-32" in error.expected

    log = machine.open(is_flush_sync=False, synced_timestamp=machine.clock.now_ms)
    assert log.end_offset == records[1][0]


BODY_AT, CRC_AT = 88, 8
ZEROS = b"a" * 300 + bytes(1_100) + b"b" * 100


def changed(machine, at, *masks):
    """Change bits of bytes from `at` on."""
    content = machine.inode(at - at % FILE_SIZE).cache
    machine.patch(at, bytes(content[at % FILE_SIZE + place] ^ mask for place, mask in enumerate(masks)))


@pytest.mark.parametrize("place", [0, 299, 700, 1_499, CRC_AT - BODY_AT + 3])
@pytest.mark.parametrize("bit", [0, 3, 6])
@pytest.mark.parametrize("body", [None, ZEROS], ids=["any body", "body with sectors of zeros"])
@pytest.mark.parametrize("has_next", [False, True])
def test_one_changed_bit_of_a_record_is_no_torn_write(machine, place, bit, body, has_next):
    log = machine.open(is_flush_sync=False)
    for each in [message(40), message(1_500, body=body), *([message(50)] if has_next else [])]:
        log.append([each], [0])
    flush(log)
    records, _ = sizes_of(log)
    log.close()
    changed(machine, records[1][0] + BODY_AT + place, 1 << bit)

    error = refused(machine)

    assert "CRC-32" in error.expected
    assert "--skip-damaged" in str(error)
    log = machine.open(is_flush_sync=False, is_corruption_skipped=True)
    assert sizes_of(log, is_body_checked=True)[0] == [records[0], *records[2:]]


def test_two_changed_bits_of_the_last_record_are_still_taken_for_a_torn_write(machine):
    """The limit: the checksum alone does not distinguish them from a write that did not reach the disk."""
    records = write(machine, 40, 600)
    changed(machine, records[1][0] + BODY_AT + 100, 1, 1)

    assert machine.open(is_flush_sync=False).end_offset == records[1][0]


def test_lost_sectors_are_torn_writes_and_no_changed_bits(machine):
    records = write(machine, 40, 2_500)
    begin, size = records[1]
    whole = bytes(machine.inode().cache)
    for sector in range(begin // 512 + 1, (begin + size) // 512):
        machine.patch(0, whole[: sector * 512] + bytes(512) + whole[(sector + 1) * 512 :])
        log = machine.open(is_flush_sync=False)
        assert log.end_offset == begin, sector
        log.close()


def test_lost_sector_of_what_was_synced_is_corruption(machine):
    write(machine, 100, 900, 900, 100)
    machine.patch(512, bytes(512))

    refused(machine, synced_timestamp=machine.clock.now_ms + 1)


@pytest.mark.parametrize("content", [b"no log at all", bytes(range(1, 200)), struct.pack(">iiq", 1, 104, 0)])
@pytest.mark.parametrize("is_corruption_skipped", [True, False])
def test_file_that_is_no_log_is_left_alone(machine, content, is_corruption_skipped):
    machine.open().close()
    machine.files.create(f"{DIRECTORY}/{0:020d}", FILE_SIZE).write(content, 0)

    error = refused(machine, is_corruption_skipped=is_corruption_skipped)

    assert error.position in (0, 4)


def test_entries_of_the_checkpoint_that_the_log_lacks_are_reported(machine):
    write(machine, 100)

    log = machine.open(synced_timestamp=machine.clock.now_ms + 1)

    assert len(log.recovery_notes) == 1
    assert "which the checkpoint records as durable" in log.recovery_notes[0]


# ------------------------------------------------------------------------------------------------ where it begins


def corrupt_first_file(machine):
    records = write(machine, 1000, 1000, 3000, 3000, step_ms=4_000)
    machine.patch(150, b"\xff")
    return records


def test_after_a_clean_exit_only_the_last_file_is_checked(machine):
    records = corrupt_first_file(machine)

    log = machine.open(is_clean=True)

    assert (log.end_offset, log.recovery_notes) == (sum(records[-1]), ())
    with pytest.raises(CorruptData, match=r"byte 88: expected a body with CRC-32"):
        log.read(*records[0])


def test_after_an_unclean_exit_it_is_checked_from_three_seconds_before_what_was_synced(machine):
    corrupt_first_file(machine)
    head = machine.clock.now_ms - 4_000

    assert machine.open(synced_timestamp=head + 3_001).recovery_notes == ()
    refused(machine, synced_timestamp=head + 3_000)


def test_without_a_checkpoint_all_is_checked(machine):
    corrupt_first_file(machine)

    assert refused(machine).position == 88


def test_file_of_zeros_after_the_log_is_not_where_it_ends(machine):
    records = write(machine, 1000, 2500)
    machine.log = machine.open(is_flush_sync=False)
    machine.log.prepare_next_file().make()
    machine.log.prepare_next_file()
    machine.log.close()

    for is_clean in (True, False):
        log = machine.open(is_clean=is_clean)
        assert (log.end_offset, log.recovery_notes, len(log.files())) == (sum(records[-1]), (), 2)
        log.close()


def test_blank_at_the_very_end_leads_to_the_next_file(machine):
    """As in a store that was handed over to DLedger; there is no next file yet."""
    records = write(machine, 3900)
    end = sum(records[-1])
    machine.patch(end, struct.pack(">iI", FILE_SIZE - end, 0xCBD43194))

    log = machine.open(is_flush_sync=False)

    assert (log.end_offset, log.recovery_notes) == (FILE_SIZE, ())
    log.append([message(10)], [0])
    assert sizes_of(log)[0] == [*records, (FILE_SIZE, RECORD_SIZE + 10)]


def test_log_whose_beginning_has_expired_opens(machine):
    records = write(machine, 3000, 3000, 3000)
    machine.files.remove(f"{DIRECTORY}/{0:020d}")

    log = machine.open(is_flush_sync=False)

    assert (log.begin_offset, log.recovery_notes) == (FILE_SIZE, ())
    assert sizes_of(log)[0] == records[1:]
    assert log.read(*records[0]) is None


def test_empty_directory_is_an_empty_log(machine):
    log = machine.open(is_flush_sync=False)

    assert (log.begin_offset, log.end_offset, log.last_store_timestamp, log.files()) == (0, 0, -1, [])
    assert log.scan(0, 100) is None
    assert log.find(0) is None
    assert log.begin_flush() is None
    assert log.prepare_next_file() is None
    assert log.offset_at_timestamp(5) == 0


# --------------------------------------------------------------------------------------------------- wrong files


def test_wrong_files_are_named(machine):
    write(machine, 3000, 3000, 3000)

    with pytest.raises(WrongFileSize, match=f"expected a size of 8192 bytes, found {FILE_SIZE}"):
        machine.open(mapped_file_size=8192)
    machine.files.rename(f"{DIRECTORY}/{FILE_SIZE:020d}", f"{DIRECTORY}/{9:020d}")
    with pytest.raises(MissingFile, match=f"{FILE_SIZE:020d}: expected this file before"):
        machine.open()
    machine.files.rename(f"{DIRECTORY}/{9:020d}", f"{DIRECTORY}/notes.txt")
    with pytest.raises((ForeignFile, MissingFile)):
        machine.open()
