"""Producer and consumer with real brokers: in this process, and as processes that are killed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from cluster import MessageNotAppended, OutgoingMessage, Producer, RecallOutcome, RequestFailed
from cluster.v1 import broker_pb2 as pb
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from tests.integration.cluster.client.helpers import bodies, consumer_of, numbers, take
from tests.support.brokers.consumer_process import ConsumerProcess, shared_out
from tests.support.brokers.process import BrokerProcess
from tests.support.waiting import PATIENCE_S, SCENARIO_LIMIT_S, run, until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow


SETTINGS = {
    "mapped_file_size": 4 << 20,
    "max_hash_slot_num": 1_000,
    "max_index_num": 4_000,
    "dedupe_window_count": 10_000,
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Return a broker in a separate process, with a topic of four queues."""
    process = BrokerProcess(tmp_path / "store", **SETTINGS)
    process.start()
    with grpc.insecure_channel(process.address) as channel:
        topic = pb.Topic(name="orders", read_queues=4, write_queues=4, permission=6)
        BrokerServiceStub(channel).SetTopic(pb.SetTopicRequest(topic=topic), timeout=PATIENCE_S)
    yield process
    process.kill()


def test_message_for_a_time_is_received_at_it_or_recalled(broker: BrokerProcess) -> None:
    with Producer(broker.address) as producer:
        begin_s = time.time()  # noqa: TID251  (the broker's clock)
        at = producer.send("orders", b"at", deliver_at=datetime.fromtimestamp(begin_s + 0.8, UTC), queue_id=0)
        soon = producer.send("orders", b"soon", delay_s=0.3, queue_id=0)
        later = producer.send("orders", b"later", delay_s=3_600)
        assert at.recall_handle != soon.recall_handle
        assert producer.send("orders", b"now", queue_id=1).recall_handle == ""
        assert producer.recall(later.recall_handle) is RecallOutcome.RECALLED
        assert producer.recall(later.recall_handle) is RecallOutcome.RECALLED
        with pytest.raises(RequestFailed, match="recall handle"):
            producer.recall("x")
        for wrong in ({"delay_s": -1}, {"deliver_at": datetime(2026, 1, 1)}, {"delay_s": 1, "delay_level": 1}):  # noqa: DTZ001
            with pytest.raises(MessageNotAppended, match=r"deliver|delay_s"):
                producer.send("orders", b"x", **wrong)

    async def main() -> list[Any]:
        async with consumer_of(broker) as consumer:
            return await take(consumer, 3)

    received = {each.body: each for each in run(main())}
    assert set(received) == {b"now", b"soon", b"at"}
    assert received[b"at"].queue_offset == received[b"soon"].queue_offset + 1
    assert received[b"at"].store_timestamp >= int((begin_s + 0.8) * 1_000)

    async def recalled() -> RecallOutcome:
        async with Producer(broker.address) as producer:
            return await producer.recall(at.recall_handle)

    assert run(recalled()) is RecallOutcome.DELIVERED


def test_sent_messages_are_received_with_tags_keys_and_positions(broker: BrokerProcess) -> None:
    large = b"large" * 2_000
    with Producer(broker.address) as producer:
        sent = [producer.send("orders", large, tags="paid", keys=["k1"]) for _ in range(8)]
        producer.send("orders", b"other", tags="open")

    async def main() -> list[Any]:
        async with consumer_of(broker, topics={"orders": "paid"}) as consumer:
            return await take(consumer, 8)

    received = run(main())
    expected = {(each.queue_id, each.queue_offset, each.message_id, each.unique_key) for each in sent}
    found = {(each.queue_id, each.queue_offset, each.message_id, each.unique_key) for each in received}
    assert expected == found
    assert {(large, "paid", ("k1",))} == {(each.body, each.tags, tuple(each.keys)) for each in received}


def test_kill_of_a_broker_loses_and_repeats_no_message(broker: BrokerProcess) -> None:
    """The broker is killed twice while messages are sent with retries and received."""

    async def main() -> list[Any]:
        received: list[Any] = []
        async with (
            # Two brokers start within the deadline of the first messages.
            Producer(broker.address, is_unknown_retried=True, deadline_s=SCENARIO_LIMIT_S) as producer,
            consumer_of(broker, commit_interval_s=0.2) as consumer,
        ):
            for life in range(3):
                for number in range(life * 200, life * 200 + 200):
                    producer.submit(OutgoingMessage("orders", b"%d" % number))
                if life < 2:
                    received += await consumer.poll(50, 0.5)
                    await asyncio.to_thread(broker.kill)
                    await asyncio.to_thread(broker.start)
            await producer.flush()
            deadline = time.monotonic() + PATIENCE_S
            while len(received) < 600 and time.monotonic() < deadline:
                received += await consumer.poll(100, 0.5)
        return received

    received = run(main())
    assert sorted(numbers(600)) == sorted(bodies(received))


def test_group_of_processes_reads_everything_when_one_is_killed(broker: BrokerProcess, tmp_path: Path) -> None:
    consumers = {name: ConsumerProcess(tmp_path / name, name, endpoints=broker.address) for name in "abc"}

    def places(*names: str) -> list[tuple[int, int]]:
        return [(queue_id, offset) for name in names for _, queue_id, offset in consumers[name].messages()]

    async def main() -> None:
        async with Producer(broker.address) as producer:

            async def send_all(total: int) -> None:
                for _ in range(100):
                    for queue_id in range(4):
                        producer.submit(OutgoingMessage("orders", b"x"), queue_id=queue_id)
                await producer.flush()
                await until(lambda: len(set(places(*consumers))) == total)

            await until(lambda: shared_out(4, *consumers.values()))
            await send_all(400)
            # Without a reassignment no message is delivered twice.
            assert len(places(*consumers)) == 400
            consumers["b"].kill()
            await until(lambda: shared_out(4, consumers["a"], consumers["c"]))
            await send_all(800)

    try:
        run(main())
    finally:
        # All are paused first: otherwise those that are ended last take over the queues of the others.
        for consumer in consumers.values():
            consumer.pause()
        for consumer in consumers.values():
            consumer.kill()
    assert {(queue_id, offset) for queue_id in range(4) for offset in range(200)} == set(places(*consumers))
    # Repeated messages are those that the killed one received and did not commit; each was repeated once.
    repeated = {place: count for place, count in Counter(places(*consumers)).items() if count > 1}
    assert set(repeated.values()) <= {2}
    assert set(repeated) <= set(places("b"))
