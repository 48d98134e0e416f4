"""A queue as clients see it: of a topic, on a broker; and the queues that a route gives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cluster.route_table import BrokerRoute
from cluster.topic_config import PERMISSION_READ, PERMISSION_WRITE


class MessageQueue(NamedTuple):
    """One queue. Ordered by topic, broker and number, as RocketMQ orders them: all clients see the same order."""

    topic: str
    broker: str
    queue_id: int


def writable_queues(routes: Iterable[BrokerRoute]) -> tuple[MessageQueue, ...]:
    """Return the queues of a topic that messages may be put to, in order."""
    return _queues((route, route.queues.write_queues) for route in routes if route.queues.permission & PERMISSION_WRITE)


def readable_queues(routes: Iterable[BrokerRoute]) -> tuple[MessageQueue, ...]:
    """Return the queues of a topic that may be read, in order."""
    return _queues((route, route.queues.read_queues) for route in routes if route.queues.permission & PERMISSION_READ)


def _queues(counts: Iterable[tuple[BrokerRoute, int]]) -> tuple[MessageQueue, ...]:
    return tuple(
        sorted(
            MessageQueue(route.queues.topic, route.registration.broker, queue_id)
            for route, count in counts
            for queue_id in range(count)
        )
    )
