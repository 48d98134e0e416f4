"""Measures delayed messages: how late they are at a steady rate, and how fast a broker delivers a backlog of them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from cluster.bench.group_queues import PATIENT
from cluster.bench.sending import TIME_SIZE, fill, send_times
from cluster.client.consumer.consumer import Consumer
from cluster.client.producer.outgoing import OutgoingMessage
from cluster.client.producer.producer import Producer

if TYPE_CHECKING:
    from cluster.local.cluster import LocalCluster

TOPIC: Final = "bench-delays"
_LEVEL: Final = 1
_DELAY_NS: Final = 1_000_000_000
# Of the backlog: long enough that most are put before the first is due.
_BACKLOG_LEVEL: Final = 3
_BACKLOG_DELAY_S: Final = 10.0
_WARM_UP_S: Final = 2.0
_GRACE_S: Final = 0.5
_BATCH: Final = 200
_POLL_MESSAGES: Final = 5_000


async def lateness_p99_ms(endpoints: str, body_size_bytes: int, seconds: float) -> float:
    """Return the 99th percentile of the time from when a message is due to its receipt, at 1,000 a second.

    It includes the latency of the put, because a message is due one second after its send call.
    """
    padding = bytes(max(body_size_bytes - TIME_SIZE, 0))
    late_ms: list[float] = []
    async with Producer(endpoints, **PATIENT) as producer:
        await producer.send(TOPIC, padding)
        async with Consumer(endpoints, group="bench", topics=TOPIC, start="first") as consumer:
            while not await consumer.poll():
                continue
            measured_from = time.perf_counter() + _WARM_UP_S
            sending = asyncio.create_task(
                send_times(producer, TOPIC, padding, measured_from + seconds, delay_level=_LEVEL)
            )
            # The last ones are due when the sending has ended.
            end = measured_from + seconds + _DELAY_NS / 1e9 + _GRACE_S
            while not sending.done() or time.perf_counter() < end:
                for message in await consumer.poll(timeout_s=0.1):
                    sent_ns = int.from_bytes(message.body[:TIME_SIZE], "big")
                    if sent_ns >= measured_from * 1e9:
                        late_ms.append((time.perf_counter_ns() - sent_ns - _DELAY_NS) / 1e6)
            await sending
    late_ms.sort()
    return late_ms[int(0.99 * len(late_ms))]


async def delivered_per_second(
    cluster: LocalCluster, body_size_bytes: int, count: int, *, has_time: bool = False
) -> float:
    """Return the messages per second that a broker delivers after a start, when all of them are due.

    The nodes are stopped while the messages become due, so the rate is not that of the puts. A consumer counts what is
    delivered, from its first to its last poll that finds any.

    Args:
        cluster: the nodes.
        body_size_bytes: of each message.
        count: of messages.
        has_time: whether each has a time of its own; otherwise all have the same delay level.
    """
    body = bytes(body_size_bytes)
    delayed, timed = (
        OutgoingMessage(TOPIC, body, delay_level=_BACKLOG_LEVEL),
        OutgoingMessage(TOPIC, body, delay_s=_BACKLOG_DELAY_S),
    )
    batch = [timed if has_time else delayed] * _BATCH
    await fill(cluster.endpoints, batch, count // _BATCH)
    await asyncio.to_thread(cluster.stop)
    await asyncio.sleep(_BACKLOG_DELAY_S)
    await asyncio.to_thread(cluster.start)
    await asyncio.to_thread(cluster.wait_for_leader)
    async with Consumer(cluster.endpoints, group="bench", topics=TOPIC, start="first") as consumer:
        found = 0
        first = len(await consumer.poll(_POLL_MESSAGES, timeout_s=60))
        began = time.perf_counter()
        while first + found < count:
            found += len(await consumer.poll(_POLL_MESSAGES))
        return found / (time.perf_counter() - began)
