"""Quotas of topics and groups: what is refused, for how long, and how streams follow one another."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.broker.flow_quotas import STREAM_WAIT_S_MAX, FlowQuotas
from cluster.protocol.flow_attributes import QUOTAS_OF_GROUP, QUOTAS_OF_TOPIC, FlowRates, check_quotas, rates_of
from cluster.protocol.topic_config import GroupConfig, TopicConfig
from dledger.errors import OverQuota, repeat_after_s
from store.errors import IllegalMessage


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class Flow:
    """Quotas with a clock of the test."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.limited: Counter[str] = Counter()
        self.quotas = FlowQuotas(self.clock, lambda limit: self.limited.update([limit]))

    def puts(self, topic: TopicConfig, count: int, size_bytes: int = 100, tries: int = 1_000) -> int:
        """Return the number of requests that are taken at once."""
        for number in range(tries):
            try:
                self.quotas.check_put(topic)
            except OverQuota:
                return number
            self.quotas.charge_put(topic, count, lambda: size_bytes)
        return tries

    def put_wait_s(self, topic: TopicConfig) -> float:
        try:
            self.quotas.check_put(topic)
        except OverQuota as error:
            return error.wait_s
        return 0.0


@pytest.fixture
def flow() -> Flow:
    return Flow()


def topic_with(name: str = "orders", **rates: int) -> TopicConfig:
    return TopicConfig(name, attributes=attributes_of(rates))


def group_with(name: str = "billing", **rates: int) -> GroupConfig:
    return GroupConfig(name, attributes=attributes_of(rates))


def attributes_of(rates: dict[str, int]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((f"quota.{name.replace('_', '.')}", str(rate)) for name, rate in rates.items()))


def test_one_second_of_messages_of_a_topic_and_one_more_request_is_taken_at_once(flow) -> None:
    topic = topic_with(put_messages=100)
    assert flow.puts(topic, 10) == 11
    flow.clock.now_s += 0.5
    assert flow.puts(topic, 10) == 5
    assert flow.limited == {"topic_put": 2}


def test_bytes_of_puts_are_bounded_and_other_topics_are_not(flow) -> None:
    topic = topic_with(put_bytes=100_000)
    assert flow.puts(topic, 1, 50_000) == 3
    assert flow.puts(topic_with("others", put_bytes=100_000), 1, 50_000) == 3
    assert flow.puts(TopicConfig("free"), 1_000, 1 << 30) == 1_000


def test_refusal_says_when_the_put_is_taken(flow) -> None:
    topic = topic_with(put_messages=10)
    flow.puts(topic, 20)
    wait_s = flow.put_wait_s(topic)
    assert flow.put_wait_s(topic) == wait_s
    flow.clock.now_s += wait_s
    assert flow.put_wait_s(topic) == 0


def test_refusal_names_topic_quota_and_time(flow) -> None:
    topic = topic_with(put_messages=10)
    flow.puts(topic, 40)
    with pytest.raises(OverQuota, match=r"topic 'orders' \(quota.put.messages is 10 a second\)") as caught:
        flow.quotas.check_put(topic)
    assert repeat_after_s(str(caught.value)) == pytest.approx(3.0)


def test_puts_use_no_quota_of_reads(flow) -> None:
    topic = topic_with(put_messages=1, get_messages=1)
    flow.puts(topic, 100)
    flow.quotas.check_get(topic, None)


def test_group_pays_for_all_of_its_topics_and_other_groups_do_not(flow) -> None:
    billing, topics = group_with(get_messages=10), [TopicConfig("a"), TopicConfig("b")]
    for topic in topics:
        flow.quotas.charge_get(topic, billing, 20, 100)
    with pytest.raises(OverQuota, match="group 'billing'"):
        flow.quotas.check_get(TopicConfig("c"), billing)
    flow.quotas.check_get(topics[0], group_with("other", get_messages=10))
    flow.quotas.check_get(topics[0], None)
    assert flow.limited == {"group_get": 2}


def test_streams_that_wait_at_the_same_time_are_served_one_after_the_other(flow) -> None:
    topic = topic_with(get_messages=10)
    waits = [flow.quotas.charge_get(topic, None, 1, 100) for _ in range(31)]
    assert waits[:11] == [0.0] * 11
    assert waits[11:] == pytest.approx([0.1 * number for number in range(1, 21)])


def test_debt_is_bounded_because_a_stream_with_too_long_a_wait_is_refused_and_charged_nothing(flow) -> None:
    topic = topic_with(get_messages=1)
    flow.quotas.charge_get(topic, None, 1 + 31, 100)
    for _ in range(100):
        with pytest.raises(OverQuota) as caught:
            flow.quotas.charge_get(topic, None, 1_000, 100)
        assert caught.value.wait_s == pytest.approx(31)
    flow.clock.now_s += 31 - STREAM_WAIT_S_MAX
    assert flow.quotas.charge_get(topic, None, 1, 100) == pytest.approx(STREAM_WAIT_S_MAX)


def test_raised_quota_counts_at_once(flow) -> None:
    flow.puts(topic_with(put_messages=1), 3_600)
    assert flow.put_wait_s(topic_with(put_messages=1)) > 3_000
    assert flow.put_wait_s(topic_with(put_messages=1_000)) == 0
    assert flow.put_wait_s(topic_with()) == 0


@given(
    rate=st.integers(1, 1_000),
    steps=st.lists(st.tuples(st.integers(1, 500), st.floats(0, 2)), min_size=1, max_size=60),
)
def test_in_no_time_more_is_taken_than_the_rate_allows_and_one_request(rate, steps) -> None:
    flow, topic = Flow(), topic_with(put_messages=rate)
    taken, begin_s = 0, flow.clock.now_s
    for count, pause_s in steps:
        if flow.put_wait_s(topic) == 0:
            flow.quotas.charge_put(topic, count, lambda: 1)
            # Before the last request it had not used what the time allows, and a second in advance.
            assert taken <= rate * (flow.clock.now_s - begin_s + 1) + 1e-3
            taken += count
        flow.clock.now_s += pause_s


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("quota.put.message", "1"),
        ("quota.put.messages", "0"),
        ("quota.put.messages", "-1"),
        ("quota.put.messages", "1.5"),
        ("quota.put.messages", "٣"),
        ("quota.put.messages", ""),
        ("quota.put.bytes", "65535"),
        ("quota.get.bytes", "9" * 17),
    ],
)
def test_wrong_quotas_are_refused_when_they_are_set_and_no_limit_in_old_state(name, value) -> None:
    with pytest.raises(IllegalMessage):
        check_quotas(((name, value),), QUOTAS_OF_TOPIC)
    assert rates_of(((name, value),)) == FlowRates()


def test_group_has_no_quota_of_puts_and_other_attributes_are_not_quotas() -> None:
    with pytest.raises(IllegalMessage, match=r"quota\.get\.messages"):
        check_quotas((("quota.put.messages", "1"),), QUOTAS_OF_GROUP)
    attributes = (("message.type", "NORMAL"), ("quota.get.bytes", "65536"), ("quota.put.messages", "7"))
    check_quotas(attributes, QUOTAS_OF_TOPIC)
    assert rates_of(attributes) == FlowRates(put_messages=7, get_bytes=65_536)
