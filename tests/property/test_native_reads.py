"""Records of a read are found and checked alike in C and in Python, and as one record at a time is."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.client.consumer.received import messages_of
from commitlog.record.encoder import RecordEncoder
from commitlog.record.properties import decode_in_python, decode_properties
from commitlog.record.record import BadRecord, Record, decode
from commitlog.record.record_runs import ReadableBytes, good_records, split_records
from store.model.message import Host, Message
from tests.fuzz.kernels import view_of
from tests.property.test_native_columns import RUNS_OF_SEED, SEEDS, drawn_logs, logs
from tests.support.forms import NATIVE, assert_same, needs_native

pytestmark = needs_native


# More bytes than the module checks without releasing the lock.
LARGE_SIZE = 1 << 17


def plain(records):
    """Return records as values that can be compared, and all that they say of themselves."""
    columns = Record.field_columns(records) if records else None
    return [
        (
            *(each.position, each.end, each.size, bytes(each.raw), each.topic, each.body, each.properties_raw),
            *(each.queue_id, each.queue_offset, each.sys_flag, each.body_size, each.message),
            *(each.check(is_property_crc_checked=True), each.is_at_queue_offset(b"orders", 3, number)),
        )
        for number, each in enumerate(records)
    ], columns


class Reader:
    """The reader of a queue, as far as messages need it."""

    class queue:  # noqa: N801
        topic = "orders"
        broker = "b"


def received(content):
    """Return the records of the messages that a broker sent."""
    return plain([message.record for message in messages_of(content, Reader, "source")])


def encoded(bodies):
    """Return the bytes of messages with these bodies, back to back."""
    prepared = RecordEncoder(Host(bytes(4), 1)).prepare([Message("orders", body, 3) for body in bodies])
    return bytes(prepared.encode(0, range(len(bodies)), 1_700_000_000_000))


def is_good(view, position, size, place):
    """Return whether a record is valid by the functions for a single one; headers are not compared."""
    try:
        record = decode(view, position, position + size)
    except BadRecord:
        return False
    return record.size == size and record.check(physical_offset=place) is None


@settings(max_examples=40)
@given(seed=SEEDS)
def test_records_are_found_alike_and_as_single_ones(seed):
    for draw, content, begins, ends, header_size, base in drawn_logs(seed):
        view = view_of(content)
        places, sizes = (begins + base).tolist(), (ends - begins).tolist()
        if places and draw.random() < 0.4:
            numbers = draw.choice((places, sizes))
            numbers[draw.randrange(len(numbers))] += draw.choice((-1, 1, 8, -(1 << 20), 1 << 61, 1 << 63))
        begin, end = base + header_size, base + len(content) - draw.choice((0, 0, 1, 200))
        part = ReadableBytes(view, base, begin, end, header_size > 0)

        is_crc_checked = draw.random() < 0.3
        found, _ = assert_same(
            lambda *given, **named: plain(good_records(*given, **named)),
            part, places, sizes, is_property_crc_checked=is_crc_checked,
        )  # fmt: skip

        at = begin
        for row, (position, *_) in enumerate(found):
            assert position == places[row] - base
            assert at <= places[row]
            at = places[row] + sizes[row]
            assert at <= end
            assert is_good(view, position, sizes[row], places[row])
        if not header_size and len(found) < len(places):
            place, size = places[len(found)], sizes[len(found)]
            is_inside = at <= place and size > 0 and place + size <= end
            assert is_crc_checked or not (is_inside and is_good(view, place - base, size, place))


@settings(max_examples=40)
@given(seed=SEEDS)
def test_records_of_an_answer_are_received_alike(seed):
    for draw, content, _, ends, header_size, _ in drawn_logs(seed):
        is_cut = draw.random() < 0.2
        cut = content[: draw.randrange(len(content) + 1)] + draw.randbytes(draw.randrange(200))

        outcome = assert_same(received, cut if is_cut else content)

        if not header_size and not is_cut and len(ends) and isinstance(outcome[0], list):
            assert len(outcome[0]) == len(ends)


@pytest.mark.parametrize("size", [LARGE_SIZE, 400])
def test_wrong_checksum_of_any_size_of_body_is_found(size):
    """Each byte of a body counts, whichever part of the module's checksum covers it."""
    draw = random.Random(size)
    bodies = [draw.randbytes(count) for count in [*range(100), *(draw.randrange(size) for _ in range(9))]]
    content = encoded(bodies)
    records = split_records(memoryview(content))
    assert [record.body for record in records] == bodies
    for number, record in enumerate(records):
        if record.body_size:
            changed = bytearray(content)
            changed[draw.randrange(record.body_size) + record.position + 88] ^= 1 << draw.randrange(8)
            rest = memoryview(changed)[record.position :]
            assert split_records(rest) == [], number
            assert len(split_records(memoryview(changed)[: record.end])) == number
            part = ReadableBytes(memoryview(changed), 0, 0, len(changed))
            assert good_records(part, [record.position], [record.size]) == []


@given(st.lists(st.sampled_from([b"\x01", b"\x02", b"TAGS", b"a", "\u00e9".encode(), "\U0001f600".encode(), b"\0"])))
def test_properties_are_decoded_alike(parts):
    raw = b"".join(parts)

    assert list(assert_same(decode_properties, raw).items()) == list(decode_in_python(raw).items())


@given(st.lists(st.one_of(st.binary(max_size=3), st.sampled_from([b"\x01", b"\x02", b"\xf0\x9f\x98", b"\xed\xa0"]))))
def test_properties_of_any_bytes_are_decoded_alike(parts):
    raw = b"".join(parts)

    assert list(NATIVE.decode_properties(raw).items()) == list(decode_in_python(raw).items())
    assert NATIVE.decode_properties(memoryview(raw)) is None


@settings(max_examples=30)
@given(seed=SEEDS)
def test_answers_of_any_bytes_are_refused_or_served(seed):
    """No size in a record leads outside of the buffer; the module under address checks finds out."""
    draw = random.Random(seed)
    content, *_ = logs(draw)
    for _ in range(RUNS_OF_SEED):
        changed = bytearray(content)
        for _ in range(draw.randrange(3) if changed else 0):
            changed[draw.randrange(len(changed))] = draw.choice((0, 0x7F, 0x80, 0xFF))
        rows = NATIVE.split_records(view_of(bytes(changed)))
        assert all(0 <= row[0] < row[1] <= len(changed) for row in rows)
    assert NATIVE.split_records("text") is None


@settings(max_examples=30)
@given(seed=SEEDS)
def test_arguments_of_any_size_are_refused_or_served(seed):
    """No place that does not fit leads outside of the buffer; the module under address checks finds out."""
    draw = random.Random(seed)
    content, begins, ends, header_size, base = logs(draw)
    hostile = [-1, 0, 1, len(content), len(content) + 1, (1 << 62) - 1, -(1 << 62), (1 << 63) - 1, 1 << 70, "1", None]
    for _ in range(RUNS_OF_SEED):
        places, sizes = (begins + base).tolist(), (ends - begins).tolist()
        numbers = [base, base + header_size, base + len(content)]
        for values in (places, sizes, numbers):
            if values and draw.random() < 0.7:
                values[draw.randrange(len(values))] = draw.choice(hostile)
        if sizes and draw.random() < 0.2:
            sizes.pop()
        found = NATIVE.locate_records(view_of(content), places, sizes, *numbers, draw.choice((0, 1, header_size > 0)))
        assert found is None or len(found) <= len(places)
