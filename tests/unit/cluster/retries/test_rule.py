"""Where returned messages go: the table, and the delays of retry policies."""

import pytest

from cluster.protocol.retry_policy import POLICY_ATTRIBUTE, parse_policy, policy_of, retry_level
from cluster.protocol.topic_config import GroupConfig
from cluster.retries.rule import destination_of
from store.errors import IllegalMessage
from store.model.topics import DELAY_LEVELS_MS

RETRY, DEAD = "%RETRY%g", "%DLQ%g"


@pytest.mark.parametrize(
    ("reconsume_times", "maximum", "requested", "topic", "level"),
    [
        # Without a request: level 3 + redeliveries, at most the last one.
        (0, None, 0, RETRY, 3),
        (1, None, 0, RETRY, 4),
        (14, None, 0, RETRY, 17),
        (15, None, 0, RETRY, 18),
        (16, None, 0, DEAD, 0),
        (17, None, 0, DEAD, 0),
        # A requested level, and one above the last.
        (0, None, 1, RETRY, 1),
        (15, None, 18, RETRY, 18),
        (0, None, 19, RETRY, 18),
        (16, None, 1, DEAD, 0),
        # Below 0: at once.
        (0, None, -1, DEAD, 0),
        (0, 100, -5, DEAD, 0),
        # The maximum of the request wins; below 0 there is none.
        (0, 0, 0, DEAD, 0),
        (2, 3, 0, RETRY, 5),
        (3, 3, 0, DEAD, 0),
        (16, 17, 0, RETRY, 18),
        (999, -1, 0, RETRY, 18),
    ],
)
def test_destination_is_that_of_the_table(reconsume_times, maximum, requested, topic, level):
    found = destination_of(GroupConfig("g"), reconsume_times, maximum=maximum, level=requested)
    assert found == (topic, 1, level)
    assert found.is_dead == (topic == DEAD)


def test_message_of_a_group_without_retry_queues_becomes_a_dead_letter():
    """RocketMQ drops it."""
    assert destination_of(GroupConfig("g", retry_queues=0), 0, maximum=None, level=3) == (DEAD, 1, 0)


def test_retry_topic_has_the_queues_of_the_group_and_its_maximum_counts():
    group = GroupConfig("g", retry_queues=4, retry_max_times=2)
    assert destination_of(group, 1, maximum=None, level=0) == (RETRY, 4, 4)
    assert destination_of(group, 2, maximum=None, level=0) == (DEAD, 1, 0)
    assert destination_of(GroupConfig("g", retry_max_times=-1), 500, maximum=None, level=0) == (RETRY, 1, 18)


def test_group_policy_is_rounded_up_to_a_delay_level():
    def levels(policy, count=6):
        group = GroupConfig("g", attributes=((POLICY_ATTRIBUTE, policy),))
        return [destination_of(group, times, maximum=-1, level=0).level for times in range(count)]

    assert levels("exponential:5000,7200000,2") == [2, 3, 4, 5, 6, 7]
    assert levels("customized:1,1,1000,1001,60000") == [1, 2, 5, 5, 5, 5]
    assert levels("customized:7000") == [3] * 6
    assert levels("exponential:0,0,1") == [1] * 6
    assert levels("exponential:1000,31536000000,1000", 3) == [1, 15, 18]
    assert levels("of a newer version") == [3, 4, 5, 6, 7, 8]


def test_no_delay_is_shorter_than_that_of_the_policy():
    for text in ("exponential:5000,7200000,2", "exponential:1234,600000,3", "customized:1,2,3333,44444,555555,6666666"):
        policy = parse_policy(text)
        for times in (*range(20), 1_000, 1 << 30):
            level, delay_ms = retry_level(policy, times), policy.delay_ms(times)
            assert DELAY_LEVELS_MS[level - 1] >= delay_ms
            assert level == 1 or DELAY_LEVELS_MS[level - 2] < delay_ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "exponential",
        "exponential:1,2",
        "exponential:1,2,3,4",
        "exponential:1,2,0",
        "exponential:1,2,1001",
        "customized:",
        "customized:1,,2",
        "customized:-1",
        "customized:٣",
        "customized:" + ",".join(["1"] * 65),
        "customized:" + "9" * 12,
        "customized:31536000001",
        "linear:1",
    ],
)
def test_text_that_is_no_policy_is_refused(text):
    with pytest.raises(IllegalMessage, match="retry"):
        parse_policy(text)
    assert policy_of(GroupConfig("g", attributes=((POLICY_ATTRIBUTE, text),))) is None
