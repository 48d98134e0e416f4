"""Measures pop consumers: how many messages a second a group takes and acknowledges."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from cluster.bench.sending import fill
from cluster.client.consumer.pop.consumer import PopConsumer
from cluster.client.producer.outgoing import OutgoingMessage

if TYPE_CHECKING:
    from cluster.client.consumer.pop.async_consumer import AsyncPopConsumer

TOPIC: Final = "bench-pop"
# Calls in flight of one consumer.
_TASKS: Final = 32
_BATCH: Final = 200
# As many as one call may take.
_TAKEN_MAX: Final = 256


async def taken_per_second(endpoints: str, body_size_bytes: int, count: int) -> float:
    """Return the messages per second that are received and acknowledged, of a backlog of `count` messages."""
    times = -(-count // _BATCH)
    await fill(endpoints, [OutgoingMessage(TOPIC, bytes(body_size_bytes))] * _BATCH, times)
    left = times * _BATCH
    async with PopConsumer(endpoints, group="bench", topic=TOPIC) as consumer:
        left -= len(await consumer.acknowledge(await consumer.receive()))
        total, began = left, time.perf_counter()

        async def take() -> None:
            nonlocal left
            while left > 0:
                count = await _take(consumer)
                left -= count

        await asyncio.gather(*(take() for _ in range(_TASKS)))
        return total / (time.perf_counter() - began)


async def _take(consumer: AsyncPopConsumer) -> int:
    messages = await consumer.receive(_TAKEN_MAX, wait_s=0.1)
    return len(await consumer.acknowledge(messages)) if messages else 0
