"""Bounds the readers of one topic, and of one group, at one node: streams, and waits for a next message.

Fair shares (`dledger.service.limits.fair_shares`) divide a node among users. These bounds protect users and groups that
share a user from one group, or one topic, with very many readers. Pure.

Source: RocketMQ `PopLongPollingService`, whose `popPollingSize` bounds the waits of one group in one queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cluster.protocol.errors import Reason, RequestFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.config.quotas import BrokerLimits


class Readers(NamedTuple):
    """What was taken, to be given back once."""

    keys: tuple[tuple[str, str], ...]
    amount: int


class ReaderBounds:
    """The readers of all topics and groups. For the loop thread.

    Args:
        limits: of the broker.
        count: counts a refusal, as `topic_waits`, `group_waits` or `group_streams`.
    """

    def __init__(self, limits: BrokerLimits, count: Callable[[str], None]) -> None:
        self._max = {
            "topic_waits": limits.topic_waits_max,
            "group_waits": limits.group_waits_max,
            "group_streams": limits.group_streams_max,
        }
        self._count = count
        # By limit, and name of the topic or group; only those that have something.
        self._held: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        """Return the number of topics and groups that have readers, each once for each limit."""
        return len(self._held)

    def take_waits(self, topic: str, group: str, amount: int) -> Readers:
        """Take places for waits in queues.

        Args:
            topic: that is read.
            group: of the reader; empty: none.
            amount: queues, at least 1.

        Raises:
            RequestFailed: TOO_MANY_WAITERS: the topic or the group has its maximum; nothing was taken.
        """
        return self._take([("topic_waits", topic), ("group_waits", group)], amount)

    def take_stream(self, group: str) -> Readers:
        """Take a place for a stream of a group; empty: none, which has no bound.

        Raises:
            RequestFailed: TOO_MANY_WAITERS: the group has its maximum.
        """
        return self._take([("group_streams", group)], 1)

    def give_back(self, readers: Readers) -> None:
        """Give back what was taken."""
        for key in readers.keys:
            left = self._held[key] - readers.amount
            if left:
                self._held[key] = left
            else:
                del self._held[key]

    def _take(self, wanted: list[tuple[str, str]], amount: int) -> Readers:
        keys = tuple(key for key in wanted if key[1])
        for limit, name in keys:
            held, maximum = self._held.get((limit, name), 0), self._max[limit]
            # A stream of many queues may exceed the bound, as the last request of a share may.
            if held >= maximum:
                self._count(limit)
                whose, what = limit.split("_")
                text = f"{whose} {name!r} has {held} {what} at this node, which is the limit ({limit}_max)"
                raise RequestFailed(Reason.TOO_MANY_WAITERS, text)
        for key in keys:
            self._held[key] = self._held.get(key, 0) + amount
        return Readers(keys, amount)
