"""A queue moves to another consumer of a group: messages in work are finished and committed first, and none is
delivered twice.

Brokers are in memory, consumers are the real ones. Messages that a program received and did not finish within
`handover_limit_s` are delivered again: delivery is at least once in every case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from cluster import Consumer
from cluster.process.loop_thread import LoopThread
from cluster.protocol.errors import Reason, RequestFailed
from tests.integration.cluster.client.helpers import consumer_of, offset_of, take
from tests.support.waiting import PATIENCE_S, run, until, wait_until

MakeBroker = Callable[..., Any]
# No commits except those of a hand-over, unless a test sets another interval.
RARELY = {"commit_interval_s": 3_600.0, "handover_limit_s": PATIENCE_S}


def places(messages: list[Any]) -> list[tuple[int, int]]:
    return sorted((each.queue_id, each.queue_offset) for each in messages)


ALL = [(queue_id, offset) for queue_id in (0, 1) for offset in range(20)]


def filled(make_broker: MakeBroker) -> Any:
    broker = make_broker({"orders": 2})
    for queue_id in (0, 1):
        broker.stored.fill("orders", 20, queue_id=queue_id)
    return broker


def test_a_queue_moves_when_its_messages_are_processed_and_committed(make_broker: MakeBroker) -> None:
    broker = filled(make_broker)

    async def main() -> None:
        async with consumer_of(broker, client_id="a", is_auto_acknowledged=False, **RARELY) as first:
            at_work = await take(first, 30)
            async with consumer_of(broker, client_id="b", **RARELY) as second:
                await until(lambda: len(first.queues) == 1)
                # Messages are in work, and the group's offset is before them: the second one waits.
                assert (await second.poll(1, 1.0), second.queues) == ([], [])
                first.acknowledge(at_work)
                await until(lambda: len(second.queues) == 1)
                (queue,) = second.queues
                missing = [place for place in ALL if place not in places(at_work)]
                rest = await take(second, sum(place[0] == queue.queue_id for place in missing))
                rest += await take(first, len(missing) - len(rest))
                first.acknowledge(rest)
                assert places(at_work + rest) == ALL

    run(main())


@pytest.mark.parametrize("is_orderly", [False, True], ids=["shared", "orderly"])
def test_unprocessed_messages_of_a_loop_go_to_the_next_consumer(make_broker: MakeBroker, is_orderly: bool) -> None:
    """`async for` and `for` fetch many messages at once; those of a revoked queue are neither lost nor late."""
    broker = filled(make_broker)

    async def main() -> None:
        async with consumer_of(broker, client_id="a", is_orderly=is_orderly, **RARELY) as first:
            seen = [await anext(first) for _ in range(25)]
            async with consumer_of(broker, client_id="b", is_orderly=is_orderly, **RARELY) as second:
                await until(lambda: len(first.queues) == 1)
                # Requesting the next message means that the previous one is processed.
                asking = asyncio.ensure_future(anext(first))
                found = await take(second, 1)
                while len(seen + found) < len(ALL) - 1:
                    found += await second.poll(20, 0.05)
                    if asking.done():
                        seen.append(asking.result())
                        asking = asyncio.ensure_future(anext(first))
                await until(lambda: asking.done() or len(seen + found) == len(ALL))
                seen += [asking.result()] if asking.done() else []
                asking.cancel()
                assert places(seen + found) == ALL

    run(main())


@pytest.mark.parametrize("is_orderly", [False, True], ids=["shared", "orderly"])
def test_unprocessed_messages_of_a_blocking_loop_are_not_lost(make_broker: MakeBroker, is_orderly: bool) -> None:
    broker = filled(make_broker)
    thread = LoopThread("second")
    seen, found = [], []

    async def opened() -> Any:
        return await Consumer(
            broker.address, group="g", topics="orders", start="first", client_id="b", is_orderly=is_orderly, **RARELY
        ).__aenter__()

    try:
        with consumer_of(broker, client_id="a", is_orderly=is_orderly, **RARELY) as first:
            seen += [next(first) for _ in range(5)]
            second = thread.run(opened())
            wait_until(lambda: len(first.queues) == 1, "the first one gave a queue up")
            for _ in range(20):
                broker.stored.fill("orders", 1, queue_id=first.queues[0].queue_id)
            # All of the other queue, and the messages of this one that were delivered before.
            kept = first.queues[0].queue_id
            while sum(each.queue_id == kept for each in seen) < 40:
                seen.append(next(first))
            wait_until(lambda: len(thread.run(queues(second))) == 1, "the second one took it over")
            found += thread.run(take(second, 20 - sum(each.queue_id != kept for each in seen)))
            thread.run(second.close())
        given = sorted(offset for queue_id, offset in places(seen + found) if queue_id != kept)
        assert given == list(range(20))
    finally:
        thread.close()


async def queues(consumer: Any) -> list[Any]:
    return list(consumer.queues)


def test_consumers_that_leave_cleanly_cause_no_redelivery(make_broker: MakeBroker) -> None:
    broker = filled(make_broker)

    async def main() -> None:
        seen = []
        async with consumer_of(broker, client_id="a", **RARELY) as first:
            for name in "bcd":
                async with consumer_of(broker, client_id=name, is_auto_acknowledged=False, **RARELY) as other:
                    await until(lambda other=other: len(first.queues) == len(other.queues) == 1)
                    messages = await take(other, 3)
                    other.acknowledge(messages)
                    seen += messages
                await until(lambda: len(first.queues) == 2)
            seen += await take(first, len(ALL) - len(seen))
        assert places(seen) == ALL

    run(main())


def test_a_dead_consumer_causes_redelivery_only_since_its_last_commit(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 1})
    broker.stored.fill("orders", 20)

    async def main() -> None:
        dying = await consumer_of(broker, client_id="a", **(RARELY | {"commit_interval_s": 0.05})).__aenter__()
        await take(dying, 8)
        handed_out = await dying.poll(4, PATIENCE_S)
        await until(lambda: offset_of(broker) == 8)
        await dead(dying)
        async with consumer_of(broker, client_id="b", **RARELY) as other:
            assert [each.queue_offset for each in await take(other, 12)] == list(range(8, 20))
        assert [each.queue_offset for each in handed_out] == [8, 9, 10, 11]

    run(main())


async def dead(consumer: Any) -> None:
    """End a consumer like a killed process: it sends nothing to the broker."""
    for task in consumer._tasks:
        task.cancel()
    for reader in list(consumer._rebalancer.readers.values()):
        await reader.stop()
    for member in consumer._rebalancer._members.values():
        await member.stop()
    await consumer._connection.__aexit__()


def test_a_program_that_does_not_finish_delays_a_queue_only_for_a_limited_time(make_broker: MakeBroker) -> None:
    broker = filled(make_broker)

    async def main() -> None:
        options = RARELY | {"handover_limit_s": 0.2}
        async with consumer_of(broker, client_id="a", is_auto_acknowledged=False, **options) as first:
            at_work = await take(first, 40)
            async with consumer_of(broker, client_id="b", **options) as second:
                again = await take(second, 20)
                assert set(places(again)) < set(places(at_work))

    run(main())


def test_consumers_continue_at_a_leader_without_locks(make_broker: MakeBroker) -> None:
    """Without `is_orderly` locks only avoid repeats: if another consumer seems to have the lock, reading continues."""
    broker = make_broker({"orders": 1})
    broker.stored.fill("orders", 20)

    async def main() -> None:
        async with consumer_of(broker, **(RARELY | {"handover_limit_s": 0.1})) as consumer:
            seen = await take(consumer, 5)
            broker.stored.locks["g", "orders", 0] = "other"
            broker.break_streams()
            seen += await take(consumer, 15)
            assert [each.queue_offset for each in seen] == list(range(20))

    run(main())


def test_a_failure_that_is_raised_in_a_loop_loses_no_message(make_broker: MakeBroker) -> None:
    broker = make_broker({"orders": 1})
    broker.stored.fill("orders", 20)

    async def main() -> None:
        async with consumer_of(broker) as consumer:
            seen = [await anext(consumer) for _ in range(5)]
            consumer._on_failure(RequestFailed(Reason.UNKNOWN_TOPIC, "of another topic"))
            with pytest.raises(RequestFailed, match="of another topic"):
                await anext(consumer)
            seen += [await anext(consumer) for _ in range(15)]
            assert [each.queue_offset for each in seen] == list(range(20))

    run(main())
