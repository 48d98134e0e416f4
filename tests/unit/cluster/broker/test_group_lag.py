"""The lag of groups: of committed offsets, read positions and queues."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.broker.group_lag import GroupLag, bounded, lag_steps
from cluster.broker.traffic import REST, Traffic
from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.state.broker_state import BrokerState
from cluster.state.commands import CommitOffsets, QueueOffset, SetGroup, SetTopic
from store.steps import at_once

NOW_MS = 1_000_000


class FixedQueues:
    """Queues of the topic `orders`; the message at offset n was stored at n seconds."""

    def __init__(self, **ends: int) -> None:
        self.ends = {int(name[1:]): end for name, end in ends.items()}
        self.begin = 0

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self.begin

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.ends.get(queue_id, 0)

    def message_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        return queue_offset * 1_000 if self.begin <= queue_offset < self.ends[queue_id] else -1


def state_with(*offsets: QueueOffset) -> BrokerState:
    state = BrokerState()
    state.apply_command(SetTopic(TopicConfig("orders", 4, 4)))
    state.apply_command(SetGroup(GroupConfig("billing")))
    state.apply_command(CommitOffsets("billing", offsets))
    return state


def lags(state: BrokerState, queues: FixedQueues, traffic: Traffic) -> list[GroupLag]:
    return at_once(lag_steps(state, queues, traffic, NOW_MS))


def test_lag_is_the_sum_over_queues_and_the_age_of_the_oldest_message() -> None:
    state = state_with(QueueOffset("orders", 0, 90), QueueOffset("orders", 1, 40))
    traffic = Traffic(lambda _: True)
    traffic.moved("billing", "orders", 0, 97)
    traffic.moved("billing", "orders", 1, 50)
    assert lags(state, FixedQueues(q0=100, q1=50, q2=7), traffic) == [
        GroupLag("billing", "orders", 10 + 10, 7 + 10, 3, NOW_MS - 40_000, NOW_MS - 97_000)
    ]


def test_group_that_has_committed_everything_has_no_lag_and_no_latency() -> None:
    state = state_with(QueueOffset("orders", 0, 100))
    assert lags(state, FixedQueues(q0=100), Traffic(lambda _: True)) == [GroupLag("billing", "orders")]


def test_what_is_committed_counts_as_read_by_a_new_leader() -> None:
    state = state_with(QueueOffset("orders", 0, 60))
    (lag,) = lags(state, FixedQueues(q0=100), Traffic(lambda _: True))
    assert (lag.lag, lag.inflight, lag.ready) == (40, 0, 40)


def test_messages_that_retention_deleted_do_not_count() -> None:
    queues = FixedQueues(q0=100)
    queues.begin = 90
    (lag,) = lags(state_with(QueueOffset("orders", 0, 10)), queues, Traffic(lambda _: True))
    assert (lag.lag, lag.lag_latency_ms) == (10, NOW_MS - 90_000)


@given(committed=st.integers(0, 30), read=st.integers(0, 30), begin=st.integers(0, 20), length=st.integers(0, 10))
def test_lag_is_what_is_inflight_and_what_is_ready(committed: int, read: int, begin: int, length: int) -> None:
    queues = FixedQueues(q0=begin + length)
    queues.begin = begin
    traffic = Traffic(lambda _: True)
    traffic.moved("billing", "orders", 0, read)
    (lag,) = lags(state_with(QueueOffset("orders", 0, committed)), queues, traffic)
    assert lag.lag == lag.inflight + lag.ready
    assert min(lag.inflight, lag.ready) >= 0
    assert lag.queueing_latency_ms <= lag.lag_latency_ms


def test_rows_above_the_bound_are_one_row_with_their_sum() -> None:
    rows = [GroupLag(f"g{n}", "orders", lag=n, ready=n, lag_latency_ms=100 - n) for n in range(5)]
    assert bounded(rows, 5) == rows
    assert bounded(rows, 2) == [
        GroupLag("g4", "orders", lag=4, ready=4, lag_latency_ms=96),
        GroupLag("g3", "orders", lag=3, ready=3, lag_latency_ms=97),
        GroupLag(REST, REST, lag=3, ready=3, lag_latency_ms=100),
    ]
