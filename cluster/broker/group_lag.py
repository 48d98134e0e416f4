"""The lag of consumer groups, computed from committed offsets and queues when it is wanted. Pure.

| number | of the queues of a topic in which the group has committed an offset |
| --- | --- |
| lag | messages after the committed offset |
| inflight | messages that were read, and are not committed |
| ready | messages that were not read |
| lag latency | age of the oldest message of the lag; 0 without one |
| queueing latency | age of the oldest ready message; 0 without one |

A leader knows what was read since it leads; before, what is committed counts as read. Messages that a filter excludes
count. Source: RocketMQ `ConsumerLagCalculator`, which estimates what a filter excludes.
"""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from cluster.broker.traffic import REST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.broker.traffic import Traffic
    from cluster.state.broker_state import BrokerState
    from store.steps import Steps

LAG_ROWS_MAX: Final = 10_000


class Queues(Protocol):
    """The queues, as `store.access.message_store.MessageStore` has them."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the first message."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset after the last message."""
        ...

    def message_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return when the message at an offset was stored, in milliseconds since 1970; -1: not known."""
        ...


class GroupLag(NamedTuple):
    """The lag of one group in one topic: numbers of messages, and latencies in milliseconds."""

    group: str
    topic: str
    lag: int = 0
    inflight: int = 0
    ready: int = 0
    lag_latency_ms: int = 0
    queueing_latency_ms: int = 0

    def plus(self, other: GroupLag) -> GroupLag:
        """Return the lag of both together: sums of messages, and the longer latencies."""
        return GroupLag(
            self.group,
            self.topic,
            self.lag + other.lag,
            self.inflight + other.inflight,
            self.ready + other.ready,
            max(self.lag_latency_ms, other.lag_latency_ms),
            max(self.queueing_latency_ms, other.queueing_latency_ms),
        )


def lag_steps(state: BrokerState, queues: Queues, traffic: Traffic, now_ms: int) -> Steps[list[GroupLag]]:
    """Return the lag of every group in every topic, in steps of one queue."""
    found: dict[tuple[str, str], GroupLag] = {}
    for group in list(state.groups):
        for row in tuple(state.offsets(group)):
            yield
            topic, queue_id = row.topic, row.queue_id
            if topic not in state.topics:
                continue
            end = queues.max_offset(topic, queue_id)
            # Retention deletes messages that a group has not read.
            committed = min(max(row.offset, queues.min_offset(topic, queue_id)), end)
            read = min(max(traffic.position(group, topic, queue_id), committed), end)
            lag = GroupLag(
                group,
                topic,
                end - committed,
                read - committed,
                end - read,
                _age_ms(queues, topic, queue_id, committed, end, now_ms),
                _age_ms(queues, topic, queue_id, read, end, now_ms),
            )
            found[group, topic] = found.get((group, topic), GroupLag(group, topic)).plus(lag)
    return list(found.values())


def _age_ms(queues: Queues, topic: str, queue_id: int, offset: int, end: int, now_ms: int) -> int:
    stored_ms = queues.message_time(topic, queue_id, offset) if offset < end else -1
    return max(now_ms - stored_ms, 0) if stored_ms >= 0 else 0


def bounded(rows: Sequence[GroupLag], count_max: int = LAG_ROWS_MAX) -> list[GroupLag]:
    """Return the rows with the largest lag, and the others as one row, whose group and topic are `REST`."""
    if len(rows) <= count_max:
        return list(rows)
    kept = nlargest(count_max, rows, key=lambda row: (row.lag, row.group, row.topic))
    names = {(row.group, row.topic) for row in kept}
    rest = GroupLag(REST, REST)
    for row in rows:
        if (row.group, row.topic) not in names:
            rest = rest.plus(row)
    return [*kept, rest]
