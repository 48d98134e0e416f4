"""Sends what the measurements of a broker read: messages with their send time, and a backlog."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from cluster.bench.group_queues import PATIENT
from cluster.client.producer.outgoing import OutgoingMessage
from cluster.client.producer.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.client.producer.async_producer import AsyncProducer

# Bytes of the send time, with which a body begins: nanoseconds of the performance counter.
TIME_SIZE: Final = 8
_EVERY_S: Final = 0.001
_FILL_CALLERS: Final = 8


async def send_times(producer: AsyncProducer, topic: str, padding: bytes, end: float, *, delay_level: int = 0) -> None:
    """Send messages with their send time, 1,000 per second, without waiting for earlier ones."""
    due = time.perf_counter()
    while due < end:
        await asyncio.sleep(max(due - time.perf_counter(), 0))
        body = time.perf_counter_ns().to_bytes(TIME_SIZE, "big") + padding
        producer.submit(OutgoingMessage(topic, body, delay_level=delay_level))
        due += _EVERY_S
    await producer.flush()


async def fill(endpoints: str, batch: Sequence[OutgoingMessage], times: int) -> None:
    """Put a batch of messages `times` times, with some puts in flight."""
    left = times
    async with Producer(endpoints, **PATIENT) as producer:

        async def put() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await producer.send_many(batch)

        await asyncio.gather(*(put() for _ in range(_FILL_CALLERS)))
