"""Columns equal the result of a plain reader of single records; an invalid record ends them."""

import struct
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.record import columns as record_columns
from commitlog.record.columns import columns, count_good
from commitlog.record.encoder import RecordEncoder
from commitlog.record.few_records import few_columns
from commitlog.record.properties import RawProperties
from commitlog.record.record import decode
from commitlog.record.scan import walk
from commitlog.record.tags_code import tags_code
from store.model.dispatch_batch import DispatchBatch
from store.model.java_hash import key_hash
from store.model.message import Host, Message, QueueKey
from store.model.sys_flag import INNER_BATCH, TRANSACTION_ROLLBACK_TYPE, has_queue_offset, transaction_type
from store.model.topics import DELAY_LEVELS_MS

pytestmark = pytest.mark.usefixtures("both_forms")

BASE = 3 << 20
STORE_HOST = Host(b"\x7f\x00\x00\x01", 10911)
HOSTS = st.sampled_from([Host(b"\x0a\0\0\7", 1), Host(bytes(16), 2)])
# Parts of properties: special names and similar ones, in any order, some invalid.
NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "TAG", "KEYSX", "UNIQ_KEYS", "UNIQ_KE", "xTAGS", "p", ""])
VALUES = st.one_of(
    st.text("ab #k", max_size=8),
    st.sampled_from(["3", "0", "99", "-1", "+2", "x", "", " ", "  a  b ", "é", "键 😀", "polygenelubricants", "\x01"]),
)
PARTS = st.builds(
    lambda name, value, between: f"{name}{between}{value}", NAMES, VALUES, st.sampled_from(["\x01"] * 9 + [""])
)
RAW = st.one_of(
    st.builds(
        lambda parts, end: ("\x02".join(parts) + end).encode(),
        st.lists(PARTS, max_size=5),
        st.sampled_from(["", "\x02"]),
    ),
    st.binary(max_size=20),
    st.builds(
        lambda parts, junk: "\x02".join(parts).encode() + junk, st.lists(PARTS, max_size=3), st.binary(max_size=3)
    ),
).filter(lambda raw: b"__CRC32#" not in raw)
MESSAGES = st.builds(
    Message,
    topic=st.sampled_from(["orders", "t" * 200, "SCHEDULE_TOPIC_XXXX", "é", "键" * 60, "%RETRY%g"]),
    body=st.binary(max_size=30),
    queue_id=st.integers(0, 3),
    properties=RAW.map(RawProperties),
    sys_flag=st.sampled_from([0, 4, 8, 12, 0x80, 0x301, 1]),
    born_host=HOSTS,
    flag=st.just(0),
    born_timestamp=st.just(0),
    reconsume_times=st.just(0),
    prepared_transaction_offset=st.just(0),
)


def encode(messages, **options):
    encoder = RecordEncoder(options.pop("store_host", STORE_HOST), check_topic=lambda topic: None, **options)
    queue_offsets = [1000 + number for number in range(len(messages))]
    data = bytes(encoder.prepare(messages).encode(BASE, queue_offsets, 1_600_000_000_000))
    walked = walk(memoryview(data), 0, len(data))
    return data, walked.starts, walked.sizes


def columns_of(data, starts, sizes, **options):
    return columns(memoryview(data), starts, sizes, base_offset=BASE, **options)


def keys_of(record):
    # RocketMQ's IndexService.buildIndex skips a rollback.
    if transaction_type(record.sys_flag) == TRANSACTION_ROLLBACK_TYPE:
        return []
    keys = [record.properties.get("UNIQ_KEY", ""), *record.properties.get("KEYS", "").split(" ")]
    return [key_hash(record.topic, key) for key in keys if key]


def assert_rows_are_the_records(batch, data, starts):
    assert len(batch) == len(starts)
    assert batch.begin_offset == BASE + (starts[0] if starts else 0)
    first_seen = dict.fromkeys(batch.queues[number] for number in batch.queue_numbers)
    assert list(first_seen) == list(batch.queues)
    assert (np.diff(batch.key_rows) >= 0).all()
    for row, start in enumerate(starts):
        record = decode(memoryview(data), start)
        assert batch.physical_offsets[row] == record.physical_offset == BASE + start
        assert batch.sizes[row] == record.size
        assert batch.queue_offsets[row] == record.queue_offset
        assert batch.store_timestamps[row] == record.store_timestamp
        assert batch.queues[batch.queue_numbers[row]] == QueueKey(record.topic, record.queue_id)
        assert batch.is_queued[row] == (has_queue_offset(record.sys_flag) and not record.sys_flag & INNER_BATCH)
        assert batch.tags_codes[row] == tags_code(record.topic, record.properties, record.store_timestamp)
        assert batch.key_hashes[batch.key_rows == row].tolist() == keys_of(record)
        assert batch.next_offset >= BASE + start + record.size


@given(st.lists(MESSAGES, max_size=12), HOSTS)
def test_columns_equal_those_of_a_record_by_record_reader(messages, store_host):
    data, starts, sizes = encode(messages, store_host=store_host) if messages else (b"", [], [])

    assert_rows_are_the_records(columns_of(data, starts, sizes), data, starts)
    checked = columns_of(data, starts, sizes, is_body_checked=True, is_property_crc_checked=True)
    assert len(checked) == len(starts)


@given(st.lists(MESSAGES, min_size=1, max_size=24), HOSTS, st.data())
def test_few_records_decode_the_same_one_by_one_and_all_at_once(messages, store_host, data):
    content, starts, sizes = encode(messages, store_host=store_host)
    damaged = bytearray(content)
    if data.draw(st.booleans()):
        damaged[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    first = data.draw(st.integers(0, len(starts) - 1))
    part = starts[first:], sizes[first:]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(record_columns, "FEW_RECORDS_MAX", 0)
        at_once = columns_of(damaged, *part)

    one_by_one = few_columns(memoryview(damaged), *part, BASE, DELAY_LEVELS_MS)

    assert (one_by_one is None) == (len(at_once) < len(part[0]))
    for few in (columns_of(damaged, *part), one_by_one or at_once):
        assert_same_batch(few, at_once)


def assert_same_batch(batch, other):
    for field in fields(DispatchBatch):
        value, wanted = getattr(batch, field.name), getattr(other, field.name)
        assert np.array_equal(value, wanted), field.name
        assert getattr(value, "dtype", None) == getattr(wanted, "dtype", None), field.name


@given(st.lists(MESSAGES, min_size=30, max_size=40), st.integers(1, 400))
def test_columns_do_not_depend_on_how_many_properties_are_hashed_at_once(messages, chunk_size):
    data, starts, sizes = encode(messages)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(record_columns, "_CHUNK_SIZE", chunk_size)
        batch = columns_of(data, starts, sizes)

    assert_rows_are_the_records(batch, data, starts)


def test_columns_of_thousands_with_the_largest_properties_are_right():
    large = {"UNIQ_KEY": "u" * 16_000, "KEYS": "k " * 8_000, "TAGS": "t" * 300}
    data, starts, sizes = encode([Message("orders", b"", number % 2, large) for number in range(40)])

    batch = columns_of(data, starts, sizes)

    assert len(batch.key_hashes) == 40 * 8_001
    assert set(batch.tags_codes.tolist()) == {tags_code("orders", large, 0)}
    wanted = {key_hash("orders", "u" * 16_000), key_hash("orders", "k")}
    assert set(batch.key_hashes.tolist()) == wanted


def test_columns_have_the_types_of_queues_and_index(some_messages):
    batch = columns_of(*encode(some_messages(5)))

    types = {name: getattr(batch, name).dtype for name in ("physical_offsets", "sizes", "tags_codes", "key_hashes")}
    assert types == {
        "physical_offsets": np.int64,
        "sizes": np.int32,
        "tags_codes": np.int64,
        "key_hashes": np.int32,
    }
    assert (batch.queue_offsets.dtype, batch.store_timestamps.dtype) == (np.int64, np.int64)
    assert (batch.queue_numbers.dtype, batch.is_queued.dtype, batch.key_rows.dtype) == (np.int32, np.bool_, np.int64)


@pytest.mark.parametrize(
    ("level", "wait_ms"), [("1", 1000), ("5", 60_000), ("18", 7_200_000), ("19", 7_200_000), ("2147483647", 7_200_000)]
)
def test_a_delayed_message_has_the_time_when_it_is_due(level, wait_ms):
    data, starts, sizes = encode([Message("SCHEDULE_TOPIC_XXXX", b"", 2, {"DELAY": level, "TAGS": "A"})])

    assert columns_of(data, starts, sizes).tags_codes.tolist() == [1_600_000_000_000 + wait_ms]
    assert columns_of(data, starts, sizes, levels_ms=(7,)).tags_codes.tolist() == [1_600_000_000_007]


@pytest.mark.parametrize("level", ["0", "-1", "x", "", " 1", "2147483648", "1.0", "\u0661"])
def test_a_message_without_a_delay_level_has_the_code_of_its_tags(level):
    data, starts, sizes = encode([Message("SCHEDULE_TOPIC_XXXX", b"", 2, {"DELAY": level, "TAGS": "A"})])

    assert columns_of(data, starts, sizes).tags_codes.tolist() == [65]


@pytest.mark.parametrize("number", [0, 3, 6])
@pytest.mark.parametrize(
    ("at", "layout", "value"),
    [
        (4, ">I", 0xDAA320A8),
        (0, ">i", 1),
        (28, ">q", BASE - 1),
        (36, ">i", 0x30),
        (84, ">i", -1),
        (84, ">i", 1 << 30),
        (84, ">i", 17),
        (84, ">i", 14),
        (108, ">b", -1),
        (108, ">b", 0x7F),
        (115, ">h", -1),
        (115, ">h", 6),
    ],
)
def test_columns_end_before_the_first_record_that_is_not_good(number, at, layout, value):
    messages = [Message("orders", b"b" * 20, properties={"TAGS": "A"}) for _ in range(7)]
    data, starts, sizes = encode(messages)
    damaged = bytearray(data)
    struct.pack_into(layout, damaged, starts[number] + at, value)

    assert_rows_are_the_records(columns_of(damaged, starts, sizes), data, starts[:number])
    assert count_good(memoryview(damaged), starts, sizes, base_offset=BASE)[0] == number


@given(st.lists(MESSAGES, min_size=1, max_size=4), st.data())
def test_columns_accept_exactly_what_a_record_by_record_reader_accepts(messages, data):
    content, starts, sizes = encode(messages)
    at = data.draw(st.integers(0, len(content) - 1))
    damaged = bytearray(content)
    damaged[at] ^= data.draw(st.integers(1, 255))
    view = memoryview(damaged)

    good = 0
    while good < len(starts) and _is_good(view, starts[good], sizes[good]):
        good += 1

    options = {"base_offset": BASE, "is_body_checked": True}
    assert len(columns(view, starts, sizes, **options)) == good
    assert count_good(view, starts, sizes, **options)[0] == good


def _is_good(view, start, size):
    from commitlog.record.record import find_fault

    fault = find_fault(view, start, start + size, physical_offset=BASE + start)
    return fault is None and decode(view, start).size == size


def test_a_wrong_property_crc_ends_the_columns_when_it_is_checked():
    data, starts, sizes = encode([Message("orders", b"x", properties={"p": "v"})] * 5, has_property_crc=True)
    damaged = bytearray(data)
    damaged[starts[3] + sizes[3] - 22] ^= 1

    assert len(columns_of(damaged, starts, sizes, is_body_checked=True)) == 5
    assert len(columns_of(damaged, starts, sizes, is_property_crc_checked=True)) == 3


def test_counted_records_come_with_their_store_timestamps(some_messages):
    data, starts, sizes = encode(some_messages(9))

    count, timestamps = count_good(memoryview(data), starts, sizes, base_offset=BASE)

    assert (count, timestamps.tolist()) == (9, [1_600_000_000_000] * 9)
