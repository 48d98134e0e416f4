"""Numbers of messages over time: those of the broker, and of its topics and groups (code 315).

Numbers of a topic come from its queues: the messages since a time are those after the offset of that time. So they
are right on each node, also after a start or a change of the leader. Sizes are those numbers times the mean size of a
queue's newest messages. What a group consumed in a span of time no node records: rates of groups are 0, and the
exporter takes the offsets of 208 for its lag. What the broker gave to consumers is counted by each node from its start
on.

Source: RocketMQ `BrokerStatsManager`, `StatsItem`.
"""

# ruff: noqa: ARG002  (every handler gets the request and the client)
from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from cluster.process.cooperative import run_cooperatively
from cluster.remoting.admin.answers import NAME_LENGTH_MAX, answer
from cluster.remoting.command import Rejected, RemotingCode
from cluster.remoting.fields import text_of
from store.model.message import QueueKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.broker.core import BrokerCore
    from cluster.remoting.command import Request, Response
    from cluster.remoting.front import Handler, RemotingClient
    from store.steps import Steps

SPANS_S: Final = {"statsDay": 86_400, "statsHour": 3_600, "statsMinute": 60}
RATE_SPANS_S: Final = (10, 60, 600)
# A number of the whole broker, which needs a look at every queue, is kept for this time.
_KEPT_S: Final = 5.0
_SAMPLES_MAX: Final = 256
_MS_PER_S: Final = 1_000
_MS_PER_DAY: Final = 86_400_000
# Newest messages of a queue, from which its mean size is taken.
_SIZED_MAX: Final = 100
_GROUP_STATS: Final = frozenset({"GROUP_GET_NUMS", "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS"})
_TOPIC_STATS: Final = frozenset({"TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"})
_BROKER_STATS: Final = frozenset({"BROKER_PUT_NUMS", "BROKER_GET_NUMS"})
_STAT_LENGTH_MAX: Final = 64


class GrowthRates:
    """A growing number, as it was at some times; for rates. Pure: times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, at_s: float, number: int) -> None:
        """Record the number at a time, not before that of the last call."""
        self._samples.append((at_s, number))
        while len(self._samples) > _SAMPLES_MAX or at_s - self._samples[0][0] > 2 * RATE_SPANS_S[-1]:
            self._samples.popleft()

    def per_second(self, span_s: float) -> float:
        """Return the growth per second in the last span; 0 while it was recorded once."""
        if not self._samples:
            return 0.0
        last_s, last = self._samples[-1]
        inside = [each for each in self._samples if last_s - each[0] <= span_s]
        # Recorded less often than the span: the growth since the last time.
        first_s, first = inside[0] if len(inside) > 1 else self._samples[max(len(self._samples) - 2, 0)]
        return max(last - first, 0) / (last_s - first_s) if last_s > first_s else 0.0


class AdminStatistics:
    """Handler of 315, and the number of messages of the broker.

    Args:
        core: of this node.
        monotonic_s: a clock, in seconds.
    """

    def __init__(self, core: BrokerCore, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._core = core
        self._monotonic_s = monotonic_s
        self._kept: tuple[float, int] | None = None
        # The day, and the numbers of messages when yesterday and it began.
        self._mornings: tuple[int, tuple[int, int]] | None = None
        self._counting = asyncio.Lock()
        self.rates = GrowthRates()
        self._given = GrowthRates()

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request codes."""
        return {315: self._stats}

    async def messages(self) -> int:
        """Return the number of messages that clients have put, at most some seconds ago."""
        # Requests at the same time wait for one count.
        async with self._counting:
            now_s = self._monotonic_s()
            if self._kept is None or now_s - self._kept[0] >= _KEPT_S:
                number = await run_cooperatively(self._count_steps())
                self._kept = now_s, number
                self.rates.add(now_s, number)
                self._given.add(now_s, self._core.metrics.counts.get_messages)
            return self._kept[1]

    async def mornings(self) -> tuple[int, int]:
        """Return the numbers of messages when yesterday and today began (UTC), by their times in the log."""
        day = self._core.clock_ms() // _MS_PER_DAY
        if self._mornings is None or self._mornings[0] != day:
            begins_ms = (day - 1) * _MS_PER_DAY, day * _MS_PER_DAY
            self._mornings = day, await run_cooperatively(self._before_steps(begins_ms))
        return self._mornings[1]

    def _before_steps(self, times_ms: tuple[int, int]) -> Steps[tuple[int, int]]:
        """Return the numbers of messages before two times."""
        store, found = self._core.replica.store, [0, 0]
        for topic in list(self._core.replica.state.topics.values()):
            for queue_id in range(max(topic.read_queues, topic.write_queues)):
                for place, time_ms in enumerate(times_ms):
                    yield
                    found[place] += store.offset_by_time(topic.name, queue_id, time_ms)
        return found[0], found[1]

    def _count_steps(self) -> Steps[int]:
        store, number = self._core.replica.store, 0
        for topic in list(self._core.replica.state.topics.values()):
            for queue_id in range(max(topic.read_queues, topic.write_queues)):
                yield
                number += store.max_offset(topic.name, queue_id)
        return number

    async def _stats(self, request: Request, client: RemotingClient) -> Response:
        name = text_of(request.fields, "statsName", _STAT_LENGTH_MAX)
        key = text_of(request.fields, "statsKey", 2 * NAME_LENGTH_MAX + 1)
        if name in _GROUP_STATS and "@" in key:
            return answer(_items(dict.fromkeys(SPANS_S, 0)))
        if name in _BROKER_STATS and key == self._core.options.cluster:
            await self.messages()
            rates = self.rates if name == "BROKER_PUT_NUMS" else self._given
            return answer(_items({span: int(rates.per_second(SPANS_S[span]) * SPANS_S[span]) for span in SPANS_S}))
        if name in _TOPIC_STATS and key in self._core.replica.state.topics:
            has_sizes = name == "TOPIC_PUT_SIZE"
            return answer(_items(await run_cooperatively(self._topic_steps(key, has_sizes=has_sizes))))
        raise Rejected(RemotingCode.SYSTEM_ERROR, f"The stats <{name}> <{key[:NAME_LENGTH_MAX]}> not exist")

    def _topic_steps(self, name: str, *, has_sizes: bool) -> Steps[dict[str, int]]:
        """Return the messages of a topic in each span up to now, or their bytes."""
        topic, store, now_ms = self._core.replica.state.topics[name], self._core.replica.store, self._core.clock_ms()
        found = dict.fromkeys(SPANS_S, 0)
        for queue_id in range(max(topic.read_queues, topic.write_queues)):
            factor = self._mean_bytes(name, queue_id) if has_sizes else 1.0
            for span, length_s in SPANS_S.items():
                yield
                begin = store.offset_by_time(name, queue_id, now_ms - length_s * _MS_PER_S)
                found[span] += int(max(store.max_offset(name, queue_id) - begin, 0) * factor)
        return found

    def _mean_bytes(self, topic: str, queue_id: int) -> float:
        """Return the mean size of the newest messages of a queue; 0 without one."""
        queue = self._core.replica.store.derived.queues.get(QueueKey(topic, queue_id))
        if queue is None:
            return 0.0
        begin = max(queue.max_offset - _SIZED_MAX, queue.min_offset)
        units = queue.unit_tuples(begin, queue.max_offset - begin)
        return sum(size for _, size, _ in units) / len(units) if units else 0.0


def _items(numbers: dict[str, int]) -> dict[str, dict[str, float]]:
    """Return numbers in the form of RocketMQ's `BrokerStatsData`."""
    return {span: {"avgpt": 0.0, "sum": sum_, "tps": sum_ / SPANS_S[span]} for span, sum_ in numbers.items()}
