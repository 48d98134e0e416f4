"""Helpers shared by the tests of the message clients."""

from __future__ import annotations

import time
from typing import Any

from cluster import Consumer
from tests.support.waiting import PATIENCE_S


def bodies_of(broker: Any, topic: str = "orders") -> list[bytes]:
    return sorted(message.body for key, queue in broker.stored.queues.items() for message in queue if key[0] == topic)


def kinds(outcomes: list[Any]) -> list[type]:
    return [type(outcome) for outcome in outcomes]


def consumer_of(broker: Any, **options: Any) -> Consumer:
    options = {"group": "g", "topics": "orders", "start": "first"} | options
    return Consumer(broker if isinstance(broker, str) else broker.address, **options)


async def take(consumer: Any, count: int) -> list[Any]:
    """Poll until that many messages have arrived."""
    messages: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(messages) < count and time.monotonic() < deadline:
        messages += await consumer.poll(count - len(messages), 0.5)
    return messages


def bodies(messages: list[Any]) -> list[bytes]:
    return [message.body.rstrip() for message in messages]


def numbers(count: int, begin: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(begin, count)]


def offset_of(broker: Any, queue_id: int = 0, group: str = "g") -> int:
    return broker.stored.offsets.get((group, "orders", queue_id), (-1, 0))[0]
