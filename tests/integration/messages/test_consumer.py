"""The consumer against brokers in memory: what it gets, where it begins, what is committed, who reads which queues."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from cluster import Consumer, OutgoingMessage, Producer, RequestFailed
from cluster.client.queue_choice import BrokerQueue
from cluster.errors import Reason
from dledger.event_loop import new_event_loop

MakeBroker = Callable[..., Any]
PATIENCE_S = 20.0


def run(main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(asyncio.wait_for(main, 2 * PATIENCE_S))


def consumer_of(broker: Any, **options: Any) -> Consumer:
    options = {"group": "g", "topics": "orders", "start": "first"} | options
    return Consumer(broker if isinstance(broker, str) else broker.address, **options)


async def take(consumer: Any, count: int) -> list[Any]:
    """Poll until that many messages came."""
    messages: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(messages) < count and time.monotonic() < deadline:
        messages += await consumer.poll(count - len(messages), 0.5)
    return messages


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        await asyncio.sleep(0.01)


def bodies(messages: list[Any]) -> list[bytes]:
    return [message.body.rstrip() for message in messages]


def numbers(count: int, begin: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(begin, count)]


def offset_of(broker: Any, queue_id: int = 0, group: str = "g") -> int:
    return broker.stored.offsets.get((group, "orders", queue_id), (-1, 0))[0]


# ------------------------------------------------------------------------------------------------------------ reading


def test_messages_of_a_queue_come_in_order_and_then_those_that_are_put_later(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 1})
    broker.stored.fill("orders", 250)

    async def main() -> None:
        async with consumer_of(broker) as consumer:
            assert numbers(250) == bodies(await take(consumer, 250))
            broker.stored.fill("orders", 3)
            later = await take(consumer, 3)
            assert numbers(3) == bodies(later)
            assert [250, 251, 252] == [message.queue_offset for message in later]

    run(main())


def test_async_for_and_for_give_what_was_sent(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 2})
    with Producer(broker.address) as producer:
        sent = producer.send("orders", b"body" * 2_000, tags="paid", keys=["k1", "k2"])

    async def main() -> Any:
        async with consumer_of(broker) as consumer:
            return await anext(consumer)

    with consumer_of(broker, group="h") as consumer:
        messages = [run(main()), next(iter(consumer))]
    for message in messages:
        assert (b"body" * 2_000, "paid", ["k1", "k2"]) == (message.body, message.tags, message.keys)
        assert sent.unique_key == message.unique_key
        assert (sent.queue_id, sent.queue_offset, "b0") == (message.queue_id, message.queue_offset, message.broker)


@pytest.mark.parametrize(("start", "expected"), [("first", 0), ("last", 5), (1_000, 2)])
def test_group_without_an_offset_begins_where_it_is_told(
    make_broker: MakeBroker, start: str | int, expected: int
) -> None:
    broker = make_broker({"orders": 1})
    broker.stored.fill("orders", 5)

    async def main() -> Any:
        async with consumer_of(broker, start=start) as consumer:
            await until(lambda: bool(consumer.queues) and bool(broker.subscribed))
            broker.stored.fill("orders", 1)
            return (await take(consumer, 1))[0].queue_offset

    assert expected == run(main())


def test_only_messages_with_the_tags_come_and_the_others_count_as_done(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 1})
    for tags in ("a", "b", "c", "a"):
        broker.stored.fill("orders", 2, tags=tags)

    async def main() -> None:
        async with consumer_of(broker, topics={"orders": "a || b"}, commit_interval_s=0.05) as consumer:
            assert ["a", "a", "b", "b", "a", "a"] == [each.tags for each in await take(consumer, 6)]
            broker.stored.fill("orders", 3, tags="c")
            await consumer.poll(1, 0.1)
            await until(lambda: offset_of(broker) >= 8)

    run(main())


def test_expired_messages_are_skipped_and_an_offset_beyond_the_end_is_told(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 2})
    broker.stored.fill("orders", 5, queue_id=0)
    broker.stored.firsts["orders", 0] = 3
    broker.stored.offsets["g", "orders", 0] = (1, 0)
    broker.stored.offsets["g", "orders", 1] = (7, 0)

    async def main() -> None:
        async with consumer_of(broker) as consumer:
            offsets, reasons = [], []
            while not (reasons and len(offsets) == 2):
                try:
                    offsets += [each.queue_offset for each in await consumer.poll(10, 0.2)]
                except RequestFailed as failure:
                    reasons.append(failure.reason)
            assert ([3, 4], [Reason.OFFSET_BEYOND_END]) == (offsets, reasons)

    run(main())
    assert 7 == offset_of(broker, 1)


def test_broken_streams_and_new_leaders_lose_nothing_and_repeat_nothing(make_broker: MakeBroker) -> None:
    first = make_broker({"orders": 2})
    second = make_broker(beside=first)

    async def main() -> list[Any]:
        messages: list[Any] = []
        async with consumer_of(first) as consumer:
            for round_ in range(6):
                for queue_id in (0, 1):
                    first.stored.fill("orders", 150, queue_id=queue_id)
                messages += await take(consumer, 200)
                if round_ % 2:
                    first.break_streams()
                    second.break_streams()
                else:
                    new = second if first.leader is first else first
                    new.leader = new
                    (first if new is second else second).follow(new)
            return messages + await take(consumer, 6 * 300 - len(messages))

    places = [(message.queue_id, message.queue_offset) for message in run(main())]
    assert [(queue_id, offset) for queue_id in (0, 1) for offset in range(900)] == sorted(places)
    for queue_id in (0, 1):
        offsets = [offset for each, offset in places if each == queue_id]
        assert sorted(offsets) == offsets


def test_consumer_that_does_not_consume_holds_no_more_than_its_bounds(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 1})
    broker.messages_per_response = 50
    broker.stored.fill("orders", 2_000, size=10_000)

    async def main() -> None:
        async with consumer_of(broker, prefetch_messages=100, prefetch_size_bytes=1 << 20) as consumer:
            reader = None
            while reader is None or not reader._count:
                await asyncio.sleep(0.01)
                reader = next(iter(consumer._rebalancer.readers.values()), None)
            await asyncio.sleep(0.3)
            assert reader._count <= 100 + 50
            # What is not read is held back by the connection: the broker is not even asked for the rest.
            assert broker.sent_messages < 2_000
            assert numbers(2_000) == bodies(await take(consumer, 2_000))

    run(main())


# ------------------------------------------------------------------------------------------------------------- offsets


def test_closing_commits_what_is_done_with_and_no_more(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 1})
    broker.stored.fill("orders", 10)

    async def main() -> None:
        async with consumer_of(broker) as consumer:
            count = 0
            async for _ in consumer:
                count += 1
                if count == 4:
                    break

    run(main())
    # The fourth was at work when the loop was left.
    assert 3 == offset_of(broker)


def test_messages_that_no_consumer_was_done_with_come_again(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 1})
    broker.stored.fill("orders", 10)

    async def main(expected: list[bytes], count: int) -> None:
        async with consumer_of(broker) as consumer:
            assert expected == bodies(await take(consumer, count))

    run(main(numbers(4), 4))
    run(main(numbers(10), 10))


def test_acknowledged_out_of_order_only_the_contiguous_part_is_committed(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 1})
    broker.stored.fill("orders", 10)

    async def main() -> None:
        async with consumer_of(broker, is_auto_acknowledged=False) as consumer:
            messages = await take(consumer, 10)
            consumer.acknowledge(messages[1:5])
            await consumer.commit()
            assert -1 == offset_of(broker)
            consumer.acknowledge(messages[0])
            await consumer.commit()
            assert 5 == offset_of(broker)

    run(main())
    assert 5 == offset_of(broker)


def test_offsets_are_committed_in_their_interval(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 1})
    broker.stored.fill("orders", 10)

    async def main() -> None:
        async with consumer_of(broker, commit_interval_s=0.05) as consumer:
            await take(consumer, 10)
            await consumer.poll(1, 0.0)
            await until(lambda: offset_of(broker) == 10)

    run(main())


def test_blocking_consumer_commits_what_its_loop_is_done_with(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 1})
    broker.stored.fill("orders", 10)

    with consumer_of(broker) as consumer:
        for number, _ in enumerate(consumer):
            if number == 6:
                break
    assert 6 == offset_of(broker)


def test_queue_whose_offset_was_reset_is_read_anew_from_there(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 1})
    broker.stored.fill("orders", 10)

    async def main() -> None:
        async with consumer_of(broker, commit_interval_s=0.05) as consumer:
            await take(consumer, 5)
            broker.stored.offsets["g", "orders", 0] = (2, 1)
            messages = []
            while not messages or messages[-1].queue_offset != 2:
                messages += await consumer.poll(1, 0.5)
            assert [2, 3, 4] == [messages[-1].queue_offset, *(each.queue_offset for each in await take(consumer, 2))]

    run(main())


# -------------------------------------------------------------------------------------------------------------- groups


def shares(*consumers: Any) -> list[set[BrokerQueue]]:
    return [set(consumer.queues) for consumer in consumers]


@pytest.mark.parametrize(
    ("allocation", "expected"), [("average", [[0, 1, 2], [3, 4]]), ("circle", [[0, 2, 4], [1, 3]])]
)
def test_consumers_of_a_group_share_the_queues_and_share_anew_when_one_leaves(
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


def test_every_message_reaches_the_group_once_while_consumers_come_and_go_between(make_broker: MakeBroker) -> None:
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


def test_second_client_with_the_same_id_is_refused_and_the_first_goes_on(make_broker: MakeBroker) -> None:
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


def test_orderly_queue_changes_hands_only_when_nothing_of_it_is_at_work(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 2})
    for queue_id in (0, 1):
        broker.stored.fill("orders", 20, queue_id=queue_id)

    async def main() -> None:
        async with consumer_of(broker, client_id="a", is_orderly=True) as first:
            await until(lambda: len(first.queues) == 2)
            at_work = await take(first, 40)
            async with consumer_of(broker, client_id="b", is_orderly=True) as second:
                await until(lambda: len(first.queues) == 1)
                assert [] == await second.poll(1, 1.0)
                assert [] == second.queues
                await first.poll(1, 0.0)
                await until(lambda: len(second.queues) == 1)
                broker.stored.fill("orders", 1, queue_id=second.queues[0].queue_id)
                message = (await take(second, 1))[0]
                # Everything before was done with by the first one, and committed before the lock was given back.
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


def test_topic_that_comes_later_is_found(make_broker: MakeBroker) -> None:
    broker = make_broker({"other": 1})

    async def main() -> None:
        async with consumer_of(broker) as consumer:
            assert [] == await consumer.poll(1, 0.1)
            broker.stored.topics["orders"] = 1
            broker.stored.fill("orders", 1)
            assert numbers(1) == bodies(await take(consumer, 1))

    run(main())


def test_what_a_producer_sends_a_consumer_gets(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 4})

    async def main() -> None:
        async with Producer(broker.address) as producer, consumer_of(broker) as consumer:
            for number in range(1_000):
                producer.submit(OutgoingMessage("orders", b"%d" % number))
            await producer.flush()
            assert sorted(numbers(1_000)) == sorted(bodies(await take(consumer, 1_000)))

    run(main())


def test_wrong_settings_are_told_when_the_consumer_is_made() -> None:
    for options, text in (
        ({"topics": []}, "at least one"),
        ({"start": "middle"}, "start"),
        ({"mode": "both"}, "mode"),
        ({"mode": "broadcast", "is_orderly": True}, "is_orderly"),
        ({"allocation": "fair"}, "allocation"),
    ):
        with pytest.raises(ValueError, match=text):
            consumer_of("127.0.0.1:1", **options)
