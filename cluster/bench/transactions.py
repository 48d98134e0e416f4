"""Measures transactions: half messages that are sent and committed, by many callers."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from cluster.bench.group_queues import PATIENT
from cluster.client.producer.producer import Producer

TOPIC: Final = "bench-transactions"
_GROUP: Final = "bench"
_CALLERS: Final = 256
_WARM_UP_S: Final = 1.0


async def transactions_per_second(endpoints: str, body_size_bytes: int, seconds: float) -> float:
    """Return the committed transactions per second; every caller commits one before it begins the next."""
    body = bytes(body_size_bytes)
    async with Producer(endpoints, **PATIENT) as producer:
        await producer.send(TOPIC, body)

        async def commit_until(end: float) -> int:
            count = 0
            while time.perf_counter() < end:
                async with producer.transaction(TOPIC, body, group=_GROUP):
                    count += 1
            return count

        async def all_until(end: float) -> int:
            return sum(await asyncio.gather(*(commit_until(end) for _ in range(_CALLERS))))

        await all_until(time.perf_counter() + _WARM_UP_S)
        began = time.perf_counter()
        count = await all_until(began + seconds)
        return count / (time.perf_counter() - began)
