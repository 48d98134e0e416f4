"""A consumer whose process is paused loses its queues to the others, and gets some of them back after it resumes."""

import asyncio

from cluster.v1 import broker_pb2 as pb
from tests.integration.cluster.api.conftest import run
from tests.support.brokers.consumer_process import ConsumerProcess, shared_out
from tests.support.waiting import until

SILENCE_MS = 2_000


def bodies_of(consumer):
    return {(queue, offset) for _, queue, offset in consumer.messages()}


def test_queues_of_a_paused_consumer_move_to_the_others_and_some_return(shop, tmp_path, monkeypatch):
    for module in ("api.group_calls", "broker.group_members"):
        monkeypatch.setattr(f"cluster.{module}.SILENCE_MS_MAX", SILENCE_MS)
    consumers = []

    def start(client_id):
        options = {"endpoints": str(shop.address), "topics": "orders", "beat_s": SILENCE_MS / 5000}
        consumers.append(ConsumerProcess(tmp_path / client_id, client_id, **options))
        return consumers[-1]

    async def put(count):
        for number in range(count):
            assert not (await shop.put(b"x", queue_id=number % 2)).answer.code

    async def scenario():
        async with shop.open():
            one, other = start("a"), start("b")
            await until(lambda: shared_out(2, one, other), "two share the queues")
            one.pause()
            await until(lambda: shared_out(2, other), "the other one has all queues")
            await put(10)
            await until(lambda: len(bodies_of(other)) == 10, "the other one reads all that comes")
            one.resume()
            await until(lambda: shared_out(2, one, other), "they share the queues again")
            await put(10)
            every = {(queue, offset) for queue in range(2) for offset in range(10)}
            await until(lambda: bodies_of(one) | bodies_of(other) == every, "everything is read")
            assert len(bodies_of(one)) < len(every)
            for consumer in (one, other):
                await asyncio.to_thread(consumer.end)
            fetched = await shop.stub.FetchOffset(pb.FetchOffsetRequest(group="g", topic="orders", queue_ids=[0, 1]))
            assert list(fetched.offsets) == [10, 10]

    try:
        run(scenario)
    finally:
        for consumer in consumers:
            consumer.kill()
