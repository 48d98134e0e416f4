"""Requests and their replies, by a standalone broker: each caller gets the reply to its own request."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from cluster import Consumer, MessageNotAppended, Producer, Requester
from cluster.cli.app import app
from cluster.protocol.errors import Reason, RequestFailed
from cluster.v1 import broker_pb2 as pb
from store.errors import Certainty
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.support.waiting import PATIENCE_S, until

REPLIES = "DefaultCluster_REPLY_TOPIC"


@asynccontextmanager
async def replying(shop, answer=lambda body: [b"re " + body]):
    """Reply to all requests; `answer` returns the bodies of the replies to one."""

    async def serve():
        async with (
            Consumer(str(shop.address), group="servers", topics=TOPIC, start="first") as consumer,
            Producer(str(shop.address), may_use_frames=False) as producer,
        ):
            async for message in consumer:
                for body in answer(message.body):
                    await producer.reply(message, body, properties={"to": message.keys[0] if message.keys else ""})

    task = asyncio.create_task(serve())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_each_request_gets_its_own_reply(shop):
    async def scenario():
        async with shop.open():
            await shop.set_topic(REPLIES)
            async with replying(shop), Requester(str(shop.address)) as one, Requester(str(shop.address)) as other:
                calls = [
                    requester.request(TOPIC, b"%d" % number, keys=[f"k{number}"], timeout_s=PATIENCE_S)
                    for number, requester in enumerate([one, other] * 20)
                ]
                replies = await asyncio.gather(*calls)
                assert [reply.body for reply in replies] == [b"re %d" % number for number in range(40)]
                assert [reply.properties["to"] for reply in replies] == [f"k{number}" for number in range(40)]
                assert {reply.topic for reply in replies} == {REPLIES}

    run(scenario)


def test_request_without_a_reply_times_out_and_a_late_reply_is_ignored(shop):
    async def scenario():
        async with shop.open():
            await shop.set_topic(REPLIES)
            async with Requester(str(shop.address)) as requester:
                with pytest.raises(RequestFailed, match="may have been processed") as caught:
                    await requester.request(TOPIC, b"a", timeout_s=1.0)
                assert (caught.value.reason, caught.value.certainty) == (Reason.REPLY_TIMED_OUT, Certainty.UNKNOWN)
                async with replying(shop):
                    # The request was stored, so it is replied to now.
                    await until(lambda: sum(shop.replica.store.max_offset(REPLIES, each) for each in range(2)) == 1)
                    assert (await requester.request(TOPIC, b"b", timeout_s=PATIENCE_S)).body == b"re b"

    run(scenario)


def test_second_reply_to_a_request_is_ignored(shop):
    async def scenario():
        async with shop.open():
            await shop.set_topic(REPLIES, queues=1)
            async with (
                replying(shop, lambda body: [b"1 " + body, b"2 " + body]),
                Requester(str(shop.address)) as requester,
            ):
                found = [(await requester.request(TOPIC, each, timeout_s=PATIENCE_S)).body for each in (b"a", b"b")]
                assert found == [b"1 a", b"1 b"]

    run(scenario)


def test_without_a_topic_for_replies_nothing_is_sent(shop):
    async def scenario():
        async with shop.open(), Requester(str(shop.address)) as requester:
            with pytest.raises(RequestFailed, match=f"dledger topic create {REPLIES}") as caught:
                await requester.request(TOPIC, b"a", timeout_s=PATIENCE_S)
            assert (caught.value.reason, caught.value.certainty) == (
                Reason.NO_REPLY_TOPIC,
                Certainty.NOT_APPENDED,
            )
            assert shop.replica.store.log.end_offset == 0
            await shop.set_topic(REPLIES)
            async with replying(shop):
                assert (await requester.request(TOPIC, b"b", timeout_s=PATIENCE_S)).body == b"re b"

    run(scenario)


def test_pending_requests_are_bounded_and_end_with_the_requester(shop):
    async def scenario():
        async with shop.open():
            await shop.set_topic(REPLIES)
            async with Requester(str(shop.address), pending_max=2) as requester:
                waiting = [asyncio.create_task(requester.request(TOPIC, b"a", timeout_s=PATIENCE_S)) for _ in range(2)]
                await until(lambda: sum(shop.replica.store.max_offset(TOPIC, each) for each in range(2)) == 2)
                with pytest.raises(RequestFailed) as caught:
                    await requester.request(TOPIC, b"b")
                assert caught.value.reason is Reason.CLIENT_QUEUE_FULL
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
            assert [each.reason for each in outcomes] == [Reason.CLIENT_CLOSED] * 2
            with pytest.raises(RequestFailed, match="closed"):
                await requester.request(TOPIC, b"b")
            assert sum(shop.replica.store.max_offset(TOPIC, each) for each in range(2)) == 2

    run(scenario)


def test_request_that_cannot_be_stored_fails_at_once(shop):
    async def scenario():
        async with shop.open():
            await shop.set_topic(REPLIES)
            topic = pb.Topic(name=TOPIC, read_queues=2, write_queues=2, permission=4)
            await shop.stub.SetTopic(pb.SetTopicRequest(topic=topic))
            async with Requester(str(shop.address)) as requester:
                with pytest.raises(MessageNotAppended) as caught:
                    await requester.request(TOPIC, b"a", timeout_s=PATIENCE_S)
                assert caught.value.reason is Reason.TOPIC_NOT_WRITABLE

    run(scenario)


def test_blocking_requester_and_producer_reply_as_the_others_do(broker):
    for topic in (TOPIC, REPLIES):
        done = CliRunner().invoke(app, ["topic", "create", topic, "--queues", "1", "--broker", broker.address])
        assert done.exit_code == 0
    with (
        Producer(broker.address) as producer,
        Consumer(broker.address, group="servers", topics=TOPIC, start="first") as consumer,
        Requester(broker.address) as requester,
        ThreadPoolExecutor(1) as caller,
    ):
        asked = caller.submit(requester.request, TOPIC, b"a", timeout_s=PATIENCE_S)
        producer.reply(next(consumer), b"re a")
        assert asked.result().body == b"re a"
        with pytest.raises(MessageNotAppended, match="CORRELATION_ID"):
            producer.reply(SimpleNamespace(properties={"KEYS": "k"}), b"")
