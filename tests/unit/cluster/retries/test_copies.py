"""The copies of returned messages: what they keep, what they lose, and how large they may be."""

import pytest

from cluster.protocol.topic_config import GroupConfig
from cluster.retries.copies import key_of, returned_copy
from cluster.retries.rule import destination_of
from commitlog.record.encoder import RecordEncoder
from commitlog.record.properties import PROPERTIES_SIZE_MAX, RawProperties, decode_properties
from commitlog.record.record import MAGIC_V1, decode
from store.errors import IllegalMessage
from store.model.message import Host, Message
from store.model.sys_flag import CARRIES_EFFECT
from store.model.topics import SCHEDULE_TOPIC

HOST = Host(b"\x0a\x00\x00\x01", 10911)
GROUP = GroupConfig("g")


def record_of(message, physical_offset=4096):
    body = RecordEncoder(HOST).prepare([message], may_carry_effects=True).encode_each([7], 1_700_000_000_000)[0]
    return decode(memoryview(bytes(body)), 0)


def copy_of(record, group=GROUP, level=0, queues=1):
    destination = destination_of(group, record.reconsume_times, maximum=None, level=level)
    return returned_copy(record, key_of(group.name, record), destination, queues)


def test_copy_keeps_content_and_origin_and_waits_in_the_queue_of_its_level():
    born = Host(b"\x0a\x00\x00\x09", 4711)
    message = Message("orders", b"body", 3, {"TAGS": "a", "KEYS": "k1", "UNIQ_KEY": "u", "own": "x"}, -5, 1, 1234, born)
    record = record_of(message)
    found = copy_of(record, queues=4)

    assert (found.topic, found.queue_id, found.body) == (SCHEDULE_TOPIC, 2, b"body")
    assert (found.flag, found.born_timestamp, found.born_host, found.reconsume_times) == (-5, 1234, born, 1)
    assert found.sys_flag == 1 | CARRIES_EFFECT
    properties = decode_properties(found.properties.raw)
    assert properties.pop("REAL_QID") in "0123"
    assert properties.pop("__EFFECT") == f"b:{key_of('g', record).hex()}"
    assert properties == {
        "TAGS": "a",
        "KEYS": "k1",
        "UNIQ_KEY": "u",
        "own": "x",
        "DELAY": "3",
        "REAL_TOPIC": "%RETRY%g",
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": record.message_id,
    }


def test_dead_letter_has_its_origin_and_no_delay():
    record = record_of(Message("orders", b"x", 0, {"DELAY": "4", "REAL_TOPIC": "orders", "REAL_QID": "0"}))
    found = copy_of(record, level=-1)
    assert (found.topic, found.queue_id, found.reconsume_times) == ("%DLQ%g", 0, 1)
    assert dict(decode_properties(found.properties.raw)) == {
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": record.message_id,
        "DLQ_ORIGIN_TOPIC": "orders",
        "DLQ_ORIGIN_MESSAGE_ID": record.message_id,
        "__EFFECT": f"x:{key_of('g', record).hex()}",
    }


def test_properties_of_the_old_record_are_removed():
    old = {"TIMER_OUT_MS": "1", "TIMER_DELAY_SEC": "2", "TRAN_MSG": "true", "POP_CK": "0 1 2", "__EFFECT": "d:3:1"}
    old |= {"DELAY": "3", "REAL_TOPIC": "%RETRY%g", "REAL_QID": "0", "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "M"}
    record = record_of(Message("%RETRY%g", b"x", 0, old, sys_flag=0x8 | CARRIES_EFFECT, reconsume_times=3))
    found = copy_of(record)
    properties = decode_properties(found.properties.raw)
    assert (found.queue_id, found.reconsume_times, found.sys_flag) == (5, 4, CARRIES_EFFECT)
    assert properties["DELAY"] == "6"
    assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == ("orders", "M")
    assert not properties.keys() & {"TIMER_OUT_MS", "TIMER_DELAY_SEC", "TRAN_MSG", "POP_CK"}
    assert found.properties.raw.count(b"__EFFECT") == 1


def test_origin_that_a_producer_claims_is_replaced():
    """A dead letter is put to that topic again, with the rights of an operator."""
    record = record_of(Message("orders", b"x", 0, {"RETRY_TOPIC": "salaries", "ORIGIN_MESSAGE_ID": "M"}))
    properties = decode_properties(copy_of(record).properties.raw)
    assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == ("orders", record.message_id)


def test_key_is_that_of_group_and_record():
    record = record_of(Message("orders", b"x"))
    again = record_of(Message("orders", b"x"))
    assert key_of("g", record) == key_of("g", again)
    assert key_of("h", record) != key_of("g", record)
    assert key_of("g", record_of(Message("orders", b"x", reconsume_times=1))) != key_of("g", record)


@pytest.mark.parametrize("level", [0, -1])
def test_properties_at_the_limit_lose_the_trace_first_and_are_refused_then(level):
    def full(extra):
        raw = b"KEYS\x01%s\x02" % (b"k" * (PROPERTIES_SIZE_MAX - 6 - len(extra)))
        return record_of(Message("orders", b"x", 0, RawProperties(extra + raw)))

    with pytest.raises(IllegalMessage, match="properties size"):
        copy_of(full(b""), level=level)
    found = copy_of(full(b"TRACE_CONTEXT\x01%s\x02" % (b"t" * 500)), level=level)
    assert len(found.properties.raw) <= PROPERTIES_SIZE_MAX
    assert "TRACE_CONTEXT" not in decode_properties(found.properties.raw)
    kept = copy_of(record_of(Message("orders", b"x", 0, {"TRACE_CONTEXT": "t"})), level=level)
    assert decode_properties(kept.properties.raw)["TRACE_CONTEXT"] == "t"


def test_topics_of_a_group_with_the_longest_name_can_be_stored():
    group = GroupConfig("g" * 120)
    for level, length in ((0, 127), (-1, 125)):
        found = copy_of(record_of(Message("orders", b"x")), group, level)
        topic = found.topic if level else decode_properties(found.properties.raw)["REAL_TOPIC"]
        assert len(topic) == length
        record = record_of(found._replace(topic=topic))
        # A version 1 record, which every RocketMQ reads.
        assert (record.topic, record.magic) == (topic, MAGIC_V1)
