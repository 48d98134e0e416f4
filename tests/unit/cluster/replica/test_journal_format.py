"""The bytes of a journal: what was written is read, a torn end is found, and damage is never taken for one."""

from random import Random

import pytest

from cluster.replica.journal.format import (
    BATCH_HEADER_SIZE,
    SEGMENT_HEADER_SIZE,
    JournalCommand,
    JournalDamaged,
    batch_size,
    encode_batch,
    encode_segment_header,
    read_segment,
)

SIZE = 4_096
SECTOR = 512


def batches(*counts, first=1, body_size=40):
    """Return batches of these numbers of commands."""
    random, number, made = Random(3), first, []
    for count in counts:
        end = number + count
        made.append(
            [JournalCommand(each, 10 * each, bytes([1]) + random.randbytes(body_size)) for each in range(number, end)]
        )
        number = end
    return made


def segment(encoded, size=SIZE):
    return encode_segment_header(5, size, 1) + encoded + bytes(size - SEGMENT_HEADER_SIZE - len(encoded))


def read(content):
    return read_segment(memoryview(content), "/j/5", 5)


def test_segment_has_its_commands_in_order():
    made = batches(1, 7, 3)
    encoded = b"".join(map(encode_batch, made))

    found = read(segment(encoded))

    assert found.changes == [change for batch in made for change in batch]
    assert (found.begin_index, found.end, found.is_torn) == (1, SEGMENT_HEADER_SIZE + len(encoded), False)
    assert [batch_size(batch) for batch in made] == [len(encode_batch(batch)) for batch in made]


def test_segment_may_be_full():
    (batch,) = batches(1, body_size=SIZE - SEGMENT_HEADER_SIZE - BATCH_HEADER_SIZE - 14)
    assert len(encode_batch(batch)) == SIZE - SEGMENT_HEADER_SIZE
    assert read(segment(encode_batch(batch))).changes == batch
    assert read(segment(b"")).changes == []


def test_write_that_ended_at_any_byte_leaves_the_batches_before():
    first, second = batches(2, 20)
    encoded = encode_batch(second)
    for size in range(1, len(encoded)):
        found = read(segment(encode_batch(first) + encoded[:size]))
        assert (found.changes, found.is_torn) == (first, True)


@pytest.mark.parametrize("before_count", range(1, 14))
def test_sectors_that_are_not_written_leave_the_batches_before(before_count):
    """Every subset of the sectors of a batch, whose header is at many places of a sector."""
    first, second = batches(before_count, 24)
    whole = bytearray(segment(encode_batch(first) + encode_batch(second)))
    begin = SEGMENT_HEADER_SIZE + batch_size(first)
    sectors = range(begin // SECTOR, (begin + batch_size(second) - 1) // SECTOR + 1)
    for written in range((1 << len(sectors)) - 1):
        content = bytearray(whole)
        for number, sector in enumerate(sectors):
            if not written >> number & 1:
                at, end = max(begin, sector * SECTOR), (sector + 1) * SECTOR
                content[at:end] = bytes(end - at)
        found = read(bytes(content))
        assert (found.changes, found.is_torn) == (first, written != 0), bin(written)


@pytest.mark.parametrize("before_count", [1, 8, 9])
def test_changed_bit_of_a_written_batch_is_damage_and_not_a_torn_end(before_count):
    first, second = batches(before_count, 9)
    encoded = segment(encode_batch(first) + encode_batch(second))
    end = SEGMENT_HEADER_SIZE + batch_size(first) + batch_size(second)
    for position in range(end):
        content = bytearray(encoded)
        content[position] ^= 1 << position % 8
        with pytest.raises(JournalDamaged) as damaged:
            read(bytes(content))
        assert damaged.value.position <= position


def test_lost_sector_before_a_later_batch_is_damage():
    made = batches(14, 14, 14)
    content = bytearray(segment(b"".join(map(encode_batch, made))))
    content[SECTOR : 2 * SECTOR] = bytes(SECTOR)
    with pytest.raises(JournalDamaged, match="at byte 36"):
        read(bytes(content))


def test_lost_header_before_a_later_batch_is_damage():
    made = batches(1, 1, 1)
    content = bytearray(segment(b"".join(map(encode_batch, made))))
    content[SEGMENT_HEADER_SIZE : SEGMENT_HEADER_SIZE + batch_size(made[0])] = bytes(batch_size(made[0]))
    with pytest.raises(JournalDamaged, match="at byte 36"):
        read(bytes(content))


def test_bytes_that_are_no_batch_are_damage():
    for seed in range(200):
        rest = Random(seed).randbytes(SIZE - SEGMENT_HEADER_SIZE)
        with pytest.raises(JournalDamaged):
            read(encode_segment_header(5, SIZE, 1) + rest)


def test_header_of_another_version_size_or_number_is_refused():
    for header in (encode_segment_header(6, SIZE, 1), encode_segment_header(5, SIZE + 1, 1)):
        with pytest.raises(JournalDamaged, match="segment 5"):
            read(header + bytes(SIZE - SEGMENT_HEADER_SIZE))
    with pytest.raises(JournalDamaged, match="20 bytes"):
        read(segment(b"")[:20])
