"""The producer against brokers in memory: batches, their order, and the queue in the client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from cluster import MessageAppended, MessageNotAppended, OutgoingMessage, Producer, RequestFailed, SendsFailed
from cluster.protocol.errors import Reason
from tests.integration.cluster.client.helpers import bodies_of, kinds
from tests.support.waiting import PATIENCE_S, SCENARIO_LIMIT_S, run

MakeBroker = Callable[..., Any]


def test_illegal_message_does_not_affect_the_rest_of_its_batch(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.refuse(Reason.ILLEGAL_MESSAGE, times=2)

    async def main() -> list[Any]:
        async with Producer(broker.address) as producer:
            await producer.queues("orders")
            sends = [producer.send("orders", b"%d" % number) for number in range(5)]
            return await asyncio.gather(*sends, return_exceptions=True)

    outcomes = run(main())

    # Once for all of them together, once for the first one alone.
    assert [MessageNotAppended] + [MessageAppended] * 4 == kinds(outcomes)


def test_concurrent_messages_share_batches(make_broker: MakeBroker) -> None:
    broker = make_broker()

    async def main() -> None:
        async with Producer(broker.address) as producer:
            await asyncio.gather(*(producer.send("orders", b"%d" % number) for number in range(500)))

    run(main())

    assert sorted(b"%d" % number for number in range(500)) == bodies_of(broker)
    assert len(broker.requests) <= 8


def test_single_message_waits_for_others_only_for_the_linger(make_broker: MakeBroker) -> None:
    broker = make_broker()

    async def shortest(linger_ms: float, sends: int) -> float:
        took: list[float] = []
        async with Producer(broker.address, linger_ms=linger_ms) as producer:
            for _ in range(sends):
                began = time.monotonic()
                await producer.send("orders", b"a")
                took.append(time.monotonic() - began)
        return min(took)

    assert run(shortest(400, 2)) >= 0.4
    # A busy machine may take as long for one of them.
    assert run(shortest(0, 20)) < 0.4


def test_flush_does_not_wait_for_the_linger(make_broker: MakeBroker) -> None:
    broker = make_broker()

    async def main() -> float:
        async with Producer(broker.address, linger_ms=1000 * SCENARIO_LIMIT_S, deadline_s=SCENARIO_LIMIT_S) as producer:
            began = time.monotonic()
            future = producer.submit(OutgoingMessage("orders", b"a"))
            await producer.queues("orders")
            await producer.flush()
            assert future.done()
            return time.monotonic() - began

    assert run(main()) < PATIENCE_S


def test_messages_of_a_queue_keep_their_order_through_refusals_with_one_batch_in_flight(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker({"orders": 1})
    broker.refuse(Reason.LEADER_NOT_READY, times=2)

    async def main() -> None:
        async with Producer(broker.address, batch_messages_max=7, batches_in_flight_max=1) as producer:
            for number in range(300):
                producer.submit(OutgoingMessage("orders", b"%d" % number), queue_key="k")
                if number % 50 == 0:
                    await asyncio.sleep(0.001)
                if number == 150:
                    broker.refuse(Reason.LEADER_PENDING_FULL)

    run(main())

    assert [b"%d" % number for number in range(300)] == [each.body for each in broker.stored.queues["orders", 0]]


def test_batch_of_one_caller_is_consecutive_in_one_queue(make_broker: MakeBroker) -> None:
    broker = make_broker()

    async def main() -> list[Any]:
        async with Producer(broker.address) as producer:
            batches = [[OutgoingMessage("orders", b"%d" % number)] * 40 for number in range(20)]
            return await asyncio.gather(*map(producer.send_many, batches))

    for number, places in enumerate(run(main())):
        begin = places[0].queue_offset
        assert list(range(begin, begin + 40)) == [place.queue_offset for place in places]
        queue = broker.stored.queues["orders", places[0].queue_id]
        assert {b"%d" % number} == {queue[place.queue_offset].body for place in places}


def test_full_queue_refuses_what_is_submitted_and_lets_senders_wait(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.refuse(Reason.LEADER_NOT_READY, times=1_000)

    async def main() -> list[Any]:
        async with Producer(broker.address, queue_messages_max=2, deadline_s=SCENARIO_LIMIT_S) as producer:
            sends = [asyncio.ensure_future(producer.send("orders", b"a")) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(MessageNotAppended, match="CLIENT_QUEUE_FULL"):
                producer.submit(OutgoingMessage("orders", b"b"))
            waiting = await asyncio.gather(producer.send("orders", b"c", deadline_s=0.1), return_exceptions=True)
            # Only now may the others free space.
            broker.refuse(Reason.DISK_FULL, times=2, is_first=True)
            return [*waiting, *await asyncio.gather(*sends, return_exceptions=True)]

    outcomes = run(main())

    assert (MessageNotAppended, Reason.CLIENT_QUEUE_FULL) == (type(outcomes[0]), outcomes[0].reason)
    assert all(isinstance(outcome, RequestFailed) for outcome in outcomes[1:])


def test_deadline_of_a_message_applies_after_one_with_a_later_deadline(make_broker: MakeBroker) -> None:
    broker = make_broker()

    async def main() -> Any:
        async with Producer(broker.address) as producer:
            await producer.queues("orders")
            broker.stop()
            patient = asyncio.ensure_future(producer.send("orders", b"a", deadline_s=SCENARIO_LIMIT_S))
            (outcome,) = await asyncio.gather(producer.send("orders", b"b", deadline_s=0.3), return_exceptions=True)
            assert not patient.done()
            patient.cancel()
            return outcome

    began = time.monotonic()
    assert isinstance(run(main()), MessageNotAppended)
    assert time.monotonic() - began < PATIENCE_S


def test_closing_sends_submitted_messages_and_reports_failures(make_broker: MakeBroker) -> None:
    broker = make_broker()

    async def well() -> None:
        async with Producer(broker.address) as producer:
            for _ in range(10):
                producer.submit(OutgoingMessage("orders", b"a"))

    async def ill() -> None:
        async with Producer(broker.address) as producer:
            await producer.send("orders", b"b")
            broker.refuse(Reason.DISK_FULL)
            for _ in range(3):
                producer.submit(OutgoingMessage("orders", b"c"))

    run(well())
    assert [b"a"] * 10 == bodies_of(broker)
    with pytest.raises(SendsFailed) as caught:
        run(ill())
    assert 3 == caught.value.count
    assert [MessageNotAppended] * 3 == kinds(caught.value.outcomes)


def test_closed_producer_sends_nothing(make_broker: MakeBroker) -> None:
    broker = make_broker()

    async def main() -> None:
        async with Producer(broker.address) as producer:
            await producer.send("orders", b"a")
        with pytest.raises(MessageNotAppended, match="CLIENT_CLOSED"):
            await producer.send("orders", b"b")

    run(main())
    assert [b"a"] == bodies_of(broker)


def test_cancelled_sender_does_not_disturb_others(make_broker: MakeBroker) -> None:
    broker = make_broker()

    async def main() -> Any:
        async with Producer(broker.address) as producer:
            leaver = asyncio.ensure_future(producer.send("orders", b"leaver"))
            stayer = asyncio.ensure_future(producer.send("orders", b"stayer"))
            await asyncio.sleep(0)
            leaver.cancel()
            return await stayer

    assert isinstance(run(main()), MessageAppended)
    assert b"stayer" in bodies_of(broker)
