"""Walks over records: where they stop; after damage they continue at the next valid record only."""

import itertools
import struct
import sys
from contextlib import contextmanager
from itertools import accumulate, pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog.record import resync as record_resync
from commitlog.record.record import BLANK_MAGIC, decode
from commitlog.record.resync import resync
from commitlog.record.scan import Stop, scan, walk
from dledger.entries.format.entry import ENTRY_NOOP, HEADER, HEADER_SIZE, encode_batch
from store.model.message import Message

pytestmark = pytest.mark.usefixtures("both_forms")

BASE = 1 << 30
BLANK = struct.pack(">ii", 40, BLANK_MAGIC) + bytes(32)


@pytest.fixture
def records(encoded, some_messages):
    """Return (bytes of 12 records, where each begins, where they end), as of a file that begins at BASE."""
    data = encoded(some_messages(12), physical_offset=BASE)
    walked = walk(memoryview(data), 0, len(data))
    return data, walked.starts, len(data)


@pytest.fixture
def entries(some_messages, encoded):
    """Return (bytes, where each entry begins, end): three records, a no-op, three records, as of a file at BASE."""
    bodies = [encoded([message]) for message in some_messages(6)]
    first = encode_batch(bodies[:3], first_index=5, term=2, position=BASE, chain_crc=0, stamp_at=28)
    position = BASE + len(first.data)
    noop = encode_batch([b""], first_index=8, term=3, position=position, chain_crc=first.chain_crc, magic=ENTRY_NOOP)
    rest = encode_batch(
        bodies[3:], first_index=9, term=3, position=position + 48, chain_crc=noop.chain_crc, stamp_at=28
    )
    data = first.data + noop.data + rest.data
    places = [at - BASE for at in (*first.positions, *noop.positions, *rest.positions)]
    return data, places, len(data)


def found_after(data, place, end, **options):
    return resync(memoryview(data), place, end, base_offset=BASE, **options)


def test_a_walk_takes_every_record_up_to_the_end(records):
    data, starts, end = records

    walked = walk(memoryview(data), 0, end)

    assert (walked.position, walked.stop, walked.fault) == (end, Stop.END, None)
    assert [*accumulate(walked.sizes, initial=0)] == [*starts, end]


@pytest.mark.parametrize(
    ("after", "stop"),
    [
        (b"", Stop.END),
        (BLANK, Stop.BLANK),
        (bytes(40), Stop.ZEROS),
        (bytes(7), Stop.ZEROS),
        (b"\0\0\0\1", Stop.BAD),
        (b"junk" * 10, Stop.BAD),
        (struct.pack(">iI", 200, 0xDAA320A7) + bytes(40), Stop.BAD),
        (struct.pack(">iI", 8, 0xDAA320A7) + bytes(100), Stop.BAD),
        (struct.pack(">ii", 7, BLANK_MAGIC) + bytes(32), Stop.BAD),
    ],
)
def test_a_walk_stops_where_the_records_end_and_reports_why(records, after, stop):
    data, starts, end = records

    walked = walk(memoryview(data + after), 0, end + len(after))

    assert (walked.starts, walked.position, walked.stop) == (starts, end, stop)
    assert (walked.fault is not None) == (stop == Stop.BAD)


def test_a_walk_does_not_read_beyond_the_given_end(records):
    data, starts, end = records

    walked = walk(memoryview(data), 0, end - 1)

    assert (walked.starts, walked.stop) == (starts[:-1], Stop.BAD)


def test_a_walk_can_be_bounded_by_bytes_and_by_records(records):
    data, starts, end = records
    view = memoryview(data)

    assert walk(view, 0, end, size_bytes_max=1).starts == starts[:1]
    assert walk(view, 0, end, size_bytes_max=starts[3]).starts == starts[:3]
    assert walk(view, 0, end, size_bytes_max=starts[3] + 1).starts == starts[:4]
    bounded = walk(view, 0, end, count_max=5)
    assert (bounded.starts, bounded.position, bounded.stop) == (starts[:5], starts[5], Stop.END)
    assert walk(view, starts[5], end, count_max=100).starts == starts[5:]


def test_a_walk_over_entries_passes_those_without_a_record(entries):
    data, places, end = entries

    walked = walk(memoryview(data), 0, end, header_size=HEADER_SIZE)

    records = [place for number, place in enumerate(places) if number != 3]
    assert ([start - HEADER_SIZE for start in walked.starts], walked.position, walked.stop) == (records, end, Stop.END)


@pytest.mark.parametrize(
    ("after", "stop", "expected"),
    [
        (struct.pack(">ii", -1, 48) + bytes(40), Stop.BLANK, None),
        (bytes(48), Stop.ZEROS, None),
        (BLANK + bytes(8), Stop.BAD, "an entry of magic 1, 2 or 3"),
        (HEADER.pack(1, 47, 0, 0, 0, 0, 0, 0, -1), Stop.BAD, "an entry of 48 to 48 bytes"),
        (HEADER.pack(2, 49, 0, 0, 0, 0, 0, 0, 1), Stop.BAD, "an entry of 48 to 48 bytes"),
        (HEADER.pack(1, 53, 0, 0, 0, 0, 0, 0, 5) + b"hello", Stop.BAD, "a record of at least 91 bytes"),
    ],
)
def test_a_walk_over_entries_stops_where_they_end_and_reports_why(entries, after, stop, expected):
    data, places, end = entries

    walked = walk(memoryview(data + after), 0, end + len(after), header_size=HEADER_SIZE)

    assert (len(walked.starts), walked.position, walked.stop) == (len(places) - 1, end, stop)
    assert (walked.fault.expected if walked.fault else None) == expected


def test_an_entry_that_is_longer_than_its_record_is_bad(encoded):
    record = encoded([Message("T", b"x" * 30)])
    data = encode_batch([record + b"!"], first_index=0, term=1, position=0, chain_crc=0).data

    walked = walk(memoryview(data), 0, len(data), header_size=HEADER_SIZE)

    assert walked.stop == Stop.BAD
    assert walked.fault[1:] == (f"an entry of {48 + len(record)} bytes, as its record says", f"{49 + len(record)}")


@pytest.mark.parametrize("size", [0, 1, -1, 90, 91, 1 << 30, -(1 << 31), (1 << 31) - 1])
def test_a_wrong_size_leads_to_the_next_record(records, size):
    data, starts, end = records
    for place, after in pairwise(starts):
        damaged = bytearray(data)
        struct.pack_into(">i", damaged, place, size)
        assert found_after(damaged, place, end) == after


def test_a_size_that_points_to_any_other_place_leads_to_the_next_record(records):
    data, starts, end = records
    place, after = starts[4], starts[5]
    damaged = bytearray(data)
    for size in range(end - place + 10):
        struct.pack_into(">i", damaged, place, size)
        assert found_after(damaged, place, end) == after


def test_a_length_inside_that_points_to_any_other_place_leads_to_the_next_record(records):
    data, starts, end = records
    place, after = starts[3], starts[4]
    damaged = bytearray(data)
    for length in range(-5, end - place + 10):
        struct.pack_into(">i", damaged, place + 84, length)
        assert found_after(damaged, place, end) == after


@given(data=st.data())
@settings(max_examples=200)
def test_any_damage_inside_one_record_costs_that_record_only(shared_records, data):
    content, starts, end = shared_records
    number = data.draw(st.integers(0, len(starts) - 2))
    place, after = starts[number], starts[number + 1]
    begin = data.draw(st.integers(place, after - 1))
    junk = data.draw(st.binary(min_size=1, max_size=after - begin))
    damaged = content[:begin] + junk + content[begin + len(junk) :]

    assert found_after(damaged, place, end) == after


@pytest.fixture(scope="module")
def shared_records():
    from commitlog.record.encoder import RecordEncoder
    from store.model.message import Host

    messages = [Message(f"t{number % 3}", Random(number).randbytes(number * 9), number) for number in range(9)]
    prepared = RecordEncoder(Host(b"\x7f\0\0\1", 1)).prepare(messages)
    data = bytes(prepared.encode(BASE, range(9), 1))
    return data, [*accumulate(prepared.sizes[:-1], initial=0)], len(data)


def test_several_consecutive_bad_records_are_skipped_together(records):
    data, starts, end = records
    damaged = bytearray(data)
    damaged[starts[2] : starts[6]] = Random(1).randbytes(starts[6] - starts[2])

    assert found_after(damaged, starts[2], end) == starts[6]


def test_zeros_in_the_middle_are_skipped(records):
    data, starts, end = records
    damaged = bytearray(data)
    damaged[starts[2] : starts[6]] = bytes(starts[6] - starts[2])

    assert found_after(damaged, starts[2], end) == starts[6]


def test_a_body_that_holds_a_whole_record_of_another_place_is_no_record(encoded):
    inner = encoded([Message("T", b"inner")], physical_offset=BASE)
    messages = [Message("T", inner * 3), Message("T", b"next")]
    data = bytearray(encoded(messages, physical_offset=BASE))
    after = decode(memoryview(data), 0).size
    data[0:8] = b"\xff" * 8

    assert found_after(data, 0, len(data)) == after


@pytest.mark.parametrize("damage", [(0, b"\0\0\0\0"), (8, b"\0\0\0\0"), (84, b"\0\0\0\1"), (90, b"?"), (4, b"\0")])
def test_a_body_that_claims_its_own_position_is_not_taken_for_a_record(encoded, damage):
    # A client that knows the offset of its message could forge one in the body, in case the record is damaged.
    fixed = len(encoded([Message("T", b"")])) - 1 - 1 - 2
    forged = encoded([Message("T", b"forged")], physical_offset=BASE + fixed + 10)
    messages = [Message("T", b"0123456789" + forged), Message("T", b"next")]
    data = bytearray(encoded(messages, physical_offset=BASE))
    after = decode(memoryview(data), 0).size
    assert decode(memoryview(data), fixed + 10).check(physical_offset=BASE + fixed + 10) is None
    at, junk = damage
    data[at : at + len(junk)] = junk

    assert found_after(data, 0, len(data)) == after


def test_after_the_last_record_there_is_the_blank_or_the_end(records):
    data, starts, end = records
    damaged = bytearray(data)
    damaged[starts[-1] + 89] ^= 1

    assert found_after(damaged, starts[-1], end) == end
    assert found_after(damaged + BLANK, starts[-1], end + len(BLANK)) == end
    assert found_after(damaged + bytes(50), starts[-1], end + 50) == end + 50
    assert found_after(damaged + b"\xda\xa3\x20\xa7" * 9, starts[-1], end + 36) == end + 36
    damaged[starts[-1] : end] = bytes(end - starts[-1])
    assert found_after(damaged, starts[-1], end) == end


def test_after_a_bad_entry_the_next_good_one_is_found_whatever_its_kind(entries):
    data, places, end = entries
    for place, after in pairwise([*places, end]):
        for at in range(place, after):
            damaged = bytearray(data)
            damaged[at] ^= 0xFF
            found = found_after(damaged, place, end, header_size=HEADER_SIZE)
            # A no-op has no content to search for: only a correct size before it leads to it.
            assert found in ((after, places[4]) if after == places[3] else (after,)), (place, at)


def test_a_record_of_another_position_is_bad(encoded, some_messages):
    stale = encoded(some_messages(3), physical_offset=BASE + 7)

    batch, stop = scan(memoryview(stale), 0, len(stale), base_offset=BASE, path="f")

    assert (len(batch), stop, batch.next_offset) == (0, Stop.BAD, BASE + len(stale))
    assert batch.skipped[0].expected == f"physical offset {BASE}"


def test_a_scan_continues_after_bad_bytes_and_reports_them(records):
    data, starts, end = records
    damaged = bytearray(data)
    damaged[starts[5] - 1] ^= 1  # within properties: not detectable
    damaged[starts[7] + 4] ^= 1
    view = memoryview(damaged)

    first, stop = scan(view, 0, end, base_offset=BASE, path="some/file")
    rest, last_stop = scan(view, first.next_offset - BASE, end, base_offset=BASE, path="some/file")

    assert (first.begin_offset, first.physical_offsets.tolist()) == (BASE, [BASE + start for start in starts[:7]])
    assert (stop, first.next_offset) == (Stop.BAD, BASE + starts[8])
    (skipped,) = first.skipped
    assert (skipped.path, skipped.position, skipped.offset) == ("some/file", starts[7], BASE + starts[7])
    assert (skipped.size, skipped.expected) == (starts[8] - starts[7], "magic 0xdaa320a7 or 0xdaa320ab")
    assert rest.physical_offsets.tolist() == [BASE + start for start in starts[8:]]
    assert (last_stop, rest.next_offset, rest.skipped) == (Stop.END, BASE + end, ())


def test_a_scan_checks_bodies_only_when_it_is_asked_to(records):
    data, starts, end = records
    damaged = bytearray(data)
    damaged[starts[5] + 100 + 12] ^= 1
    view = memoryview(damaged)
    assert decode(view, starts[5]).check() is not None

    trusting, _ = scan(view, 0, end, base_offset=BASE, path="f")
    checking, stop = scan(view, 0, end, base_offset=BASE, path="f", is_body_checked=True)

    assert (len(trusting), len(checking), stop) == (len(starts), 5, Stop.BAD)
    assert checking.next_offset == BASE + starts[6]
    assert checking.skipped[0].expected.startswith("a body with CRC-32")


def test_a_scan_takes_at_least_one_record(records):
    data, starts, end = records

    batch, stop = scan(memoryview(data), 0, end, base_offset=BASE, path="f", size_bytes_max=1)

    assert (len(batch), batch.next_offset, stop) == (1, BASE + starts[1], Stop.END)


def test_a_scan_of_nothing_is_empty():
    batch, stop = scan(memoryview(bytes(100)), 0, 100, base_offset=BASE, path="f")

    assert (len(batch), batch.begin_offset, batch.next_offset, stop) == (0, BASE, BASE, Stop.ZEROS)


def test_a_magic_across_two_pieces_of_a_search_is_found(monkeypatch, records):
    data, starts, end = records
    damaged = b"\0" * starts[1] + data[starts[1] :]
    for size in range(1, 140):
        monkeypatch.setattr(record_resync, "_SEARCH_SIZE", size)
        assert found_after(damaged, 0, end) == starts[1]


def test_a_search_among_bytes_that_only_look_like_records_is_bounded(monkeypatch, encoded):
    # Records that are valid except for their checksum, nested so that each body contains the next ones.
    head = encoded([Message("T", b"")])[:88]
    data = bytearray(200 * 88)
    for number in range(200):
        at = number * 88
        size = len(data) + 4 - at
        data[at : at + 88] = head
        struct.pack_into(">i", data, at, size)
        struct.pack_into(">i", data, at + 8, 1)
        struct.pack_into(">q", data, at + 28, BASE + at)
        struct.pack_into(">i", data, at + 84, size - 92)
    data += b"\x01T\0\0"
    checked = []
    monkeypatch.setattr(record_resync, "_WASTE_SIZE_MAX", 10 * len(data))
    monkeypatch.setattr(record_resync, "_is_good_place", lambda view, place, *rest: checked.append(place))

    assert found_after(data, 0, len(data) - 1) == len(data) - 1
    assert len(checked) == 199
    checked.clear()
    data += encoded([Message("T", b"")], physical_offset=BASE + len(data))
    found_after(data, 0, len(data))
    assert 10 <= len(checked) <= 20


@pytest.mark.parametrize("is_begun", [False, True])
@pytest.mark.parametrize("header_size", [0, HEADER_SIZE])
def test_a_record_completed_during_a_read_is_not_reported_as_bad(records, entries, header_size, is_begun):
    whole, starts, end = entries if header_size else records
    last = starts[-1]
    written = last + header_size + 60 if is_begun else last
    found = []
    for step in range(2000):
        data = bytearray(whole[:written] + bytes(end - written))
        with _finished_at(step, data, whole) as is_finished:
            batch, stop = scan(memoryview(data), last, end, base_offset=BASE, path="file", header_size=header_size)
        found.append((stop, len(batch), batch.next_offset - BASE))
        if not is_finished:
            break

    good, finished_since = (Stop.END, 1, end), (Stop.END, 0, last)
    torn = (Stop.BAD, 0, end) if is_begun else (Stop.ZEROS, 0, last)
    assert (found[0], found[-1]) == (good, torn)
    assert {*found} == {good, finished_since, torn}


@contextmanager
def _finished_at(step, data, whole):
    """Write `whole` into `data` after this many lines of this project have run; give a list with an item after that."""
    steps, finished, before = itertools.count(), [], sys.gettrace()

    def trace(frame, event, _):
        if frame.f_globals["__name__"].partition(".")[0] not in {"commitlog", "store"}:
            return None
        if event == "line" and next(steps) == step:
            data[:] = whole
            finished.append(step)
        return trace

    sys.settrace(trace)
    try:
        yield finished
    finally:
        sys.settrace(before)
