"""What producers of the remoting protocol send: headers, batches, properties, and where consumers' messages go."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.protocol.topic_config import GroupConfig
from cluster.remoting.command import Rejected, RemotingCode
from cluster.remoting.fields import int_of
from cluster.remoting.producers.batches import decode_batch
from cluster.remoting.producers.headers import send_header
from cluster.remoting.producers.retried import is_dead, retried_properties
from cluster.remoting.producers.stored_properties import PropertyRule
from commitlog.record.properties import decode_properties, encode_properties

# Captured from a 4.9.8 producer.
CAPTURED = {
    "a": "PG",
    "b": "TAutov49",
    "c": "TBW102",
    "d": "4",
    "e": "1",
    "f": "0",
    "g": "1795358939437",
    "h": "0",
    "i": "KEYS\x01k1 k2\x02UNIQ_KEY\x017F0000012D4E4E0E2F2A6F53712C0000\x02WAIT\x01true\x02TAGS\x01tagA",
    "j": "0",
    "k": "false",
    "m": "false",
    "n": "b0",
}
LONG = {
    "producerGroup": "PG",
    "topic": "T",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "3",
    "sysFlag": "769",
    "bornTimestamp": "1",
    "flag": "-5",
    "properties": "A\x01b\x02",
    "maxReconsumeTimes": "16",
    "batch": "true",
}


def encoded(flag, body, properties):
    return (
        struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, flag, len(body))
        + body
        + (struct.pack(">h", len(properties)) + properties)
    )


def test_the_captured_header_of_a_producer_is_read():
    header = send_header(CAPTURED, is_short=True)
    assert (header.topic, header.default_topic, header.default_queues, header.queue_id) == ("TAutov49", "TBW102", 4, 1)
    assert (header.born_ms, header.sys_flag, header.is_batch, header.max_reconsume_times) == (
        1795358939437,
        0,
        False,
        None,
    )
    assert decode_properties(header.properties)["KEYS"] == "k1 k2"


def test_a_header_of_version_1_has_long_names():
    header = send_header(LONG, is_short=False)
    assert (header.queue_id, header.sys_flag, header.flag, header.max_reconsume_times) == (3, 769, -5, 16)
    assert header.is_batch


@pytest.mark.parametrize(
    ("name", "value"),
    [("a", ""), ("b", ""), ("b", "x" * 256), ("e", "one"), ("e", "99999999999999999999"), ("f", ""), ("g", "-1")],
)
def test_a_hostile_header_is_refused(name, value):
    with pytest.raises(Rejected) as refused:
        send_header({**CAPTURED, name: value}, is_short=True)
    assert refused.value.code == RemotingCode.INVALID_PARAMETER


def test_properties_that_are_no_text_are_refused():
    with pytest.raises(Rejected, match="UTF-8"):
        send_header({**CAPTURED, "i": "A\x01\ud800"}, is_short=True)


def test_the_captured_batch_is_read():
    body = bytes.fromhex("0000001c 00000000 00000000 00000000 00000006 626174636830 0000".replace(" ", ""))
    assert decode_batch(body) == [(0, b"batch0", b"")]


@given(
    st.lists(
        st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=9), st.binary(max_size=9)), min_size=1
    )
)
def test_each_batch_is_read_as_it_was_written(messages):
    assert decode_batch(b"".join(encoded(*each) for each in messages)) == messages


@given(st.integers(0, 47), st.integers(0, 255))
def test_a_batch_with_damaged_sizes_is_refused_or_read_within_its_bytes(position, value):
    body = bytearray(encoded(1, b"a", b"") + encoded(2, b"b", b"cd"))
    body[position % len(body)] = value
    try:
        found = decode_batch(bytes(body))
    except Rejected:
        return
    assert sum(22 + len(each.body) + len(each.properties) for each in found) == len(body)


@pytest.mark.parametrize("body", [b"", b"\0", encoded(0, b"a", b"")[:-1], bytes(22), b"\x7f" * 22, b"\xff" * 44])
def test_a_batch_that_is_cut_or_rubbish_is_refused(body):
    with pytest.raises(Rejected, match="batch"):
        decode_batch(body)


def test_stored_properties_have_the_region_the_cluster_and_the_key_of_the_client():
    stored = PropertyRule("C1", lambda: "made").stored(b"UNIQ_KEY\x01k\x02WAIT\x01true")
    expected = {"UNIQ_KEY": "k", "WAIT": "true", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "C1"}
    assert (stored.unique_key, decode_properties(stored.raw)) == ("k", expected)


def test_a_message_without_a_key_gets_one():
    stored = PropertyRule("C1", lambda: "made").stored(b"")
    assert (stored.unique_key, decode_properties(stored.raw)["UNIQ_KEY"]) == ("made", "made")


def test_properties_of_the_record_of_an_earlier_message_are_removed():
    given = {"REAL_TOPIC": "x", "REAL_QID": "1", "POP_CK": "c", "TIMER_OUT_MS": "1", "TIMER_DELAY_SEC": "5", "A": "b"}
    found = decode_properties(PropertyRule("C1", lambda: "made").stored(encode_properties(given)).raw)
    assert found.keys() - {"MSG_REGION", "TRACE_ON", "CLUSTER", "UNIQ_KEY"} == {"TIMER_DELAY_SEC", "A"}


@pytest.mark.parametrize(
    ("times", "maximum", "level", "expected"),
    [
        (17, 16, 19, True),  # the last of a concurrent consumer
        (16, 16, 18, False),  # a concurrent consumer: 3 + 15
        (16, 16, 19, True),  # a consumer in order: 3 + 16
        (0, 0, 3, True),
        (1, 16, 3, False),
        (5, -1, 7, False),  # no maximum
        (17, None, 19, True),  # that of the group
    ],
)
def test_a_returned_message_is_dead_after_its_last_redelivery(times, maximum, level, expected):
    properties = encode_properties({"DELAY": str(level)})
    assert is_dead(GroupConfig("G"), times, maximum, properties) is expected


def test_a_group_without_retry_queues_has_only_dead_letters():
    assert is_dead(GroupConfig("G", retry_queues=0), 1, 16, b"")


def test_a_dead_letter_has_no_delay_and_names_its_origin():
    given = {"DELAY": "3", "RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "id", "TIMER_DELAY_SEC": "1", "A": "b"}
    dead = decode_properties(retried_properties(encode_properties(given), is_dead_letter=True))
    kept = {"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "id", "A": "b"}
    assert dead == {**kept, "DLQ_ORIGIN_TOPIC": "T", "DLQ_ORIGIN_MESSAGE_ID": "id"}
    retried = decode_properties(retried_properties(encode_properties(given), is_dead_letter=False))
    assert retried == {**kept, "DELAY": "3"}


def test_a_batch_of_many_empty_messages_is_refused():
    with pytest.raises(Rejected, match="at most 16384 messages"):
        decode_batch(encoded(0, b"", b"") * 16_385)
    assert len(decode_batch(encoded(0, b"", b"") * 16_384)) == 16_384


@pytest.mark.parametrize("text", ["1_0", " 1", "1 ", "\u0661", "+", "", "0x1", "1" * 21])
def test_a_number_is_what_java_reads(text):
    with pytest.raises(Rejected):
        int_of({"n": text}, "n", 0, 1 << 62)
    assert int_of({"n": "+7"}, "n", 0, 9) == 7
