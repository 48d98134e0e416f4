"""The copy of a delayed message, against a plain form: all properties decoded, changed and encoded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.delivery.copies import Obstacle, delayed_copies
from cluster.protocol.topic_config import TopicConfig
from cluster.state.effects import DelayDelivered, TimerDone, decode_effect, delayed_head, encode_effect, timer_head
from commitlog.record.copied_records import WaitingQueue, copied
from commitlog.record.effects import EFFECT_NAME, effect_property
from commitlog.record.encoder import RecordEncoder
from commitlog.record.properties import RawProperties, decode_properties
from commitlog.record.record_runs import split_records
from store.model.message import LOOPBACK, Host, Message
from store.model.sys_flag import CARRIES_EFFECT
from store.model.topics import HALF_TOPIC, REAL_QUEUE_ID, REAL_TOPIC, SCHEDULE_TOPIC

TOPICS = {"orders": TopicConfig("orders", 4, 8), "bills": TopicConfig("bills", 1, 1)}
EFFECTS = st.builds(DelayDelivered, st.integers(1, 18), st.integers(0, (1 << 63) - 1)) | st.builds(
    TimerDone, st.integers(0, (1 << 63) - 1)
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=9)
NAMES = TEXTS | st.sampled_from(["DELAY", "TAGS", EFFECT_NAME, f"x{EFFECT_NAME}"])
QUEUES = st.integers(0, 1 << 40).map(str) | st.sampled_from(["", "x", "-1", "+1", " 1", "1_0", "²", "\u0663", "007"])
REAL = st.sampled_from([*TOPICS, "unknown", HALF_TOPIC, SCHEDULE_TOPIC, "rmq_sys_x", ""])
INT32, INT64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
HOSTS = st.sampled_from([LOOPBACK, Host(b"\x0a\x00\x00\x02", 65_535), Host(bytes(range(16)), 7)])


def record_of(message, unit=0):
    """Return the record of a message in the queue where it waits."""
    records, _ = RecordEncoder(LOOPBACK).encode_each([message], [unit], 5)
    (record,) = split_records(memoryview(records[0]))
    return record


def delayed_copy(record, effect, topics):
    """Return the copy of the one record that waits."""
    head = delayed_head(effect.level) if isinstance(effect, DelayDelivered) else timer_head(effect.end)
    queue = WaitingQueue(SCHEDULE_TOPIC.encode(), 2, effect_property(head))
    (copy,) = delayed_copies(copied([record], [effect.unit], queue), topics)
    return copy


def expected_copy(record, effect):
    """Return the copy by its plain form; its properties are decoded."""
    properties = decode_properties(record.properties_raw)
    name, queue = properties.get(REAL_TOPIC, ""), properties.get(REAL_QUEUE_ID, "")
    is_number = 0 < len(queue) <= 10 and set(queue) <= set("0123456789")
    if name in {"", HALF_TOPIC, SCHEDULE_TOPIC, "rmq_sys_x"} or not is_number:
        return Obstacle.NO_REAL_TOPIC
    if name not in TOPICS:
        return Obstacle.UNKNOWN_TOPIC
    properties.pop(EFFECT_NAME, None)
    queues = max(TOPICS[name].write_queues, TOPICS[name].read_queues)
    return record.message._replace(
        topic=name,
        queue_id=int(queue) % queues,
        properties=properties | {EFFECT_NAME: encode_effect(effect)},
        sys_flag=record.sys_flag | CARRIES_EFFECT,
    )


@given(st.dictionaries(NAMES, TEXTS, max_size=4), REAL, QUEUES, EFFECTS, st.binary(max_size=9), INT32, INT64, HOSTS)
def test_copy_is_that_of_decoded_properties(others, topic, queue, effect, body, number, long_number, host):
    real = {name: value for name, value in ((REAL_TOPIC, topic), (REAL_QUEUE_ID, queue)) if value}
    fields = (number, number & 0xFF, long_number, host, number, long_number)
    record = record_of(Message(SCHEDULE_TOPIC, body, 2, others | real, *fields), effect.unit)
    assert_same(delayed_copy(record, effect, TOPICS), expected_copy(record, effect))


@given(
    st.lists(st.sampled_from([b"\x01", b"\x02", b"\xff", b"REAL_TOPIC\x01orders", b"REAL_QID\x019", b"__EFFECT", b"a"]))
)
def test_damaged_properties_are_read_as_decoding_reads_them(parts):
    effect = DelayDelivered(3, 7)
    record = record_of(Message(SCHEDULE_TOPIC, b"body", 2, RawProperties(b"".join(parts))), effect.unit)
    assert_same(delayed_copy(record, effect, TOPICS), expected_copy(record, effect))


def assert_same(copy, expected):
    """Fail unless both are the same obstacle, or the same message with its effect at the end."""
    if isinstance(expected, Obstacle):
        assert copy is expected
        return
    assert copy._replace(properties=dict(copy.properties)) == expected
    raw = copy.properties.raw
    assert raw.endswith(f"{EFFECT_NAME}\x01{expected.properties[EFFECT_NAME]}\x02".encode())
    assert [part.startswith(f"{EFFECT_NAME}\x01".encode()) for part in raw.split(b"\x02")].count(True) == 1


@pytest.mark.usefixtures("both_forms")
@pytest.mark.parametrize("odd", [1, 2, 5])
def test_records_are_copied_up_to_one_that_is_not_at_its_unit(odd):
    """A unit of a queue has no checksum: the record that it names must say that it belongs there."""
    real = {REAL_TOPIC: "orders", REAL_QUEUE_ID: "1"}
    messages = [Message(SCHEDULE_TOPIC, b"%d" % number, 2, real) for number in range(6)]
    encoded, _ = RecordEncoder(LOOPBACK).encode_each(messages, [0, 1, 2, 3, 4, 5], 5)
    records = split_records(memoryview(b"".join(encoded)))
    queue = WaitingQueue(SCHEDULE_TOPIC.encode(), 2, effect_property(delayed_head(3)))
    units = [*range(odd), odd + 7, *range(odd + 1, 6)]

    assert [each[1] for each in copied(records, units, queue)] == [b"%d" % number for number in range(odd)]
    assert copied(records, range(6), queue._replace(queue_id=3)) == []
    assert copied(records, range(6), queue._replace(topic=b"SCHEDULE_TOPIC_XXXY")) == []


@pytest.mark.usefixtures("both_forms")
def test_of_a_repeated_property_the_last_value_counts():
    raw = b"REAL_TOPIC\x01bills\x02REAL_QID\x010\x02REAL_TOPIC\x01orders\x02REAL_QID\x017\x02REAL_TOPIC\x01\x02"
    record = record_of(Message(SCHEDULE_TOPIC, b"", 2, RawProperties(raw)))
    copy = delayed_copy(record, TimerDone(0), TOPICS)
    assert (copy.topic, copy.queue_id) == ("orders", 7)


def test_copies_follow_the_queues_that_a_topic_has_at_the_time():
    record = record_of(Message(SCHEDULE_TOPIC, b"", 2, {REAL_TOPIC: "orders", REAL_QUEUE_ID: "9"}), 1)
    for count, queue_id in ((4, 1), (16, 9), (1, 0)):
        copy = delayed_copy(record, TimerDone(1), {"orders": TopicConfig("orders", count, count)})
        assert copy.queue_id == queue_id
    assert delayed_copy(record, TimerDone(1), {}) is Obstacle.UNKNOWN_TOPIC


@pytest.mark.parametrize(("effect", "text"), [(DelayDelivered(18, 0), "d:18:0"), (TimerDone(7), "t:7")])
def test_effects_of_deliveries_have_the_text_that_is_read(effect, text):
    assert encode_effect(effect) == text
    assert decode_effect(text) == effect


def test_copy_has_one_effect():
    """As a waiting record has one of its own, which has taken effect already."""
    own = {REAL_TOPIC: "orders", REAL_QUEUE_ID: "1", EFFECT_NAME: "r:6"}
    record = record_of(Message(SCHEDULE_TOPIC, b"", 2, own), 7)
    copy = delayed_copy(record, TimerDone(7), TOPICS)
    assert copy.properties.raw == f"{REAL_TOPIC}\x01orders\x02{REAL_QUEUE_ID}\x011\x02{EFFECT_NAME}\x01t:7\x02".encode()
