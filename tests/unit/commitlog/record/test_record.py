"""One record: the golden bytes of the format, round trips, and the result of every kind of invalid bytes."""

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commitlog.record.encoder import RecordEncoder
from commitlog.record.properties import CRC_NAME, RawProperties, find_property_crc
from commitlog.record.record import (
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    MAX_MESSAGE_SIZE,
    RECORD_SIZE_MIN,
    BadRecord,
    checksum,
    decode,
    find_fault,
)
from store.errors import CorruptData, IllegalMessage
from store.model.message import Host, Message
from tests.support.records import encode_record

STORE_HOST = Host(b"\x7f\x00\x00\x01", 10911)
GOLDEN = bytes.fromhex(
    "00000068 daa320a7 3610a686 00000003 00000000 0000000000000007 00000000000003e8 00000000"
    "00000174876e8000 7f000001 00001fbb 00000174876e8001 7f000001 00002a9f 00000000 0000000000000000"
    "00000005 68656c6c6f 01 54 0007 54414753014102"
)
CRC_OF_DAMAGED = f"{checksum(bytes(1) + b'ello'):#010x}"
GOLDEN_MESSAGE = Message(
    "T", b"hello", 3, {"TAGS": "A"}, born_timestamp=1600000000000, born_host=Host(b"\x7f\x00\x00\x01", 8123)
)

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
HOSTS = st.builds(
    Host, st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)), st.integers(0, 65535)
)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=12)
MESSAGES = st.builds(
    Message,
    topic=st.one_of(TEXT, TEXT.map(lambda text: text * 40)),
    body=st.binary(max_size=60),
    queue_id=st.integers(0, (1 << 31) - 1),
    properties=st.dictionaries(TEXT, TEXT, max_size=4),
    flag=INT32,
    sys_flag=INT32,
    born_timestamp=INT64,
    born_host=HOSTS,
    reconsume_times=INT32,
    prepared_transaction_offset=INT64,
)


def any_topic(topic):
    """Accept every topic, also those that no broker accepts."""


def test_golden_record_of_the_format():
    encoded = encode_record(
        GOLDEN_MESSAGE, physical_offset=1000, queue_offset=7, store_timestamp=1600000000001, store_host=STORE_HOST
    )

    assert encoded == GOLDEN
    record = decode(memoryview(GOLDEN), 0)
    assert (record.size, record.magic, record.body_crc) == (104, MAGIC_V1, 0x3610A686)
    assert (record.queue_offset, record.physical_offset, record.topic) == (7, 1000, "T")
    assert record.message_id == "7F00000100002A9F00000000000003E8"
    assert record.check(physical_offset=1000) is None


@pytest.mark.parametrize(
    ("body", "crc"), [(b"hello", 0x3610A686), (b"world", 0x3A771143), (b"a", 0x68B7BE43), (b"", 0)]
)
def test_checksum_is_crc_32_without_its_highest_bit(body, crc):
    assert checksum(body) == crc


@example(Message("T", b"", 0, {CRC_NAME: "0", "a": "b"}), STORE_HOST, 0, 0, 0, False)
@example(Message("T", b"", 0, {CRC_NAME: "0", "a": "b"}), STORE_HOST, 0, 0, 0, True)
@given(MESSAGES, HOSTS, INT64, INT64, INT64, st.booleans())
def test_records_are_decoded_as_they_were_encoded(
    message, store_host, physical_offset, queue_offset, store_timestamp, has_crc
):
    encoder = RecordEncoder(store_host, has_property_crc=has_crc, check_topic=any_topic)
    prepared = encoder.prepare([message])
    # In the middle of other bytes, so that nothing is read from beyond the record.
    data = prepared.encode(physical_offset, [queue_offset], store_timestamp)
    record = decode(memoryview(b"\xff" * 5 + bytes(data) + b"\xff" * 5), 5, 5 + len(data))

    assert (prepared.sizes, record.size) == ([len(data)], len(data))
    assert (record.queue_offset, record.physical_offset) == (queue_offset, physical_offset)
    assert (record.store_timestamp, record.store_host) == (store_timestamp, store_host)
    assert (record.body_view, record.body_size) == (message.body, len(message.body))
    host_bits = (16 if len(message.born_host.address) > 4 else 0) | (32 if len(store_host.address) > 4 else 0)
    assert record.sys_flag == message.sys_flag & ~0x4040_0030 | host_bits
    assert record.magic == (MAGIC_V1 if len(message.topic.encode()) <= 127 else MAGIC_V2)
    expected = message._replace(sys_flag=record.sys_flag)
    # A property CRC of the message is left out, as in RocketMQ; the encoder's own is added.
    stored = {name: value for name, value in message.properties.items() if name != CRC_NAME}
    if has_crc:
        stored[CRC_NAME] = record.properties[CRC_NAME]
    assert record.message == expected._replace(properties=stored)
    assert record.check(physical_offset=physical_offset, is_property_crc_checked=True) is None
    assert bytes(encoder.prepare([record.message]).encode(physical_offset, [queue_offset], store_timestamp)) == data


@given(st.lists(MESSAGES, min_size=1, max_size=8), st.booleans())
def test_many_at_once_are_the_same_bytes_as_one_by_one(messages, has_crc):
    encoder = RecordEncoder(STORE_HOST, has_property_crc=has_crc, check_topic=any_topic)
    queue_offsets = range(7, 7 + len(messages))

    prepared = encoder.prepare(messages)
    together = bytes(prepared.encode(1000, queue_offsets, 99))

    single, offset = b"", 1000
    for message, queue_offset in zip(messages, queue_offsets, strict=True):
        single += bytes(encoder.prepare([message]).encode(offset, [queue_offset], 99))
        offset = 1000 + len(single)
    assert together == single
    assert (prepared.total_size, sum(prepared.sizes), len(prepared)) == (len(single), len(single), len(messages))


def test_records_for_the_replicated_log_lack_only_their_physical_offset(some_messages, encoded):
    messages = some_messages(7)
    each = RecordEncoder(STORE_HOST).prepare(messages).encode_each(range(7), 1_600_000_000_001)

    stamped, offset = b"", 0
    for record in each:
        assert struct.unpack_from(">q", record, 28) == (0,)
        stamped += record[:28] + struct.pack(">q", offset) + record[36:]
        offset += len(record)
    assert stamped == encoded(messages)


def test_a_property_crc_changes_with_any_byte_of_the_record():
    data = bytes(RecordEncoder(STORE_HOST, has_property_crc=True).prepare([GOLDEN_MESSAGE]).encode(1000, [7], 9))

    unseen = [
        position
        for position in range(len(data))
        if not find_fault(
            memoryview(data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :]),
            0,
            len(data),
            physical_offset=None,
            is_property_crc_checked=True,
        )
    ]

    # What no longer has that name, after a separator, cannot be missed: a record may be without.
    assert unseen == list(range(len(data) - 21, len(data) - 11))


@pytest.mark.parametrize(
    ("offset", "layout", "value", "expected", "found"),
    [
        (0, ">i", 0, "a size from 91 to 104", "0"),
        (0, ">i", -1, "a size from 91 to 104", "-1"),
        (0, ">i", 90, "a size from 91 to 104", "90"),
        (0, ">i", 105, "a size from 91 to 104", "105"),
        (0, ">i", 103, "a properties length of 6, for a size of 103", "7"),
        (4, ">I", 0xDAA320A8, "magic 0xdaa320a7 or 0xdaa320ab", "0xdaa320a8"),
        (4, ">i", BLANK_MAGIC, "magic 0xdaa320a7 or 0xdaa320ab", "0xcbd43194"),
        (4, ">i", MAGIC_V2, "a topic length from 0 to 7", "340"),
        (28, ">q", 999, "physical offset 1000", "999"),
        (36, ">i", 0x10, "a body length from 0 to 1", "122962247"),
        (84, ">i", -1, "a body length from 0 to 13", "-1"),
        (84, ">i", 14, "a body length from 0 to 13", "14"),
        (84, ">i", 1 << 30, "a body length from 0 to 13", str(1 << 30)),
        (88, ">B", 0, "a body with CRC-32 0x3610a686", CRC_OF_DAMAGED),
        (93, ">B", 0x80, "a topic length from 0 to 8", "-128"),
        (93, ">B", 9, "a topic length from 0 to 8", "9"),
        (95, ">h", 6, "a properties length of 7, for a size of 104", "6"),
        (95, ">h", -7, "a properties length of 7, for a size of 104", "-7"),
    ],
)
def test_every_kind_of_bad_bytes_is_reported(offset, layout, value, expected, found):
    damaged = bytearray(GOLDEN)
    struct.pack_into(layout, damaged, offset, value)

    fault = find_fault(memoryview(damaged), 0, len(damaged), physical_offset=1000)

    assert fault is not None
    assert fault[1:] == (expected, found)
    assert 0 <= fault.position < len(damaged)


@given(st.binary(max_size=200), st.integers(-5, 210), st.integers(0, 1))
def test_no_bytes_at_all_are_read_beyond_their_end(data, position, version):
    head = struct.pack(">ii", len(data) - position, (MAGIC_V1, MAGIC_V2)[version])
    data = (data[: max(position, 0)] + head + data[position + 8 :])[: len(data)]

    fault = find_fault(memoryview(data), position, len(data), physical_offset=None)

    assert fault is None or fault.expected


@pytest.mark.parametrize("end", [0, 8, RECORD_SIZE_MIN - 1, RECORD_SIZE_MIN, 103])
def test_a_truncated_record_is_no_record(end):
    with pytest.raises(BadRecord) as cut:
        decode(memoryview(GOLDEN)[:end], 0)
    with pytest.raises(BadRecord):
        decode(memoryview(GOLDEN), 0, end)

    error = cut.value.in_file("some/file")
    assert isinstance(error, CorruptData)
    assert (error.path, error.position) == ("some/file", 0)


def test_the_checksum_of_an_empty_body_is_ignored():
    empty = bytearray(
        encode_record(Message("T", b""), physical_offset=0, queue_offset=0, store_timestamp=0, store_host=STORE_HOST)
    )
    empty[8:12] = b"\x12\x34\x56\x78"

    assert decode(memoryview(empty), 0).check(physical_offset=0) is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"topic": ""}, "topic"),
        ({"topic": "../etc"}, "topic"),
        ({"topic": "a b"}, "topic"),
        ({"topic": "ordérs"}, "topic"),
        ({"topic": "orders\n"}, "topic"),
        ({"topic": "t" * 128}, "topic"),
        ({"topic": "%RETRY%" + "t" * 249}, "topic"),
        ({"body": bytes(MAX_MESSAGE_SIZE + 1)}, "body"),
        ({"queue_id": -1}, "queue id"),
        ({"queue_id": 1 << 31}, "queue id"),
        ({"flag": 1 << 31}, "flag"),
        ({"sys_flag": -(1 << 31) - 1}, "sys flag"),
        ({"born_timestamp": 1 << 63}, "born timestamp"),
        ({"reconsume_times": 1 << 31}, "reconsume times"),
        ({"prepared_transaction_offset": 1 << 63}, "prepared transaction offset"),
        ({"born_host": Host(b"\x7f\x00\x01", 1)}, "born host"),
        ({"born_host": Host(b"\x7f\x00\x00\x01", 65536)}, "born host"),
        ({"born_host": Host(b"\x7f\x00\x00\x01", -1)}, "born host"),
        ({"properties": {"a": "\x01"}}, "properties"),
        ({"properties": {"a": "b" * 32_768}}, "properties size"),
    ],
)
def test_a_batch_with_a_message_that_cannot_be_stored_is_refused_whole(change, field):
    encoder = RecordEncoder(STORE_HOST)
    for _ in range(2):  # a refusal has no later effect
        with pytest.raises(IllegalMessage) as refused:
            encoder.prepare([GOLDEN_MESSAGE, GOLDEN_MESSAGE._replace(**change)])
        assert refused.value.field == field


@pytest.mark.parametrize(
    ("topic", "magic"),
    [
        ("t" * 127, MAGIC_V1),
        ("%RETRY%" + "g" * 120, MAGIC_V1),
        ("%RETRY%" + "g" * 121, MAGIC_V2),
        ("%DLQ%" + "g" * 250, MAGIC_V2),
    ],
)
def test_the_longest_topics_are_stored_in_the_version_that_can_hold_their_length(topic, magic, encoded):
    record = decode(memoryview(encoded([Message(topic, b"x")])), 0)

    assert (record.topic, record.magic) == (topic, magic)


def test_a_topic_of_few_characters_and_many_bytes_stays_readable(encoded):
    # RocketMQ would choose V1 by the characters, and write a length byte that reads as a negative number.
    record = decode(memoryview(encoded([Message("é" * 100, b"x")], check_topic=any_topic)), 0)

    assert (record.topic, record.magic) == ("é" * 100, MAGIC_V2)


def test_a_topic_that_no_record_can_hold_is_refused():
    encoder = RecordEncoder(STORE_HOST, check_topic=any_topic)
    for topic in ("t" * 32_768, "\ud800"):
        with pytest.raises(IllegalMessage, match="topic: expected"):
            encoder.prepare([Message(topic, b"")])


def test_the_largest_body_is_taken_and_the_limit_can_be_set(encoded):
    assert len(encoded([Message("T", bytes(MAX_MESSAGE_SIZE))])) == MAX_MESSAGE_SIZE + 92
    with pytest.raises(IllegalMessage, match="at most 10 bytes, found 11"):
        encoded([Message("T", bytes(11))], max_message_size=10)


def test_a_property_crc_needs_its_space(encoded):
    value = "b" * (32_767 - 20 - 3)
    encoded([Message("T", b"", properties={"a": value})], has_property_crc=True)

    with pytest.raises(IllegalMessage, match="because a property CRC is added"):
        encoded([Message("T", b"", properties={"a": value + "b"})], has_property_crc=True)


@pytest.mark.parametrize("raw", [b"", b"a\x01b", b"a\x01b\x02"])
def test_a_property_crc_follows_a_separator_whatever_the_client_sent(raw, encoded):
    record = decode(memoryview(encoded([Message("T", b"x", properties=RawProperties(raw))], has_property_crc=True)), 0)

    assert record.properties_raw[:-20] == (b"a\x01b\x02" if raw else b"")
    assert record.properties.get("a") == ("b" if raw else None)
    assert find_property_crc(record.properties_raw) == checksum(record.view[: record.size - 20])


def test_an_encoder_forgets_names_when_there_are_too_many():
    encoder = RecordEncoder(STORE_HOST)
    messages = [Message(f"t{number}", b"", born_host=Host(b"\x7f\0\0\1", number)) for number in range(5000)]

    assert len(encoder.prepare(messages)) == 5000
    assert len(encoder._topics) <= 4096
    assert len(encoder._born_hosts) <= 4096
