"""A topic is deleted and created again while clients use it: offsets continue, and no message is delivered twice."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from cluster import Consumer, NotAppended, Producer
from cluster.api import read_calls
from cluster.process.loop_thread import LoopThread
from cluster.protocol.errors import Reason, RequestFailed
from cluster.v1 import broker_pb2 as pb
from tests.support.brokers.thread import running_broker
from tests.support.waiting import PATIENCE_S

# Nothing is committed before the topic is created again: then missing queues have something to commit, too.
OPTIONS = {"commit_interval_s": 600.0, "start": "first", "no_route_limit_s": 0.3, "rebalance_interval_s": 0.1}


@pytest.mark.parametrize("queues", [2, 1], ids=["as before", "with fewer queues"])
def test_a_recreated_topic_continues_its_offsets_and_delivers_no_old_messages(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, queues: int
) -> None:
    # How often an idle stream checks whether its topic still exists.
    monkeypatch.setattr(read_calls, "_STREAM_WAIT_S", 0.2)
    loop = LoopThread("clients")

    async def scenario(broker: Any) -> None:
        async with (
            Producer(broker.endpoints) as producer,
            Consumer(broker.endpoints, group="g", topics="orders", **OPTIONS) as consumer,
        ):
            for number in range(4):
                await producer.send("orders", b"old", queue_id=number % 2)
            assert {each.body for each in await take(consumer, 4)} == {b"old"}
            await asyncio.to_thread(broker.call, "DeleteTopic", pb.DeleteTopicRequest(topic="orders"))

            with pytest.raises(NotAppended, match="UNKNOWN_TOPIC"):
                await producer.send("orders", b"while deleted", deadline_s=1.0)
            with pytest.raises(RequestFailed, match="nothing of topic 'orders' could be read") as refused:
                await consumer.poll(timeout_s=PATIENCE_S)
            assert refused.value.reason is Reason.UNKNOWN_TOPIC

            await asyncio.to_thread(broker.set_topic, "orders", queues)
            for number in range(queues):
                sent = await producer.send("orders", b"new", queue_id=number)
                assert (sent.queue_id, sent.queue_offset) == (number, 2)
            assert [each.body for each in await take(consumer, queues)] == [b"new"] * queues
            # Even if routes still contain a queue that no longer exists, reading of the others continues.
            await consumer.commit()
        fetched = await asyncio.to_thread(
            broker.call, "FetchOffset", pb.FetchOffsetRequest(group="g", topic="orders", queue_ids=range(queues))
        )
        assert list(fetched.offsets) == [3] * queues

    with running_broker(tmp_path, "orders") as broker:
        try:
            loop.run(scenario(broker))
        finally:
            loop.close()


async def take(consumer: Any, count: int) -> list[Any]:
    """Return that many messages, ignoring other results; the next poll acknowledges them."""
    messages: list[Any] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(messages) < count:
            with suppress(RequestFailed):
                messages += await consumer.poll(timeout_s=0.1)
        with suppress(RequestFailed):
            assert await consumer.poll(timeout_s=0.1) == []
    return messages
