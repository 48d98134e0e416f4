"""The native functions for puts give what their references in Python give: on valid and hostile input.

Hypothesis prints the smallest input of which this is not true.
"""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commitlog.record.effects import properties_with_effect
from commitlog.record.encoder import RecordEncoder
from commitlog.record.properties import RawProperties
from commitlog.record.unique_keys import find_keys, find_keys_in_python
from store.model.message import Host, Message
from store.model.message_columns import MessageColumns
from store.model.sys_flag import CARRIES_EFFECT
from tests.support.forms import NATIVE, assert_same, needs_native

pytestmark = needs_native

IPV4, IPV6 = Host(b"\x7f\0\0\1", 10911), Host(bytes(15) + b"\1", 65535)
KEY = b"UNIQ_KEY\x010A000001\x02"
INT32, INT64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
# The separators and marks of properties are frequent.
TEXT_PARTS = st.sampled_from(
    (b"UNIQ_KEY", b"\x01", b"\x02", b"UNIQ_KEY\x01", KEY, b"__CRC32#\x01", b"__CRC32#", b"a", b"\xc3\xa4", b"\xff")
)
PROPERTIES = st.lists(TEXT_PARTS, max_size=6).map(b"".join)
EDGES = (-(1 << 63) - 1, -(1 << 31) - 1, -1, 1 << 31, 1 << 32, 1 << 63, 1.0, None)
# One of the seven lists of numbers, and a value that does not belong there.
HOSTILE = st.none() | st.tuples(st.integers(0, 5), st.sampled_from(EDGES))


class OtherBytes(bytes):
    """Bytes of another type, which C leaves to Python."""


def encode(encoder, messages, queue_offsets, timestamp, *, may_carry_effects=False):
    records, sizes = encoder.encode_each(messages, queue_offsets, timestamp, may_carry_effects=may_carry_effects)
    return [bytes(record) for record in records], sizes


@given(data=st.data(), count=st.integers(1, 5), hosts=st.tuples(*[st.sampled_from((IPV4, IPV6))] * 2))
def test_records_are_encoded_alike(data, count, hosts):
    def numbers(kind):
        return data.draw(kind | st.lists(kind, min_size=count, max_size=count))

    bodies = data.draw(st.lists(st.binary(max_size=30), min_size=count, max_size=count))
    kind_of_bytes = data.draw(st.sampled_from((bytes, bytes, bytes, OtherBytes)))
    properties = data.draw(st.lists(PROPERTIES, min_size=count, max_size=count))
    fields = [numbers(st.integers(0, (1 << 31) - 1)), *(numbers(kind) for kind in (INT32, INT32, INT64, INT32))]
    queue_offsets = data.draw(st.lists(INT64, min_size=count, max_size=count))
    hostile = data.draw(HOSTILE)
    if hostile is not None and hostile[0] < len(fields):
        values = fields[hostile[0]]
        fields[hostile[0]] = hostile[1] if isinstance(values, int) else [*values[1:], hostile[1]]
    topic = data.draw(st.sampled_from(("T", "t" * 127, "t" * 128, "%RETRY%" + "g" * 248)))
    names = ("queue_ids", "flags", "sys_flags", "born_timestamps", "reconsume_times")
    if any(value is None or isinstance(value, float) for value in fields):
        return
    columns = MessageColumns(
        topic,
        list(map(kind_of_bytes, bodies)),
        properties,
        RawProperties,
        **dict(zip(names, map(whole, fields), strict=True)),
        born_host=hosts[0],
        unique_keys=[b""] * count,
        key_hashes=[0] * count,
    )
    encoder = RecordEncoder(hosts[1], max_message_size=data.draw(st.sampled_from((1 << 20, 20))))

    assert_same(encode, encoder, columns, queue_offsets, data.draw(INT64))


MESSAGES = st.builds(
    Message,
    topic=st.sampled_from(("T", "t" * 128, "RMQ_SYS_TRANS_OP_HALF_TOPIC")),
    body=st.binary(max_size=30),
    queue_id=st.integers(-1, (1 << 31) - 1),
    properties=PROPERTIES.map(RawProperties) | st.just({"TAGS": "A"}) | st.just({"TAGS": "\x01"}),
    flag=INT32,
    sys_flag=INT32,
    born_timestamp=INT64 | st.just(1 << 63),
    born_host=st.sampled_from((IPV4, IPV6, Host(b"\x7f\0\0\2", 1), Host(b"\x7f", 1))),
    reconsume_times=INT32,
    prepared_transaction_offset=INT64,
)


@given(messages=st.lists(MESSAGES, min_size=1, max_size=9), may_carry_effects=st.booleans(), timestamp=INT64)
def test_messages_of_several_topics_and_clients_are_encoded_alike(messages, may_carry_effects, timestamp):
    encoder = RecordEncoder(IPV4, max_message_size=20)

    def encode_all(each_encoder, *values):
        return encode(each_encoder, *values, may_carry_effects=may_carry_effects)

    assert_same(encode_all, encoder, messages, range(len(messages)), timestamp)


def test_c_itself_encodes_the_messages_of_the_broker():
    raw = properties_with_effect(KEY, "e:7:c")
    own = [Message("T", bytes([row]), row, raw, 0, CARRIES_EFFECT | 8, row, IPV4, 0, 1 << 40) for row in range(5)]
    own.append(Message("RMQ_SYS_TRANS_OP_HALF_TOPIC", b"7,", 0, raw, sys_flag=CARRIES_EFFECT))
    encoder = RecordEncoder(IPV4)

    found = encoder._encode_groups(own, (range(6), 1_700_000_000_001), may_carry_effects=True)

    prepared = encoder.prepare(own, may_carry_effects=True)
    assert found == (prepared.encode_each(range(6), 1_700_000_000_001), prepared.sizes)


def whole(values):
    """Replace what no column contains."""
    return values if isinstance(values, int) else [value if isinstance(value, int) else -1 for value in values]


@pytest.mark.parametrize("hosts", [(IPV4, IPV4), (IPV6, IPV4), (IPV4, IPV6), (IPV6, IPV6)])
@pytest.mark.parametrize("topic", ["T", "t" * 127, "%RETRY%" + "g" * 120])
def test_c_itself_encodes_what_clients_send(hosts, topic):
    bodies, properties = [b"one", b"", bytes(4096)], [KEY, b"TAGS\x01A\x02" + KEY, KEY + b"a" * 32000]
    unique_keys, key_hashes = find_keys(topic, properties)
    columns = MessageColumns(
        topic,
        bodies,
        properties,
        RawProperties,
        queue_ids=[0, 7, (1 << 31) - 1],
        flags=-1,
        sys_flags=[0, 0x330, -1],
        born_timestamps=1_700_000_000_000,
        reconsume_times=[0, 16, 0],
        born_host=hosts[0],
        unique_keys=unique_keys,
        key_hashes=key_hashes,
    )
    encoder = RecordEncoder(hosts[1])

    found = encoder._encode_columns(columns, (range(3), 1_700_000_000_001), may_carry_effects=False)

    prepared = encoder.prepare(list(columns))
    assert found == (prepared.encode_each(range(3), 1_700_000_000_001), prepared.sizes)


@pytest.mark.parametrize(
    "arguments",
    [
        {"bodies": [b"a", b"b"]},
        {"properties": []},
        {"numbers": (0,) * 7},
        {"numbers": [0] * 8},
        {"numbers": ([], 0, 0, 0, 0, 0, 0, 0)},
        {"numbers": (0, 0, 0, 0, 0, 0, 0, 1 << 32)},
        {"magic": 1 << 31},
        {"topic": bytearray(2)},
        {"born_host": bytes(9)},
        {"store_host": b""},
        {"store_timestamp": 1 << 63},
        {"body_size_max": 0},
        {"may_carry_effects": 2},
        {"properties": [bytes(32768)]},
    ],
)
def test_c_leaves_other_arguments_to_python(arguments):
    good = {
        "bodies": [b"a"],
        "properties": [b""],
        "numbers": (0,) * 8,
        "magic": 1,
        "topic": b"\1T",
        "born_host": bytes(8),
        "store_host": bytes(8),
        "store_timestamp": 1,
        "body_size_max": 1,
        "may_carry_effects": 0,
    }
    assert NATIVE.encode_records(*good.values()) is not None

    assert NATIVE.encode_records(*{**good, **arguments}.values()) is None


@given(topic=st.sampled_from(("T", "t" * 127, "ä")), properties=st.lists(PROPERTIES, max_size=20))
@example("T", [KEY, KEY + KEY, b"a" + KEY, b"\x02" + KEY, b"UNIQ_KEY\x01", KEY[:-1], b"", b"UNIQ_KEY"])
@example("T", [f"UNIQ_KEY\x01{number:032X}\x02".encode() for number in range(40)])
def test_keys_are_found_alike(topic, properties):
    expected = assert_same(lambda: tuple(map(list, find_keys(topic, properties))))

    assert expected == tuple(find_keys_in_python(topic, properties))


def test_c_itself_finds_the_keys_that_clients_make():
    properties = [KEY, b"TAGS\x01A\x02" + KEY, b"", b"TAGS\x01A\x02", b"KEYS\x01\xc3\xa4\x02" + KEY]

    found = NATIVE.find_keys(properties, b"UNIQ_KEY\x01", b"T\x02", 84 * 31 + 35)

    assert found == find_keys_in_python("T", properties)
    assert found[0] == [b"T\x020A000001"] * 2 + [b"", b""] + [b"T\x020A000001"]
