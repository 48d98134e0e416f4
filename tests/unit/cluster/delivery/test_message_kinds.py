"""The kind of a message, and which kinds a topic takes."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.delivery import message_kinds
from cluster.delivery.message_kinds import check_kinds, kind_of
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import TopicConfig
from cluster.protocol.topic_types import MESSAGE_TYPE, TopicType
from commitlog.record.properties import encode_properties
from store.errors import Certainty

KINDS = (TopicType.TRANSACTION, TopicType.DELAY, TopicType.FIFO, TopicType.NORMAL)
# In the order of their precedence.
MARKS = (("TRAN_MSG", "true"), ("DELAY", "3"), ("__SHARDINGKEY", "k"))


def topic(message_type):
    return TopicConfig("T", attributes=((MESSAGE_TYPE, message_type),) if message_type else ())


def is_accepted(message_type, properties, sys_flags=()):
    failure = None
    try:
        check_kinds(topic(message_type), properties, sys_flags)
    except RequestFailed as error:
        failure = error
    if failure is None:
        return True
    assert (failure.reason, failure.certainty) == (Reason.MESSAGE_TYPE_CONFLICT, Certainty.NOT_APPENDED)
    assert all(text in failure.message for text in ("'T'", message_type, "--type MIXED"))
    return False


@pytest.mark.parametrize(
    ("properties", "sys_flag", "kind"),
    [
        ({}, 0, "NORMAL"),
        ({"KEYS": "DELAY TIMER_ TRAN_MSG __SHARDINGKEY"}, 0, "NORMAL"),
        ({"DELAY": "0"}, 0, "NORMAL"),
        ({"DELAY": "soon"}, 0, "NORMAL"),
        ({"TRAN_MSG": "false"}, 0, "NORMAL"),
        ({"__SHARDINGKEY": "k"}, 0, "FIFO"),
        ({"DELAY": "1"}, 0, "DELAY"),
        ({"TIMER_DELIVER_MS": "1"}, 0, "DELAY"),
        ({"TIMER_DELAY_SEC": "1"}, 0, "DELAY"),
        ({"DELAY": "1", "REAL_TOPIC": "T"}, 0, "DELAY"),
        ({"TRAN_MSG": "True"}, 0, "TRANSACTION"),
        ({}, 0x4, "TRANSACTION"),
        ({}, 0x1, "NORMAL"),
    ],
)
def test_kind_is_that_of_the_properties(properties, sys_flag, kind):
    assert kind_of(encode_properties(properties), sys_flag) == kind


def test_first_kind_that_matches_counts():
    for count in range(len(MARKS) + 1):
        for marks in combinations(range(len(MARKS)), count):
            raw = encode_properties(dict(MARKS[each] for each in reversed(marks)))
            assert kind_of(raw, 0) is KINDS[min(marks, default=3)]


@given(
    st.sampled_from(["", *TopicType, "LITE", "normal"]),
    st.lists(st.tuples(st.sets(st.sampled_from(MARKS)), st.booleans()), min_size=1, max_size=5),
)
def test_topic_takes_a_put_whose_messages_all_have_its_kind(message_type, messages):
    properties = [encode_properties({"KEYS": "k"} | dict(marks)) for marks, _ in messages]
    sys_flags = [0x4 * is_prepared for _, is_prepared in messages]
    kinds = {kind_of(*each) for each in zip(properties, sys_flags, strict=True)}

    takes_all = message_type not in [*KINDS]
    assert is_accepted(message_type, properties, sys_flags) is (takes_all or kinds == {message_type})


@pytest.mark.parametrize("message_type", KINDS)
def test_messages_without_properties_are_normal(message_type):
    assert is_accepted(message_type, []) is (message_type == "NORMAL")


def test_one_flag_counts_for_all_messages():
    assert is_accepted("TRANSACTION", [b"", b""], [0x4])
    assert not is_accepted("NORMAL", [b"", b""], [0x4])


def test_put_of_normal_messages_decodes_no_properties(monkeypatch):
    monkeypatch.setattr(message_kinds, "decode_properties", None)
    for message_type in ("NORMAL", "MIXED", "UNSPECIFIED", ""):
        assert is_accepted(message_type, [b"KEYS\x01k\x02TAGS\x01t\x02", b""], [0, 1])
