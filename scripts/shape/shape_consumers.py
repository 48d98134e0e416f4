"""The axis of the number of consumers of a broker: each receives all messages, in one client process.

Two loads: consumers that read a filled topic from its start determine the rate and the CPU time of a delivered message;
consumers that are up to date determine the latency from a send to each delivery, at a constant rate of sends.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from shape_appends import BODY_SIZE_BYTES, broker_client
from shape_axis import Axis, bytes_of_a_point
from shape_figures import Calls, point_between
from shape_group import running_group

from cluster.bench.workloads import first_failure
from cluster.client.consumer.consumer import Consumer
from cluster.client.producer.outgoing import OutgoingMessage
from dledger.event_loop import new_event_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from shape_axis import Plan
    from shape_figures import CallTimes, Point
    from shape_group import Group

    from cluster.client.consumer.async_consumer import AsyncConsumer
    from cluster.client.producer.async_producer import AsyncProducer

CONSUMERS: Final = (1, 4, 16, 64)
_FULL_TOPIC, _NEW_TOPIC = "full", "new"
# More than one consumer reads; the measured time ends early if one has reached the end.
_MESSAGES_A_SECOND: Final = 150_000
_FILL_CALLERS: Final = 8
_FILL_BATCH: Final = 200
_SENDS_A_SECOND: Final = 100
_TIME_SIZE: Final = 8
_POLL_MESSAGES: Final = 500
_POLL_S: Final = 0.1
# For the start of consumers, or the end of a fill, on a machine that stalls.
_LIMIT_S: Final = 120.0


def _measure(plan: Plan) -> Iterator[Point]:
    values = plan.values(CONSUMERS)
    for run in range(plan.runs):
        with (
            running_group(plan, is_broker=True) as group,
            asyncio.Runner(loop_factory=new_event_loop) as runner,
        ):
            count = int(_MESSAGES_A_SECOND * (plan.seconds + plan.warm_up_s))
            plan.progress(f"filling a topic with {count:,} messages")
            runner.run(_fill(group, count))
            for consumers in values:
                plan.progress(f"{consumers} consumers")
                term = group.term()
                point = runner.run(_catch_up(plan, group, consumers, count))
                calls = runner.run(_tail(plan, group, consumers))
                yield replace(
                    point, x=consumers, run=run, quantiles_ms=calls.quantiles_ms, elections=group.term() - term
                )


async def _fill(group: Group, count: int) -> None:
    messages = [OutgoingMessage(_FULL_TOPIC, bytes(BODY_SIZE_BYTES))] * _FILL_BATCH
    left = -(-count // _FILL_BATCH)
    async with broker_client(group) as producer:

        async def fill() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await producer.send_many(messages)

        with first_failure():
            async with asyncio.timeout(_LIMIT_S), asyncio.TaskGroup() as tasks:
                for _ in range(_FILL_CALLERS):
                    tasks.create_task(fill())


@asynccontextmanager
async def _open_consumers(group: Group, count: int, topic: str) -> AsyncIterator[list[AsyncConsumer]]:
    async with AsyncExitStack() as stack:
        opened = [
            Consumer(group.cluster.endpoints, group="shape", topics=topic, mode="broadcast", start="first")
            for _ in range(count)
        ]
        yield [await stack.enter_async_context(consumer) for consumer in opened]


async def _catch_up(plan: Plan, group: Group, count: int, messages: int) -> Point:
    """Return the point of consumers that read from the start of the topic, without latencies."""
    is_over, has_begun = asyncio.Event(), asyncio.Event()
    delivered = begun = 0

    async def read(consumer: AsyncConsumer) -> None:
        nonlocal delivered, begun
        found = 0
        while not is_over.is_set() and found < messages:
            polled = len(await consumer.poll(_POLL_MESSAGES, timeout_s=_POLL_S))
            begun += found == 0 < polled
            delivered += polled
            found += polled
            # The second half of the log is always measured, even if the last consumers begin late.
            if begun == count or found * 2 >= messages:
                has_begun.set()
            # A call with messages at hand does not wait, and others must have a turn.
            await asyncio.sleep(0)
        is_over.set()

    async with _open_consumers(group, count, _FULL_TOPIC) as consumers:
        with first_failure():
            limit_s = plan.seconds + _LIMIT_S
            async with asyncio.timeout(limit_s), asyncio.TaskGroup() as tasks:
                for consumer in consumers:
                    tasks.create_task(read(consumer))
                await has_begun.wait()
                before, at_begin = group.read(), delivered
                with suppress(TimeoutError):
                    async with asyncio.timeout(plan.seconds):
                        await is_over.wait()
                after, at_end = group.read(), delivered
                is_over.set()
    return point_between(before, after, at_end - at_begin, (), x=count)


async def _tail(plan: Plan, group: Group, count: int) -> CallTimes:
    """Return send and delivery of each message to each consumer, without those of the warm-up."""
    calls = Calls()
    is_over = asyncio.Event()
    padding = bytes(BODY_SIZE_BYTES - _TIME_SIZE)

    async def read(consumer: AsyncConsumer, has_begun: asyncio.Event) -> None:
        while not is_over.is_set():
            for message in await consumer.poll(_POLL_MESSAGES, timeout_s=_POLL_S):
                has_begun.set()
                calls.add(int.from_bytes(message.body[:_TIME_SIZE], "big") / 1e9, time.perf_counter())

    async def send(producer: AsyncProducer) -> float:
        began = due = time.perf_counter()
        for _ in range(int((plan.warm_up_s + plan.seconds) * _SENDS_A_SECOND)):
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            body = time.perf_counter_ns().to_bytes(_TIME_SIZE, "big") + padding
            producer.submit(OutgoingMessage(_NEW_TOPIC, body))
            due += 1 / _SENDS_A_SECOND
        await producer.flush()
        return began + plan.warm_up_s

    async with broker_client(group) as producer:
        # It creates the topic, and each consumer begins with a message.
        await producer.send(_NEW_TOPIC, bytes(BODY_SIZE_BYTES))
        async with _open_consumers(group, count, _NEW_TOPIC) as consumers:
            with first_failure():
                limit_s = plan.warm_up_s + plan.seconds + _LIMIT_S
                async with asyncio.timeout(limit_s), asyncio.TaskGroup() as tasks:
                    begun = [asyncio.Event() for _ in consumers]
                    for consumer, has_begun in zip(consumers, begun, strict=True):
                        tasks.create_task(read(consumer, has_begun))
                    for has_begun in begun:
                        await has_begun.wait()
                    measured_from = await send(producer)
                    # Consumers end after the poll in progress, with the last messages.
                    await asyncio.sleep(2 * _POLL_S)
                    is_over.set()
    return calls.take().began_between(measured_from, time.perf_counter())


def _needed_bytes(plan: Plan) -> int:
    messages = _MESSAGES_A_SECOND * (plan.seconds + plan.warm_up_s)
    return bytes_of_a_point(plan) + int(3 * messages * (BODY_SIZE_BYTES + 300))


AXIS: Final = Axis("consumers", _measure, _needed_bytes)
