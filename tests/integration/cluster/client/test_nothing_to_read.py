"""A consumer without a route to its messages: it raises an error after the limit, and continues to retry."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from cluster import Consumer, RequestFailed
from cluster.client.consumer import group_offsets, queue_reader
from cluster.protocol.errors import Reason
from tests.integration.cluster.client.helpers import consumer_of, take
from tests.integration.cluster.client.scripted_name_server import ScriptedNameServer
from tests.support.waiting import PATIENCE_S, run, until

MakeBroker = Callable[..., Any]


@pytest.mark.parametrize("mode", ["cluster", "broadcast"])
def test_an_unknown_topic_is_reported_after_the_limit_and_read_once_it_exists(
    make_broker: MakeBroker, mode: str
) -> None:
    broker = make_broker({"orders": 1})

    async def main() -> None:
        options = {"mode": mode, "no_route_limit_s": 0.3, "start": "first"}
        async with consumer_of(broker, topics="nothing", **options) as consumer:
            with pytest.raises(RequestFailed, match="nothing of topic 'nothing' could be read") as failed:
                await consumer.poll(timeout_s=PATIENCE_S)
            assert failed.value.reason is Reason.UNKNOWN_TOPIC
            with pytest.raises(RequestFailed):
                await anext(consumer)
            broker.stored.topics["nothing"] = 1
            broker.stored.fill("nothing", 1)
            while True:
                with suppress(RequestFailed):
                    if await consumer.poll(timeout_s=0.1):
                        break

    run(main())


@pytest.mark.parametrize("mode", ["cluster", "broadcast"])
def test_missing_brokers_are_reported_after_the_limit(make_broker: MakeBroker, mode: str) -> None:
    broker = make_broker({"orders": 1})
    broker.stop()

    async def main() -> None:
        async with consumer_of(broker, mode=mode, no_route_limit_s=0.3) as consumer:
            with pytest.raises(RequestFailed, match="nothing of topic 'orders' could be read") as failed:
                await consumer.poll(timeout_s=PATIENCE_S)
            assert failed.value.reason is Reason.NOT_REACHED

    run(main())


def test_a_dead_broker_with_known_routes_is_reported_after_the_limit(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 1})
    server = ScriptedNameServer([broker])
    broker.stop()

    async def main() -> None:
        consumer = Consumer(name_servers=server.address, group="g", topics="orders", no_route_limit_s=0.3)
        async with consumer as opened:
            with pytest.raises(RequestFailed, match="admits the consumer to its group") as failed:
                await opened.poll(timeout_s=PATIENCE_S)
            assert failed.value.reason is Reason.NOT_REACHED

    try:
        run(main())
    finally:
        server.stop()


def test_a_dead_broker_that_was_read_is_reported_after_the_limit(make_broker: MakeBroker, monkeypatch: Any) -> None:
    monkeypatch.setattr(group_offsets, "_TIMEOUT_S", 0.1)
    broker = make_broker({"orders": 2})
    broker.stored.fill("orders", 5)

    async def main() -> None:
        async with consumer_of(broker, no_route_limit_s=0.5, rebalance_interval_s=0.1, start="first") as consumer:
            assert len(await take(consumer, 5)) == 5
            broker.stop()
            with pytest.raises(RequestFailed, match="nothing of topic 'orders' could be read") as failed:
                await consumer.poll(timeout_s=PATIENCE_S)
            assert failed.value.reason in (Reason.NOT_REACHED, Reason.ANSWER_LOST)

    run(main())


def test_an_idle_topic_is_not_a_failure(make_broker: MakeBroker, monkeypatch: Any) -> None:
    monkeypatch.setattr(queue_reader, "_OPEN_S", 0.0)
    broker = make_broker({"orders": 1})

    async def main() -> None:
        async with consumer_of(broker, no_route_limit_s=1.0, rebalance_interval_s=0.05) as consumer:
            await until(lambda: consumer.queues)
            broker.break_streams()
            # Streams are open again, and deliver nothing.
            assert await consumer.poll(timeout_s=1.5) == []

    run(main())
