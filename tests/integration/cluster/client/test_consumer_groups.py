"""Several consumers of one group against brokers in memory: the assignment of queues, and its effect on messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from cluster import Consumer, RequestFailed
from cluster.client.routing import cache as route_cache
from tests.integration.cluster.client.helpers import bodies, consumer_of, numbers, take
from tests.support.waiting import PATIENCE_S, run, until

if TYPE_CHECKING:
    from cluster.client.routing.queue_choice import BrokerQueue

MakeBroker = Callable[..., Any]


def shares(*consumers: Any) -> list[set[BrokerQueue]]:
    return [set(consumer.queues) for consumer in consumers]


@pytest.mark.parametrize(
    ("allocation", "expected"), [("average", [[0, 1, 2], [3, 4]]), ("circle", [[0, 2, 4], [1, 3]])]
)
def test_consumers_of_a_group_share_the_queues_and_rebalance_when_one_leaves(
    make_broker: MakeBroker, allocation: str, expected: list[list[int]]
) -> None:
    broker = make_broker({"orders": 5})
    options = {"allocation": allocation}

    async def main() -> None:
        async with consumer_of(broker, client_id="a", **options) as first:
            await until(lambda: len(first.queues) == 5)
            async with consumer_of(broker, client_id="b", **options) as second:
                await until(lambda: [[queue.queue_id for queue in each.queues] for each in (first, second)] == expected)
            await until(lambda: len(first.queues) == 5)

    run(main())


def test_every_message_reaches_the_group_once_while_consumers_join_and_leave(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 4})

    async def main() -> list[tuple[int, int]]:
        seen: list[tuple[int, int]] = []

        async def drain(*consumers: Any, total: int) -> None:
            while len(set(seen)) < total:
                for consumer in consumers:
                    seen.extend((each.queue_id, each.queue_offset) for each in await consumer.poll(100, 0.05))

        async with consumer_of(broker, client_id="a") as first:
            for queue_id in range(4):
                broker.stored.fill("orders", 50, queue_id=queue_id)
            await drain(first, total=200)
            await first.poll(1, 0.0)
            # The previous owner of a queue commits, and the next one waits a little: on a busy machine not long enough.
            broker.committed_from = 50
            async with consumer_of(broker, client_id="b") as second:
                await until(lambda: [2, 2] == [len(each) for each in shares(first, second)])
                for queue_id in range(4):
                    broker.stored.fill("orders", 50, queue_id=queue_id)
                await drain(first, second, total=400)
                await second.poll(1, 0.0)
            await until(lambda: len(first.queues) == 4)
            for queue_id in range(4):
                broker.stored.fill("orders", 50, queue_id=queue_id)
            await drain(first, total=600)
        return seen

    seen = run(main())
    assert [(queue_id, offset) for queue_id in range(4) for offset in range(150)] == sorted(seen)


def test_second_client_with_the_same_id_is_refused_and_the_first_continues(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 1})

    async def main() -> None:
        async with consumer_of(broker, client_id="a") as first:
            await until(lambda: bool(first.queues))
            async with consumer_of(broker, client_id="a") as second:
                with pytest.raises(RequestFailed, match="CLIENT_ID_IN_USE"):
                    await second.poll(1, PATIENCE_S)
            broker.stored.fill("orders", 2)
            assert numbers(2) == bodies(await take(first, 2))

    run(main())


def test_broadcast_gives_all_consumers_everything_and_keeps_no_offset(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 2})
    for queue_id in (0, 1):
        broker.stored.fill("orders", 20, queue_id=queue_id)

    async def main() -> None:
        async with (
            consumer_of(broker, mode="broadcast") as first,
            consumer_of(broker, mode="broadcast") as second,
        ):
            for consumer in (first, second):
                assert 40 == len({(each.queue_id, each.queue_offset) for each in await take(consumer, 40)})

    run(main())
    assert {} == broker.stored.offsets


def test_orderly_queue_moves_only_when_none_of_its_messages_is_being_processed(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 2})
    for queue_id in (0, 1):
        broker.stored.fill("orders", 20, queue_id=queue_id)

    async def main() -> None:
        # Messages are processed only when acknowledged; otherwise the first queue would be when `take` requests more.
        options = {"is_orderly": True, "is_auto_acknowledged": False}
        async with consumer_of(broker, client_id="a", **options) as first:
            await until(lambda: len(first.queues) == 2)
            at_work = await take(first, 40)
            async with consumer_of(broker, client_id="b", **options) as second:
                await until(lambda: len(first.queues) == 1)
                assert [] == await second.poll(1, 1.0)
                assert [] == second.queues
                first.acknowledge(at_work)
                await until(lambda: len(second.queues) == 1)
                broker.stored.fill("orders", 1, queue_id=second.queues[0].queue_id)
                message = (await take(second, 1))[0]
                # All earlier messages were processed by the first one, and committed before the lock was released.
                assert 20 == message.queue_offset
                assert 40 == len(at_work)
        assert {} == broker.stored.locks

    run(main())


def test_consumers_of_several_brokers_follow_routes_of_name_servers(
    make_broker: MakeBroker, make_name_server: Callable[..., Any]
) -> None:
    brokers = [make_broker({"orders": 2}, name="b0"), make_broker({"orders": 2}, name="b1")]
    server = make_name_server(*brokers)
    for broker in brokers:
        broker.stored.fill("orders", 10, queue_id=1)

    async def main() -> None:
        consumer = Consumer(name_servers=server.address, group="g", topics=["orders"], start="first")
        async with consumer as opened:
            messages = await take(opened, 20)
            assert 20 == len({(each.broker, each.queue_offset) for each in messages})
            server.stop()
            brokers[0].stored.fill("orders", 5, queue_id=0)
            assert numbers(5) == bodies(await take(opened, 5))

    run(main())


def test_queues_added_to_a_topic_later_are_assigned_and_read(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route_cache, "REFRESH_INTERVAL_MS", 100)
    broker = make_broker({"orders": 2})
    options = {"rebalance_interval_s": 0.2}

    async def main() -> None:
        async with (
            consumer_of(broker, client_id="a", **options) as first,
            consumer_of(broker, client_id="b", **options) as second,
        ):
            await until(lambda: [1, 1] == [len(each) for each in shares(first, second)])
            broker.stored.topics["orders"] = 6
            broker.stored.fill("orders", 10, queue_id=5)
            await until(lambda: [3, 3] == [len(each) for each in shares(first, second)])
            assert not set.intersection(*shares(first, second))
            assert numbers(10) == bodies(await take(second, 10))

    run(main())


@pytest.mark.parametrize("max_attempts", [0, 3])
def test_orderly_loop_processes_a_failed_message_again_before_the_next_one(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch, max_attempts: int
) -> None:
    monkeypatch.setattr("cluster.client.consumer.async_consumer._SUSPENSION_S", 0.01)
    broker = make_broker({"orders": 1})
    broker.stored.fill("orders", 4)

    async def main() -> None:
        seen: list[int] = []
        dead: list[tuple[int, int]] = []

        async def handler(message: Any) -> None:
            seen.append(message.queue_offset)
            if message.queue_offset == 1 and seen.count(1) < 4:
                raise ValueError("not yet")

        async with consumer_of(broker, is_orderly=True, max_attempts=max_attempts) as consumer:

            async def nack(message: Any, delay_level: int) -> None:
                dead.append((message.queue_offset, delay_level))
                consumer.acknowledge(message)

            monkeypatch.setattr(consumer, "nack", nack)
            running = asyncio.ensure_future(consumer.run(handler))
            await until(lambda: 3 in seen)
            running.cancel()
            await asyncio.wait([running])
        attempts = max_attempts or 4
        assert seen == [0, *[1] * attempts, 2, 3]
        assert dead == ([(1, -1)] if max_attempts else [])

    run(main())


def test_orderly_loop_leaves_a_failed_message_to_the_consumer_that_gets_the_queue(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.client.consumer.async_consumer._SUSPENSION_S", 0.01)
    broker = make_broker({"orders": 1})
    broker.stored.fill("orders", 3)

    async def main() -> None:
        seen: list[int] = []

        async def failing(message: Any) -> None:
            seen.append(message.queue_offset)
            raise ValueError

        async with consumer_of(broker, client_id="b", is_orderly=True) as first:
            running = asyncio.ensure_future(first.run(failing))
            await until(lambda: len(seen) > 2)
            # The consumer with the lesser name gets the only queue.
            async with consumer_of(broker, client_id="a", is_orderly=True) as second:
                assert numbers(3) == bodies(await take(second, 3))
            running.cancel()
            await asyncio.wait([running])
        assert set(seen) == {0}

    run(main())


def test_orderly_consumer_delivers_nothing_before_it_has_its_locks_again(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 1})
    broker.stored.fill("orders", 20)

    async def main() -> None:
        async with consumer_of(broker, is_orderly=True, is_auto_acknowledged=False) as consumer:
            assert numbers(5) == bodies([await anext(consumer) for _ in range(5)])
            # The broker is unreachable and has dropped the lock, which another consumer has now.
            broker.stored.locks["g", "orders", 0] = "other"
            broker.break_streams()
            await until(lambda: not consumer.queues)
            assert [] == await consumer.poll(10, 0.1)
            del broker.stored.locks["g", "orders", 0]
            # Messages in work when the queue was lost are delivered again; all in order.
            assert numbers(20) == bodies(await take(consumer, 20))

    run(main())
