"""The consumer against brokers in memory: messages, start offsets, commits, assignment of queues."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from cluster import OutgoingMessage, Producer, RequestFailed, SkippedMessages
from cluster.client.routing.broker_nodes import BrokerNodes
from cluster.protocol.errors import Reason
from tests.integration.cluster.client.helpers import bodies, consumer_of, numbers, offset_of, take
from tests.support.waiting import PATIENCE_S, run, until

MakeBroker = Callable[..., Any]


# ------------------------------------------------------------------------------------------------------------ reading


def test_messages_of_a_queue_are_delivered_in_order_and_then_new_ones(make_broker: MakeBroker) -> None:
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


def test_async_for_and_for_deliver_the_sent_messages(make_broker: MakeBroker) -> None:
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
def test_group_without_an_offset_begins_at_start(make_broker: MakeBroker, start: str | int, expected: int) -> None:
    broker = make_broker({"orders": 1})
    broker.stored.fill("orders", 5)

    async def main() -> Any:
        async with consumer_of(broker, start=start) as consumer:
            await until(lambda: bool(consumer.queues) and bool(broker.subscribed))
            broker.stored.fill("orders", 1)
            return (await take(consumer, 1))[0].queue_offset

    assert expected == run(main())


def test_only_messages_with_the_tags_are_delivered_and_the_others_count_as_processed(make_broker: MakeBroker) -> None:
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


def test_expired_messages_are_skipped_and_an_offset_beyond_the_end_is_reported(make_broker: MakeBroker) -> None:
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


@pytest.mark.parametrize("tags", ["*", "paid"])
def test_message_damaged_on_the_leader_is_delivered_from_another_node_in_order(
    make_broker: MakeBroker, tags: str
) -> None:
    leader = make_broker({"orders": 1})
    first, second = make_broker(beside=leader), make_broker(beside=leader)
    for _ in range(10):
        leader.stored.fill("orders", 1, tags="paid")
        leader.stored.fill("orders", 1, tags="open")
    # No node has 8 and 9; what the first follower lacks the second one has.
    leader.damaged, first.damaged, second.damaged = (
        frozenset({4, 8, 9, 12, 13}),
        frozenset({4, 8, 9}),
        frozenset({8, 9}),
    )
    reported: list[SkippedMessages] = []

    async def main() -> list[int]:
        async with consumer_of(leader, topics={"orders": tags}, on_skipped=reported.append) as consumer:
            wanted = [at for at in range(20) if at not in (8, 9) and (tags == "*" or not at % 2)]
            messages = await take(consumer, len(wanted))
            assert wanted == [message.queue_offset for message in messages]
            await consumer.poll(1, 0.0)
        return wanted

    run(main())
    assert [(8, 10)] == [(each.begin, each.end) for each in reported]
    assert 20 == offset_of(leader)
    assert 0 < first.gets + second.gets < 20


def test_the_wait_for_a_silent_node_occurs_once_and_not_for_each_damaged_message(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cluster.client.consumer.replica_fallback._PATIENCE_S", 0.3)
    caplog.set_level(logging.INFO, "cluster.client.consumer.replica_fallback")
    leader = make_broker({"orders": 1})
    sound, silent = make_broker(beside=leader), make_broker(beside=leader)
    silent.stop()
    leader.stored.fill("orders", 20)
    leader.damaged, sound.damaged = frozenset(range(0, 20, 2)), frozenset(range(0, 10, 2))
    reported: list[SkippedMessages] = []

    async def main() -> None:
        async with consumer_of(leader, on_skipped=reported.append) as consumer:
            assert [b"%d" % at for at in range(20) if at % 2 or at >= 10] == [
                body.strip() for body in bodies(await take(consumer, 15))
            ]

    run(main())
    assert [0, 2, 4, 6, 8] == [each.begin for each in reported]
    tried = [record.args[1] for record in caplog.records if silent.address in record.getMessage()]
    assert {0} == set(tried)


def test_damaged_messages_of_a_broker_of_one_node_are_reported_at_once(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 1})
    broker.stored.fill("orders", 6)
    broker.damaged = frozenset({0, 5})
    reported: list[SkippedMessages] = []

    async def main() -> None:
        async with consumer_of(broker, on_skipped=reported.append) as consumer:
            assert [b"1", b"2", b"3", b"4"] == bodies(await take(consumer, 4))
            broker.stored.fill("orders", 1)
            assert [b"0"] == bodies(await take(consumer, 1))

    run(main())
    assert [(0, 1), (5, 6)] == [(each.begin, each.end) for each in reported]
    assert not broker.gets


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


def test_silent_leader_is_abandoned_once_another_call_finds_the_new_one(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise the old one is retried if a busy machine connects late to the new one.
    monkeypatch.setattr(BrokerNodes.reach, "__defaults__", (PATIENCE_S,))
    old = make_broker({"orders": 1})
    new = make_broker(beside=old)
    old.stored.fill("orders", 3)

    async def main() -> None:
        async with consumer_of(old, commit_interval_s=0.05) as consumer:
            assert numbers(3) == bodies(await take(consumer, 3))
            # The old leader sends nothing on its streams; commits are sent to it, and it names the new one.
            old.is_mute = True
            new.leader = old.leader = new
            await consumer.poll(1, 0.0)
            await until(lambda: bool(new.subscribed))
            old.stored.fill("orders", 2)
            assert numbers(2) == bodies(await take(consumer, 2))

    run(main())
    assert 1 == len(old.subscribed)


def test_consumer_that_does_not_consume_prefetches_no_more_than_its_limits(make_broker: MakeBroker) -> None:
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
            # Flow control of the connection limits unread messages: the rest is not even requested.
            assert broker.sent_messages < 2_000
            assert numbers(2_000) == bodies(await take(consumer, 2_000))

    run(main())


# ------------------------------------------------------------------------------------------------------------- offsets


def test_closing_commits_only_processed_messages(make_broker: MakeBroker) -> None:
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
    # The fourth was being processed when the loop ended.
    assert 3 == offset_of(broker)


def test_unprocessed_messages_are_delivered_again(make_broker: MakeBroker) -> None:
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


def test_blocking_consumer_commits_the_messages_that_its_loop_processed(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 1})
    broker.stored.fill("orders", 10)

    with consumer_of(broker) as consumer:
        for number, _ in enumerate(consumer):
            if number == 6:
                break
    assert 6 == offset_of(broker)


def test_queue_whose_offset_was_reset_is_read_again_from_there(make_broker: MakeBroker) -> None:
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


def test_topic_created_later_is_found(make_broker: MakeBroker) -> None:
    broker = make_broker({"other": 1})

    async def main() -> None:
        async with consumer_of(broker) as consumer:
            assert [] == await consumer.poll(1, 0.1)
            broker.stored.topics["orders"] = 1
            broker.stored.fill("orders", 1)
            assert numbers(1) == bodies(await take(consumer, 1))

    run(main())


def test_consumer_gets_what_a_producer_sends(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 4})

    async def main() -> None:
        async with Producer(broker.address) as producer, consumer_of(broker) as consumer:
            for number in range(1_000):
                producer.submit(OutgoingMessage("orders", b"%d" % number))
            await producer.flush()
            assert sorted(numbers(1_000)) == sorted(bodies(await take(consumer, 1_000)))

    run(main())


def test_invalid_settings_are_reported_when_the_consumer_is_created() -> None:
    for options, text in (
        ({"topics": []}, "at least one"),
        ({"start": "middle"}, "start"),
        ({"mode": "both"}, "mode"),
        ({"mode": "broadcast", "is_orderly": True}, "is_orderly"),
        ({"allocation": "fair"}, "allocation"),
    ):
        with pytest.raises(ValueError, match=text):
            consumer_of("127.0.0.1:1", **options)
