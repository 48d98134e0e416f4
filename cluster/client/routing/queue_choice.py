"""Chooses the queue of the next message: round robin, or by its key. Pure.

Round robin avoids brokers that are slow or have just failed, if there are others. A key always selects the same queue:
messages of one key stay in order, as long as the number of queues does not change. A topic with a fixed list of queues
(`fixed_queues`) keeps them also while a broker is away.

Source: RocketMQ `MQFaultStrategy.selectOneMessageQueue`, `TopicPublishInfo`, `SelectMessageQueueByHash`.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from cluster.protocol.topic_config import PERMISSION_READ, PERMISSION_WRITE, QUEUES_MAX
from store.model.java_hash import java_hash, positive_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cluster.protocol.route_table import BrokerRoute

# Any type of queue; all producers must pass the queues in the same order.
Queue = TypeVar("Queue")

_TOPICS_MAX: Final = 10_000
_START_END: Final = 1 << 16


class BrokerQueue(NamedTuple):
    """One queue of one topic on one broker. All clients see queues in the same order."""

    broker: str
    topic: str
    queue_id: int


def writable_queues(routes: Iterable[BrokerRoute]) -> tuple[BrokerQueue, ...]:
    """Return the writable queues of a topic, in the order that all clients share."""
    return _queues((route, route.queues.write_queues) for route in routes if route.queues.permission & PERMISSION_WRITE)


def readable_queues(routes: Iterable[BrokerRoute]) -> tuple[BrokerQueue, ...]:
    """Return the readable queues of a topic, in the order that all clients share."""
    return _queues((route, route.queues.read_queues) for route in routes if route.queues.permission & PERMISSION_READ)


def _queues(counts: Iterable[tuple[BrokerRoute, int]]) -> tuple[BrokerQueue, ...]:
    return tuple(
        sorted(
            BrokerQueue(route.registration.broker, route.queues.topic, queue_id)
            for route, count in counts
            for queue_id in range(count)
        )
    )


def fixed_queues(topic: str, text: str) -> tuple[BrokerQueue, ...]:
    """Return the fixed list of queues of an ordered topic, in the order that all clients share.

    Args:
        topic: the topic's name.
        text: brokers and the number of queues of each: `broker-a:4;broker-b:4`.

    Raises:
        ValueError: the text has another form. Source: RocketMQ `orderTopicConf`, `MQClientInstance`.
    """
    counts: dict[str, int] = {}
    for part in filter(None, text.split(";")):
        broker, _, count = part.rpartition(":")
        if not broker or set(broker) & set(":,") or broker in counts or not count.isascii() or not count.isdecimal():
            raise ValueError(f"ordered topic {topic}: expected broker:queues;…, each broker once, found {text[:200]!r}")
        counts[broker] = int(count)
    if not 1 <= sum(counts.values()) <= QUEUES_MAX:
        raise ValueError(f"ordered topic {topic}: expected 1 to {QUEUES_MAX} queues, found {sum(counts.values())}")
    return tuple(
        sorted(BrokerQueue(broker, topic, queue_id) for broker, count in counts.items() for queue_id in range(count))
    )


def queue_of_key(queues: Sequence[Queue], key: str) -> Queue:
    """Return the queue of all messages with this key; it depends only on `queues` and the key."""
    return queues[positive_hash(java_hash(key)) % len(queues)]


class RoundRobin:
    """Chooses queues round robin, separately for each topic, beginning with a random one.

    Args:
        order: random source of the first queue of each topic, so that producers begin with different queues.
    """

    def __init__(self, order: random.Random | None = None) -> None:
        self._order = order or random.Random()
        self._next: dict[str, int] = {}

    def choose(
        self,
        queues: Sequence[BrokerQueue],
        is_available: Callable[[str], bool] = lambda _: True,
        avoided: str = "",
    ) -> BrokerQueue:
        """Return the next queue.

        Args:
            queues: queues of one topic, at least one.
            is_available: returns whether a broker is neither slow nor failed lately.
            avoided: the broker where the last attempt for this message failed; empty: first attempt.
        """
        topic = queues[0].topic
        if topic not in self._next and len(self._next) >= _TOPICS_MAX:
            self._next.clear()
        turn = self._next.get(topic, -1)
        if turn < 0:
            turn = self._order.randrange(_START_END)
        best, best_rank = turn % len(queues), -1
        for step in range(len(queues)):
            at = (turn + step) % len(queues)
            broker = queues[at].broker
            # The broker that failed is chosen only when there is no other.
            rank = 2 * (broker != avoided) + is_available(broker)
            if rank > best_rank:
                best, best_rank = at, rank
            if rank == 2 + 1:
                break
        # Continue after the chosen queue, so that the queues next to a bad broker's do not get all of its share.
        self._next[topic] = best + 1
        return queues[best]
