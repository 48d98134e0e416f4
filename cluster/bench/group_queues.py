"""Measures what the number of queues does to puts to a broker of three nodes: the same puts, to few queues or to many.

Puts come at a steady rate, whatever becomes of those before, each to the next queue. All queues have a message before
the first put is measured. What is measured is the time from the call of the client until its answer.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.client.broker_calls import BrokerCalls
from cluster.client.producer.producer import Producer
from cluster.v1 import broker_pb2 as pb
from dledger.event_loop import new_event_loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.client.producer.async_producer import AsyncProducer
    from cluster.client.producer.options import ProducerSettings
    from cluster.local.cluster import LocalCluster

FEW_QUEUES = 8
PUTS_A_SECOND = 500
# Nodes write the units of all queues this often, three times as often as by default,
WRITE_INTERVAL_MS = 20_000
# and puts are measured for at least this long: each measurement has such a write in it.
MEASURED_S_MIN = WRITE_INTERVAL_MS / 1_000
_QUEUES_A_TOPIC = 1_000
_DEADLINE_S = 60.0
# Settings of producers that make load: a machine that stalls for seconds ends no measurement.
PATIENT: ProducerSettings = {"compression": None, "answer_timeout_s": 25.0, "deadline_s": _DEADLINE_S}
_FIRST_PUTS = 500
_MS_PER_S = 1_000
_READ_AND_WRITE = 6


@dataclass(frozen=True, slots=True)
class _PutTimes:
    """How long puts took, in milliseconds: half of them at most the one, 99 of 100 at most the other."""

    p50_ms: float
    p99_ms: float


def _place(number: int, queues: int) -> tuple[str, int]:
    topic, queue_id = divmod(number % queues, _QUEUES_A_TOPIC)
    return f"queues-{queues}-{topic}", queue_id


def p99_ratio(
    cluster: LocalCluster, queues: int, body_size: int, seconds: float, progress: Callable[[str], None]
) -> float:
    """Return the 99th percentile of puts to this many queues as a multiple of that of puts to 8 queues.

    Args:
        cluster: a broker that writes units of queues every `WRITE_INTERVAL_MS`.
        queues: many.
        body_size: bytes of each body.
        seconds: that puts are measured for, twice; more where that is less than `MEASURED_S_MIN`.
        progress: called with the times that the ratio is made of.

    Raises:
        RequestFailed: a topic was refused.
        NotAppended, AppendUnknown: a message was not sent.
    """
    p99s_ms = []
    for count in (FEW_QUEUES, queues):
        _set_topics(cluster, count)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            times = runner.run(_put_times(cluster.endpoints, count, body_size, max(seconds, MEASURED_S_MIN)))
        progress(f"{count} queues: p50 {times.p50_ms:.1f} ms, p99 {times.p99_ms:.1f} ms")
        p99s_ms.append(times.p99_ms)
    return p99s_ms[1] / p99s_ms[0]


def _set_topics(cluster: LocalCluster, queues: int) -> None:
    """Create the topics of this many queues on a broker."""
    with BrokerCalls(cluster.endpoint_of(cluster.wait_for_leader()), _DEADLINE_S) as calls:
        for first in range(0, queues, _QUEUES_A_TOPIC):
            count = min(_QUEUES_A_TOPIC, queues - first)
            topic = pb.Topic(
                name=_place(first, queues)[0], read_queues=count, write_queues=count, permission=_READ_AND_WRITE
            )
            calls.ask(lambda stub: stub.SetTopic, pb.SetTopicRequest(topic=topic))


async def _put_times(endpoints: str, queues: int, body_size: int, seconds: float) -> _PutTimes:
    """Put a message into each queue, wait until their files are made, then measure puts for this long."""
    body = bytes(body_size)
    async with Producer(endpoints, **PATIENT) as producer:
        for first in range(0, queues, _FIRST_PUTS):
            numbers = range(first, min(first + _FIRST_PUTS, queues))
            await asyncio.gather(*(_put(producer, _place(number, queues), body) for number in numbers))
        # What is written first makes the files.
        await _puts(producer, queues, body, MEASURED_S_MIN)
        waits_s = sorted(await _puts(producer, queues, body, seconds))
    return _PutTimes(*(waits_s[len(waits_s) * part // 100] * _MS_PER_S for part in (50, 99)))


async def _puts(producer: AsyncProducer, queues: int, body: bytes, seconds: float) -> list[float]:
    """Put for this long; return how many seconds each put took."""
    due = time.perf_counter()
    puts: list[asyncio.Task[float]] = []
    async with asyncio.TaskGroup() as group:
        for number in range(max(int(seconds * PUTS_A_SECOND), 1)):
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            puts.append(group.create_task(_put(producer, _place(number, queues), body)))
            due += 1 / PUTS_A_SECOND
    return [put.result() for put in puts]


async def _put(producer: AsyncProducer, place: tuple[str, int], body: bytes) -> float:
    """Put a message into one queue; return the seconds that it took."""
    topic, queue_id = place
    began = time.perf_counter()
    await producer.send(topic, body, queue_id=queue_id)
    return time.perf_counter() - began
