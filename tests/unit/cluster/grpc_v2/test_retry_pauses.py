"""The pauses between attempts that the settings of a push consumer have, by the policy of its group."""

import pytest

from cluster.grpc_v2.retry_pauses import PAUSES_MAX, pauses_ms
from cluster.grpc_v2.telemetry import Telemetry
from cluster.protocol.retry_policy import POLICY_ATTRIBUTE, parse_shown_policy, policy_of
from cluster.protocol.topic_config import GroupConfig
from cluster.rocketmq_v2 import messaging_pb2 as mq
from store.model.topics import DELAY_LEVELS_MS

HALF_A_DAY_MS = 12 * 3_600_000


def group_with(attribute):
    return GroupConfig("G", attributes=((POLICY_ATTRIBUTE, attribute),) if attribute else ())


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("levels", list(DELAY_LEVELS_MS)),
        ("custom:1s,1m,1h", [1_000, 60_000, 3_600_000]),
        ("custom:7s", [7_000]),
        ("custom:1s,1s,2s,2s", [1_000, 1_000, 2_000]),
        ("exponential:5s,1m,2", [5_000, 10_000, 20_000, 40_000, 60_000]),
        ("exponential:5s,2h,1", [5_000]),
        ("exponential:0s,2h,2", [0]),
        ("custom:1h,2d", [3_600_000, HALF_A_DAY_MS]),
    ],
)
def test_pauses_are_those_of_returned_messages_without_rounding(shown, expected):
    assert list(pauses_ms(group_with(parse_shown_policy(shown)))) == expected


@pytest.mark.parametrize("attribute", ["customized:1000", "customized:1000,2000", "exponential:1000,31536000000,1000"])
def test_pauses_of_any_policy_are_those_of_each_attempt_and_at_most_half_a_day(attribute):
    group = group_with(attribute)
    pauses, policy = pauses_ms(group), policy_of(group)
    for redeliveries in range(2 * PAUSES_MAX):
        expected = min(policy.delay_ms(redeliveries), HALF_A_DAY_MS)
        assert pauses[min(redeliveries, len(pauses) - 1)] == expected


def test_a_policy_that_an_older_version_has_stored_unchecked_has_the_pauses_of_delay_levels():
    assert pauses_ms(group_with("exponential:none")) == DELAY_LEVELS_MS


def test_settings_of_a_push_consumer_have_the_pauses_of_its_group():
    class Topics:
        def group(self, name):
            return group_with("exponential:1500,3000,2")

    settings = mq.Settings(client_type=mq.PUSH_CONSUMER, subscription=mq.Subscription(group=mq.Resource(name="G")))
    answered = Telemetry(Topics(), None, None, None)._answer(settings, shows_group=True)
    pauses = answered.backoff_policy.customized_backoff.next
    assert [each.ToMilliseconds() for each in pauses] == [1_500, 3_000]
