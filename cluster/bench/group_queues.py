"""Measures the effect of the number of queues on the latency of puts to a broker of three nodes.

Puts are sent at a constant rate, without waiting for earlier ones, each to the next queue. Every queue has a message
before the first measured put. The latency is the time from the client's call to its answer.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.bench.workloads import first_failure
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
# The interval at which nodes write the units of all queues, a third of the default.
WRITE_INTERVAL_MS = 20_000
# The minimum duration of a measurement, so that each includes such a write.
MEASURED_S_MIN = WRITE_INTERVAL_MS / 1_000
_QUEUES_A_TOPIC = 1_000
_DEADLINE_S = 60.0
# Long timeouts, so that a machine that stalls for seconds does not end the measurement.
PATIENT: ProducerSettings = {"compression": None, "answer_timeout_s": 25.0, "deadline_s": _DEADLINE_S}
_FIRST_PUTS = 500
_MS_PER_S = 1_000
_READ_AND_WRITE = 6


@dataclass(frozen=True, slots=True)
class _PutTimes:
    """The median and the 99th percentile of the latency of puts, in milliseconds."""

    p50_ms: float
    p99_ms: float


def place_of(number: int, queues: int) -> tuple[str, int]:
    """Return topic and queue id of message `number` of a load on `queues` queues in turn."""
    topic, queue_id = divmod(number % queues, _QUEUES_A_TOPIC)
    return f"queues-{queues}-{topic}", queue_id


def p99_ratio(
    cluster: LocalCluster, queues: int, body_size: int, seconds: float, progress: Callable[[str], None]
) -> float:
    """Return the 99th percentile latency of puts to `queues` queues as a multiple of that of puts to 8 queues.

    Args:
        cluster: a broker that writes units of queues every `WRITE_INTERVAL_MS`.
        queues: the large number of queues.
        body_size: bytes of each body.
        seconds: duration of each of the two measurements; at least `MEASURED_S_MIN`.
        progress: called with the latencies of both measurements.

    Raises:
        RequestFailed: a topic was refused.
        NotAppended, AppendUnknown: a message was not stored, or its outcome is unknown.
    """
    p99s_ms = []
    for count in (FEW_QUEUES, queues):
        set_topics(cluster, count)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            times = runner.run(_put_times(cluster.endpoints, count, body_size, max(seconds, MEASURED_S_MIN)))
        progress(f"{count} queues: p50 {times.p50_ms:.1f} ms, p99 {times.p99_ms:.1f} ms")
        p99s_ms.append(times.p99_ms)
    return p99s_ms[1] / p99s_ms[0]


def set_topics(cluster: LocalCluster, queues: int) -> None:
    """Create the topics for `queues` queues on a broker."""
    with BrokerCalls(cluster.endpoint_of(cluster.wait_for_leader()), _DEADLINE_S) as calls:
        for first in range(0, queues, _QUEUES_A_TOPIC):
            count = min(_QUEUES_A_TOPIC, queues - first)
            topic = pb.Topic(
                name=place_of(first, queues)[0], read_queues=count, write_queues=count, permission=_READ_AND_WRITE
            )
            calls.ask(lambda stub: stub.SetTopic, pb.SetTopicRequest(topic=topic))


async def _put_times(endpoints: str, queues: int, body_size: int, seconds: float) -> _PutTimes:
    """Put a message into each queue, wait until their files exist, then measure puts for `seconds`."""
    body = bytes(body_size)
    async with Producer(endpoints, **PATIENT) as producer:
        for first in range(0, queues, _FIRST_PUTS):
            numbers = range(first, min(first + _FIRST_PUTS, queues))
            await asyncio.gather(*(_put(producer, place_of(number, queues), body) for number in numbers))
        # The first write creates the files.
        await _puts(producer, queues, body, MEASURED_S_MIN)
        waits_s = sorted(await _puts(producer, queues, body, seconds))
    return _PutTimes(*(waits_s[len(waits_s) * part // 100] * _MS_PER_S for part in (50, 99)))


async def _puts(producer: AsyncProducer, queues: int, body: bytes, seconds: float) -> list[float]:
    """Put messages for `seconds`; return the latency of each put in seconds."""
    due = time.perf_counter()
    puts: list[asyncio.Task[float]] = []
    with first_failure():
        async with asyncio.TaskGroup() as group:
            for number in range(max(int(seconds * PUTS_A_SECOND), 1)):
                await asyncio.sleep(max(due - time.perf_counter(), 0))
                puts.append(group.create_task(_put(producer, place_of(number, queues), body)))
                due += 1 / PUTS_A_SECOND
    return [put.result() for put in puts]


async def _put(producer: AsyncProducer, place: tuple[str, int], body: bytes) -> float:
    """Put a message into one queue; return the latency in seconds."""
    topic, queue_id = place
    began = time.perf_counter()
    await producer.send(topic, body, queue_id=queue_id)
    return time.perf_counter() - began
