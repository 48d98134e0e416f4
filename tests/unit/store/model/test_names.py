"""Names of topics and groups, message ids and the bits of sys_flag: accepted and refused values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import IllegalMessage
from store.model import sys_flag, topics
from store.model.message import Host
from store.model.message_id import decode_message_id, encode_message_id

HOSTS = st.builds(
    Host, st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)), st.integers(0, 65535)
)


@pytest.mark.parametrize("topic", ["a", "%RETRY%order-group_1", "A|b", "t" * 127, "%DLQ%" + "g" * 250, "TBW102"])
def test_names_of_topics_that_are_taken(topic):
    topics.check_topic(topic)
    assert topics.is_storable_topic(topic)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("", "a name"),
        ("t" * 128, "at most 127 characters"),
        ("%RETRY%" + "g" * 249, "at most 255 characters"),
        ("a/b", "letters, digits and % | _ -"),
        ("..", "letters, digits and % | _ -"),
        ("a\n", "letters, digits and % | _ -"),
        ("a\0", "letters, digits and % | _ -"),
        ("é", "letters, digits and % | _ -"),
        ("\u0661", "letters, digits and % | _ -"),
    ],
)
def test_names_of_topics_that_are_refused(topic, expected):
    with pytest.raises(IllegalMessage) as refused:
        topics.check_topic(topic)

    assert (refused.value.field, refused.value.expected) == ("topic", expected)
    assert topics.is_storable_topic(topic) == (topic == "t" * 128)


def test_stored_messages_may_have_longer_topics_than_those_that_are_put():
    topics.check_stored_topic("t" * 255)
    for topic in ("t" * 256, "", "a/b", topics.DLEDGER_TOPIC):
        with pytest.raises(IllegalMessage):
            topics.check_stored_topic(topic)


def test_groups_are_shorter_so_that_their_topics_are_not_too_long():
    topics.check_group("g" * 120)
    topics.check_topic(topics.RETRY_PREFIX + "g" * 120)
    for group in ("g" * 121, "", "a b"):
        with pytest.raises(IllegalMessage, match="group: expected"):
            topics.check_group(group)


def test_topics_with_a_meaning_of_their_own():
    assert topics.is_system_topic("SCHEDULE_TOPIC_XXXX")
    assert topics.is_system_topic("rmq_sys_wheel_timer")
    assert not topics.is_system_topic("orders")
    assert [topics.is_retry_topic(name) for name in ("%RETRY%g", "%DLQ%g", "orders")] == [True, True, False]


def test_delay_levels_are_those_of_rocketmq():
    # messageDelayLevel=1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h
    seconds = [1, 5, 10, 30, *(60 * m for m in range(1, 11)), 1200, 1800, 3600, 7200]

    assert [topics.delivery_time(0, level) // 1000 for level in range(1, 19)] == seconds
    assert topics.delivery_time(5, 1000) == 5 + 7_200_000


@given(HOSTS, st.integers(0, (1 << 63) - 1))
def test_a_message_id_decodes_to_host_and_offset(host, offset):
    text = encode_message_id(host, offset)

    assert decode_message_id(text) == (host, offset)
    assert decode_message_id(text.lower()) == (host, offset)
    assert len(text) in (32, 56)
    assert text == text.upper()


def test_a_message_id_of_the_format():
    assert encode_message_id(Host(b"\x7f\0\0\1", 10911), 1000) == "7F00000100002A9F00000000000003E8"


@pytest.mark.parametrize(
    "text",
    ["", "7F", "7F00000100002A9F00000000000003EX", " " * 32, "7F 0000100002A9F00000000000003E8", "0" * 40, "F" * 32],
)
def test_an_invalid_message_id_is_refused(text):
    with pytest.raises(IllegalMessage, match="message id: expected"):
        decode_message_id(text)


@pytest.mark.parametrize(
    ("bits", "has_queue_offset"),
    [(0x0, True), (0x4, False), (0x8, True), (0xC, False)],
)
@pytest.mark.parametrize("others", [0, 0x331])
def test_what_a_transaction_type_means(bits, has_queue_offset, others):
    assert sys_flag.transaction_type(bits | others) == bits
    assert sys_flag.has_queue_offset(bits | others) == has_queue_offset
