"""What callers create at a broker, and the readers of a topic or a group: bounded, by requests and by use."""

from __future__ import annotations

import asyncio

from cluster.config.quotas import BrokerLimits
from cluster.v1 import broker_pb2 as pb
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from tests.integration.cluster.api.access.test_access_control import as_user, channel_of, close
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.support.waiting import until


def test_topics_and_groups_created_by_use_have_the_rate_of_their_caller(shop) -> None:
    limits = BrokerLimits(quota_creations_per_min=3)

    async def scenario() -> None:
        async with shop.open(limits=limits, auto_create_topic_enable=True) as stub:
            # The topic of the fixture was the first.
            reasons = [(await shop.put(b"x", topic=f"new{number}")).answer.reason for number in range(3)]
            assert reasons == ["", "", ""]
            refused = (await shop.put(b"x", topic="new3")).answer
            assert refused.reason == "OVER_QUOTA"
            assert "address 127.0.0.1 (quota_creations_per_min is 3)" in refused.message
            commit = pb.CommitOffsetRequest(group="billing", topic=TOPIC, queue_ids=[0], offsets=[0])
            assert (await stub.CommitOffset(commit)).answer.reason == "OVER_QUOTA"
            assert (await shop.set_topic("new4")).answer.reason == "OVER_QUOTA"
            assert not (await shop.put(b"x", topic="new0")).answer.reason
            assert not (await shop.set_topic("new0", queues=5)).answer.reason
            assert shop.broker.core.metrics.counts.limited == {"creations": 3}

    run(scenario)


def test_rate_of_creations_is_that_of_the_user(shop) -> None:
    async def scenario() -> None:
        limits = BrokerLimits(quota_creations_per_min=2)
        options = {"limits": limits, "auto_create_topic_enable": True}
        async with shop.open(**options), channel_of(shop) as channel:
            await close(shop)
            stub = BrokerServiceStub(channel)

            async def create(name: str, user: str) -> str:
                topic = pb.Topic(name=name, read_queues=1, write_queues=1, permission=6)
                call = stub.SetTopic(pb.SetTopicRequest(topic=topic), metadata=as_user(user))
                return (await call).answer.message

            refused = [await create(f"t{number}", "admin") for number in range(4)]
            assert refused[:3] == ["", "", ""]
            assert "user 'admin'" in refused[3]

    run(scenario)


def test_broker_with_as_many_topics_and_groups_as_it_may_refuses_more(shop) -> None:
    limits = BrokerLimits(topics_max=2, groups_max=1)

    async def scenario() -> None:
        async with shop.open(limits=limits, auto_create_topic_enable=True) as stub:
            assert not (await shop.put(b"x", topic="second")).answer.reason
            refused = (await shop.put(b"x", topic="third")).answer
            assert (refused.reason, refused.certainty) == ("TOO_MUCH_STATE", pb.PutResponse().answer.certainty + 2)
            fetch = pb.ResetOffsetRequest(topic=TOPIC, queue_ids=[0], offsets=[0])
            for group, reason in (("g0", ""), ("g1", "TOO_MUCH_STATE")):
                fetch.group = group
                assert (await stub.ResetOffset(fetch)).answer.reason == reason
            await stub.DeleteTopic(pb.DeleteTopicRequest(topic="second"))
            assert not (await shop.put(b"x", topic="third")).answer.reason

    run(scenario)


def test_group_with_its_streams_and_waits_is_refused_and_other_groups_are_served(shop) -> None:
    limits = BrokerLimits(group_streams_max=2, group_waits_max=3)

    async def scenario() -> None:
        async with shop.open(limits=limits, waiters_max=100) as stub:
            request = pb.SubscribeRequest(topic=TOPIC, queue_ids=[0], offsets=[0], group="billing")
            streams = [stub.Subscribe(request) for _ in range(3)]
            assert [(await each.read()).answer.reason for each in streams] == ["", "", "TOO_MANY_WAITERS"]
            waiting = asyncio.ensure_future(shop.get(wait_ms=30_000, group="billing"))
            await until(lambda: shop.replica.store.waiters_count == 3)
            refused = (await shop.get(wait_ms=30_000, group="billing")).answer
            assert refused.reason == "TOO_MANY_WAITERS"
            assert "group 'billing' has 3 waits at this node, which is the limit (group_waits_max)" in refused.message
            other = asyncio.ensure_future(shop.get(wait_ms=30_000, group="mails"))
            await until(lambda: shop.replica.store.waiters_count == 4)
            await shop.put(b"x")
            assert [len((await each).columns.bodies) for each in (waiting, other)] == [1, 1]
            # What has ended is given back.
            streams[0].cancel()
            await until(lambda: shop.replica.store.waiters_count == 1)
            again = stub.Subscribe(request)
            assert not (await again.read()).answer.reason
            assert shop.broker.core.metrics.counts.limited == {"group_streams": 1, "group_waits": 1}

    run(scenario)


def test_waits_of_a_topic_are_bounded_whatever_their_groups_and_other_topics_are_served(shop) -> None:
    limits = BrokerLimits(topic_waits_max=2)

    async def scenario() -> None:
        async with shop.open(limits=limits, waiters_max=100):
            await shop.set_topic("others")
            waiting = [asyncio.ensure_future(shop.get(wait_ms=30_000, group=f"g{number}")) for number in range(2)]
            await until(lambda: shop.replica.store.waiters_count == 2)
            assert (await shop.get(wait_ms=30_000)).answer.reason == "TOO_MANY_WAITERS"
            waiting.append(asyncio.ensure_future(shop.get(wait_ms=30_000, topic="others")))
            await until(lambda: shop.replica.store.waiters_count == 3)
            await shop.put(b"x")
            await shop.put(b"x", topic="others")
            assert [len((await each).columns.bodies) for each in waiting] == [1, 1, 1]

    run(scenario)
