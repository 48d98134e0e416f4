"""Quotas of topics and groups at a real broker: refused without effect, streams delayed, clients that follow them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import cluster.broker.core
from cluster import Consumer, OutgoingMessage, Producer
from cluster.broker.flow_quotas import FlowQuotas
from cluster.v1 import broker_pb2 as pb
from dledger.errors import repeat_after_s
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.support.network.frame_client import raw_frames
from tests.support.waiting import PATIENCE_S, until

PUT = "/cluster.v1.BrokerService/Put"
GROUP = "billing"


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """Return the clock of the quotas, which only the test advances."""
    now_s = [1_000.0]
    monkeypatch.setattr(cluster.broker.core, "FlowQuotas", lambda _, count: FlowQuotas(lambda: now_s[0], count))
    return now_s


async def limit_topic(stub, name: str = TOPIC, **rates: int) -> Any:
    attributes = {f"quota.{key.replace('_', '.')}": str(rate) for key, rate in rates.items()}
    topic = pb.Topic(name=name, read_queues=2, write_queues=2, permission=6, attributes=attributes)
    return await stub.SetTopic(pb.SetTopicRequest(topic=topic))


async def limit_group(stub, **rates: int) -> Any:
    attributes = {f"quota.{key.replace('_', '.')}": str(rate) for key, rate in rates.items()}
    group = pb.Group(name=GROUP, is_consume_enabled=True, retry_queues=1, attributes=attributes)
    return await stub.SetGroup(pb.SetGroupRequest(group=group))


def test_put_above_the_quota_of_its_topic_is_refused_with_nothing_done_and_other_topics_are_served(shop, clock) -> None:
    async def scenario() -> None:
        async with shop.open() as stub:
            await shop.set_topic("others")
            assert not (await limit_topic(stub, put_messages=10)).answer.reason
            answers = [(await shop.put(b"a", b"b", b"c")).answer for _ in range(10)]
            assert [each.reason for each in answers] == [""] * 4 + ["OVER_QUOTA"] * 6
            refused = answers[-1]
            assert (refused.code, refused.certainty) == (8, pb.PutResponse().answer.certainty + 2)
            assert "topic 'orders' (quota.put.messages is 10 a second)" in refused.message
            assert repeat_after_s(refused.message) == pytest.approx(0.2)
            assert (await shop.get()).max_offset == 12
            assert not (await shop.put(b"x", topic="others")).answer.reason
            clock[0] += 0.2
            assert not (await shop.put(b"d")).answer.reason
            counts = shop.broker.core.metrics.counts
            assert (counts.limited, counts.refusals) == ({"topic_put": 6}, {"OVER_QUOTA": 6})

    run(scenario)


def test_request_of_a_stream_and_by_a_frame_uses_the_same_quota(shop, clock) -> None:
    async def scenario() -> None:
        async with shop.open() as stub, raw_frames(shop.frames.address) as frames:
            await limit_topic(stub, put_messages=2)
            stream = stub.PutStream()
            await stream.write(pb.PutRequest(topic=TOPIC, queue_ids=[0], bodies=[b"a"] * 3))
            assert not (await stream.read()).answer.reason
            answer = await frames.answer(1, PUT, pb.PutRequest(topic=TOPIC, queue_ids=[0], bodies=[b"b"]))
            response = pb.PutResponse.FromString(answer.payload)
            assert response.answer.reason == "OVER_QUOTA"
            clock[0] += 1
            await stream.write(pb.PutRequest(topic=TOPIC, queue_ids=[0], bodies=[b"c"]))
            assert not (await stream.read()).answer.reason

    run(scenario)


def test_put_that_is_refused_for_another_reason_uses_no_quota(shop, clock) -> None:
    async def scenario() -> None:
        async with shop.open() as stub:
            await limit_topic(stub, put_messages=1)
            for _ in range(5):
                assert (await shop.put(b"a", queue_id=7)).answer.reason == "UNKNOWN_QUEUE"
                assert (await shop.put(b"a", properties=[b"x" * 40_000])).answer.reason == "ILLEGAL_MESSAGE"
            assert not (await shop.put(b"a")).answer.reason

    run(scenario)


def test_read_above_the_quota_of_its_group_is_refused_and_other_groups_are_served(shop, clock) -> None:
    async def scenario() -> None:
        async with shop.open() as stub:
            await limit_group(stub, get_messages=4)
            await shop.put(*(b"%d" % number for number in range(10)))
            assert len((await shop.get(group=GROUP)).columns.bodies) == 10
            refused = await shop.get(group=GROUP)
            assert refused.answer.reason == "OVER_QUOTA"
            assert "group 'billing'" in refused.answer.message
            assert len((await shop.get(group="other")).columns.bodies) == 10
            # At the end of the queue there is nothing to send, and nothing to wait for but the quota.
            clock[0] += repeat_after_s(refused.answer.message)
            assert not (await shop.get(10, group=GROUP)).answer.reason
            assert shop.broker.core.metrics.counts.limited == {"group_get": 1}

    run(scenario)


def test_many_reads_that_wait_for_one_message_get_it_as_fast_as_the_quota_allows(shop, clock) -> None:
    async def scenario() -> None:
        async with shop.open(waiters_max=100) as stub:
            await limit_topic(stub, get_messages=3)
            waiting = [asyncio.ensure_future(shop.get(wait_ms=30_000)) for _ in range(8)]
            await until(lambda: shop.replica.store.waiters_count == 8)
            await shop.put(b"a")
            reasons = sorted([(await each).answer.reason for each in waiting])
            assert reasons == [""] * 4 + ["OVER_QUOTA"] * 4

    run(scenario)


def test_streams_of_a_topic_share_its_rate_and_lose_and_repeat_nothing(shop, clock) -> None:
    count, rate = 60, 100

    async def scenario() -> None:
        async with shop.open() as stub:
            await limit_topic(stub, get_messages=rate)
            await shop.put(*(b"%d" % number for number in range(count)))
            begin_s = time.monotonic()
            found = await asyncio.gather(*(bodies_of(stub, count) for _ in range(4)))
            took_s = time.monotonic() - begin_s
            assert found == [[b"%d" % number for number in range(count)]] * 4
            # Two responses are sent at once, with 120 messages; those after them wait for what was sent before.
            assert took_s >= (3 * count) / rate - 1 - 0.01
            assert shop.broker.core.metrics.counts.limited["topic_get"] == 2

    run(scenario)


async def bodies_of(stub, count: int) -> list[bytes]:
    stream, found = stub.Subscribe(pb.SubscribeRequest(topic=TOPIC, queue_ids=[0], offsets=[0])), []
    while len(found) < count:
        response = await stream.read()
        assert not response.answer.reason, response
        found += response.columns.bodies
    stream.cancel()
    return found


def test_stream_that_would_wait_too_long_ends_with_the_time_to_wait(shop, clock) -> None:
    async def scenario() -> None:
        async with shop.open() as stub:
            await limit_topic(stub, get_messages=1)
            await shop.put(*[b"x"] * 40)
            assert len(await bodies_of(stub, 40)) == 40
            stream = stub.Subscribe(pb.SubscribeRequest(topic=TOPIC, queue_ids=[0], offsets=[0]))
            await stream.read()
            refused = (await stream.read()).answer
            assert (refused.reason, repeat_after_s(refused.message)) == ("OVER_QUOTA", 39.0)

    run(scenario)


def test_stream_whose_group_is_disabled_while_it_waits_ends(shop, clock) -> None:
    async def scenario() -> None:
        async with shop.open() as stub:
            await limit_group(stub, get_messages=6)
            await shop.put(*[b"x"] * 24)
            request = pb.SubscribeRequest(topic=TOPIC, queue_ids=[0], offsets=[0], group=GROUP)
            first, second = stub.Subscribe(request), stub.Subscribe(request)
            for stream in (first, second):
                await stream.read()
            responses = asyncio.gather(first.read(), second.read())
            counts = shop.broker.core.metrics.counts
            await until(lambda: counts.limited)
            disabled = pb.Group(name=GROUP, retry_queues=1)
            await stub.SetGroup(pb.SetGroupRequest(group=disabled))
            assert sorted(each.answer.reason for each in await responses) == ["", "GROUP_NOT_ENABLED"]

    run(scenario)


def test_producer_and_consumer_follow_the_quotas_and_every_message_arrives_once(shop, clock) -> None:
    """The clock of the quotas advances only after a put was refused, however slow the machine is."""
    count = 300

    async def scenario() -> None:
        async with shop.open() as stub:
            await limit_topic(stub, put_messages=200)
            await limit_group(stub, get_messages=200)
            received: list[bytes] = []
            options: dict[str, Any] = {"deadline_s": PATIENCE_S, "answer_timeout_s": PATIENCE_S}
            async with (
                Producer(str(shop.address), batch_messages_max=20, **options) as producer,
                Consumer(str(shop.address), group=GROUP, topics=[TOPIC], start="first") as consumer,
            ):
                sent = [producer.submit(OutgoingMessage(TOPIC, b"%d" % number)) for number in range(count)]
                while len(received) < count:
                    received += [each.body for each in await consumer.poll(50, 0.2)]
                    clock[0] += bool(shop.broker.core.metrics.counts.limited.get("topic_put"))
                places = {(each.queue_id, each.queue_offset) for (each,) in await asyncio.gather(*sent)}
                assert len(places) == count
            assert sorted(received) == sorted(b"%d" % number for number in range(count))
            assert shop.broker.core.metrics.counts.limited["topic_put"] > 0

    run(scenario)


def test_topic_above_its_quota_does_not_delay_other_topics_of_its_producer(shop, clock) -> None:
    async def scenario() -> None:
        async with shop.open() as stub:
            await shop.set_topic("others")
            await limit_topic(stub, put_messages=1)
            async with Producer(str(shop.address), deadline_s=PATIENCE_S, answer_timeout_s=PATIENCE_S) as producer:
                await producer.send_many([OutgoingMessage(TOPIC, b"x")] * 1_000)
                late = asyncio.ensure_future(producer.send(TOPIC, b"late"))
                await until(lambda: shop.broker.core.metrics.counts.limited)
                for _ in range(20):
                    await producer.send("others", b"x")
                assert not late.done()
                late.cancel()

    run(scenario)


@pytest.mark.parametrize("rates", [{"put_messages": 0}, {"get_bytes": 100}, {"puts": 10}])
def test_wrong_quotas_of_a_topic_are_refused_and_change_nothing(shop, rates) -> None:
    async def scenario() -> None:
        async with shop.open() as stub:
            assert (await limit_topic(stub, **rates)).answer.reason == "ILLEGAL_MESSAGE"
            listed = await stub.ListTopics(pb.ListTopicsRequest(topic=TOPIC))
            assert not listed.topics[0].attributes

    run(scenario)


def test_quotas_of_a_group_are_those_of_reads(shop) -> None:
    async def scenario() -> None:
        async with shop.open() as stub:
            assert (await limit_group(stub, put_messages=10)).answer.reason == "ILLEGAL_MESSAGE"
            assert not (await limit_group(stub, get_messages=10)).answer.reason
            listed = await stub.ListGroups(pb.ListGroupsRequest(group=GROUP))
            assert dict(listed.groups[0].group.attributes) == {"quota.get.messages": "10"}

    run(scenario)
