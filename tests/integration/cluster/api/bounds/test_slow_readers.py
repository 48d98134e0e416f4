"""A thousand readers that do not read, or wait, cost a put nothing: counted in calls, reads, notifications, bytes."""

from __future__ import annotations

import asyncio
import sys
import tracemalloc
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

import cluster.api.read_calls
import cluster.broker.core
from cluster.broker.flow_quotas import FlowQuotas
from cluster.broker.queue_watch import QueueWatch
from cluster.config.quotas import BrokerLimits
from cluster.v1 import broker_pb2 as pb
from store.access.message_store import MessageStore
from store.model.config import MessageStoreConfig
from store.model.message import LOOPBACK
from tests.integration.cluster.api import conftest
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

READERS = 1_000
PUTS = 30
BODY = b"x" * 10_000
BODIES = 50


@pytest.fixture
def work(monkeypatch) -> Counter[str]:
    """Count the reads of the store, and the notifications of streams; allow a thousand streams of one group."""
    found: Counter[str] = Counter()
    get, notify = MessageStore.get, QueueWatch._notify

    def counted_get(self, *arguments: Any) -> Any:
        found["reads"] += 1
        return get(self, *arguments)

    def counted_notify(self, queue_id: int) -> None:
        found["notifications"] += 1
        notify(self, queue_id)

    monkeypatch.setattr(MessageStore, "get", counted_get)
    monkeypatch.setattr(QueueWatch, "_notify", counted_notify)
    monkeypatch.setattr(cluster.api.read_calls, "STREAMS_MAX", 3 * READERS)
    bounded = lambda **fields: MessageStoreConfig(**{**fields, "waiters_max": 3 * READERS})  # noqa: E731
    monkeypatch.setattr(conftest, "MessageStoreConfig", bounded)
    return found


def opened(shop) -> Any:
    return shop.open(waiters_max=3 * READERS, limits=BrokerLimits(group_streams_max=READERS))


async def calls_of_a_put(shop, bodies: tuple[bytes, ...] = (b"x",)) -> int:
    """Return the number of Python calls of the loop's thread during one put: the least of many, as other tasks run."""
    request, counts = pb.PutRequest(topic=TOPIC, queue_ids=[0], bodies=bodies), []
    for _ in range(PUTS):
        calls = 0

        def count(_frame: Any, event: str, _argument: Any) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        try:
            response = await shop.broker._service._puts.put(request, LOOPBACK)
        finally:
            sys.setprofile(None)
        assert not response.answer.reason
        await until(lambda: not shop.replica.store.derived.dispatcher.behind_bytes)
        counts.append(calls)
    return min(counts)


@asynccontextmanager
async def streams(shop, queue_id: int, offset: int) -> AsyncIterator[list[Any]]:
    """Open a thousand streams, which have sent the response that confirms them."""
    request = pb.SubscribeRequest(topic=TOPIC, queue_ids=[queue_id], offsets=[offset], group="billing")
    found = [shop.broker._service._reads.subscribe(request) for _ in range(READERS)]
    try:
        for each in found:
            assert not (await anext(each)).answer.reason
        yield found
    finally:
        for each in found:
            await each.aclose()


def test_readers_that_do_not_read_cost_a_put_neither_calls_nor_reads_nor_memory(shop, work) -> None:
    async def scenario() -> None:
        async with opened(shop):
            alone = await calls_of_a_put(shop)
            async with streams(shop, 0, 0) as slow:
                # Each has sent one response with messages, and its client takes no more.
                for each in slow:
                    assert (await anext(each)).columns.bodies
                assert shop.replica.store.waiters_count == 0
                work.clear()
                assert await calls_of_a_put(shop) <= alone * 1.1 + 50
                tracemalloc.start()
                try:
                    for _ in range(BODIES):
                        request = pb.PutRequest(topic=TOPIC, queue_ids=[0], bodies=[BODY])
                        await shop.broker._service._puts.put(request, LOOPBACK)
                    size_bytes, _ = tracemalloc.get_traced_memory()
                finally:
                    tracemalloc.stop()
                # A copy for each reader would take 500 MB.
                assert size_bytes < 4 * BODIES * len(BODY)
                assert work == {}

    run(scenario)


def test_readers_that_wait_for_another_queue_cost_a_put_nothing(shop, work) -> None:
    async def scenario() -> None:
        async with opened(shop):
            alone = await calls_of_a_put(shop)
            async with streams(shop, 1, 0) as waiting:
                tasks = [asyncio.ensure_future(anext(each)) for each in waiting]
                await until(lambda: shop.replica.store.waiters_count == READERS)
                work.clear()
                assert await calls_of_a_put(shop) <= alone * 1.1 + 50
                assert work == {}
                # A message of their queue is one notification and one read of each, and no more.
                await shop.put(b"x", queue_id=1)
                await asyncio.gather(*tasks)
                assert work == {"reads": READERS, "notifications": READERS}

    run(scenario)


def test_streams_above_a_quota_wait_without_a_read_or_a_notification(shop, work, monkeypatch) -> None:
    # The clock does not advance: only what one second allows is sent at once.
    made = lambda _, count: FlowQuotas(lambda: 1_000.0, count)  # noqa: E731
    monkeypatch.setattr(cluster.broker.core, "FlowQuotas", made)
    rate = READERS // 50

    async def scenario() -> None:
        async with opened(shop) as stub:
            rates = {"quota.get.messages": str(rate)}
            topic = pb.Topic(name=TOPIC, read_queues=2, write_queues=2, permission=6, attributes=rates)
            await stub.SetTopic(pb.SetTopicRequest(topic=topic))
            async with streams(shop, 0, 0) as waiting:
                tasks = [asyncio.ensure_future(anext(each)) for each in waiting]
                await until(lambda: shop.replica.store.waiters_count == READERS)
                work.clear()
                await shop.put(b"x")
                await until(lambda: work["reads"] >= READERS)
                assert work["notifications"] == READERS
                assert shop.broker.core.metrics.counts.limited == {"topic_get": READERS - rate - 1}
                # Each has read once, and reads once more when it is its turn.
                assert work["reads"] <= READERS + sum(each.done() for each in tasks)
                for each in tasks:
                    each.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    run(scenario)
