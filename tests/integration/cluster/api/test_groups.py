"""Offsets, members and locks of groups, and the administration of topics, over gRPC."""

import asyncio

import pytest

from cluster.v1 import broker_pb2 as pb
from cluster.v1 import nameserver_pb2
from tests.integration.cluster.api.conftest import run
from tests.support.waiting import counting_turns

TOPIC = "orders"
COMMITTED, NOT_AHEAD, WAS_RESET = 0, 1, 2


def commit(stub, *offsets, group="billing", queue_ids=(0, 1), **fields):
    request = pb.CommitOffsetRequest(group=group, topic=TOPIC, queue_ids=queue_ids, offsets=offsets, **fields)
    return stub.CommitOffset(request)


def test_offsets_of_a_group_only_go_forwards_and_survive_a_restart(shop):
    async def scenario():
        async with shop.open() as stub:
            await shop.put(b"a", b"b", b"c")
            await shop.put(b"a", queue_id=1)
            assert list((await commit(stub, 1, 2, queue_ids=[1, 0])).outcomes) == [COMMITTED, COMMITTED]
            assert list((await commit(stub, 1, 1)).outcomes) == [NOT_AHEAD, NOT_AHEAD]
            beyond = await commit(stub, 3, 2)
            assert (beyond.answer.reason, list(beyond.outcomes)) == ("OFFSET_BEYOND_END", [])
        async with shop.open() as stub:
            fetched = await stub.FetchOffset(pb.FetchOffsetRequest(group="billing"))
            assert list(zip(fetched.topics, fetched.queue_ids, fetched.offsets, strict=True)) == [
                (TOPIC, 0, 2),
                (TOPIC, 1, 1),
            ]
            unknown = await stub.FetchOffset(pb.FetchOffsetRequest(group="other", topic=TOPIC, queue_ids=[1]))
            assert list(unknown.offsets) == [-1]

    run(scenario)


def test_a_commit_from_before_a_reset_changes_nothing(shop):
    async def scenario():
        async with shop.open() as stub:
            await shop.put(b"a", b"b", b"c")
            await commit(stub, 2, queue_ids=[0])
            reset = pb.ResetOffsetRequest(group="billing", topic=TOPIC, queue_ids=[0], offsets=[0])
            assert (await stub.ResetOffset(reset)).is_changed
            assert list((await commit(stub, 3, queue_ids=[0])).outcomes) == [WAS_RESET]
            fetched = await stub.FetchOffset(pb.FetchOffsetRequest(group="billing", topic=TOPIC))
            assert (list(fetched.offsets), list(fetched.reset_counts)) == ([0], [1])
            assert list((await commit(stub, 3, queue_ids=[0], reset_counts=[1])).outcomes) == [COMMITTED]

    run(scenario)


def test_a_group_is_created_by_its_consumers_unless_that_is_switched_off(shop):
    async def scenario():
        async with shop.open(auto_create_subscription_group=False) as stub:
            assert (await commit(stub, 0, 0)).answer.reason == "UNKNOWN_GROUP"
            assert not (
                await stub.SetGroup(pb.SetGroupRequest(group=pb.Group(name="billing"), is_new=True))
            ).answer.code
            assert not (await commit(stub, 0, 0)).answer.code
            other = pb.SetGroupRequest(group=pb.Group(name="billing", retry_queues=2), is_new=True)
            assert (await stub.SetGroup(other)).answer.reason == "GROUP_EXISTS"
            groups = await stub.ListGroups(pb.ListGroupsRequest())
            assert [(each.group.name, list(each.topics)) for each in groups.groups] == [("billing", [TOPIC])]
            assert (await stub.DeleteGroup(pb.DeleteGroupRequest(group="billing"))).is_changed
            assert (await stub.DeleteGroup(pb.DeleteGroupRequest(group="billing"))).answer.reason == "UNKNOWN_GROUP"

    run(scenario)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (pb.CommitOffsetRequest(group="g", topic=TOPIC), "ILLEGAL_REQUEST"),
        (pb.CommitOffsetRequest(group="g", topic=TOPIC, queue_ids=[0], offsets=[0, 1]), "ILLEGAL_REQUEST"),
        (pb.CommitOffsetRequest(group="g", topic=TOPIC, queue_ids=[0, 0], offsets=[0, 0]), "ILLEGAL_REQUEST"),
        (pb.CommitOffsetRequest(group="g", topic=TOPIC, queue_ids=[0], offsets=[-1]), "ILLEGAL_REQUEST"),
        (pb.CommitOffsetRequest(group="g", topic=TOPIC, queue_ids=[2], offsets=[0]), "UNKNOWN_QUEUE"),
        (pb.CommitOffsetRequest(group="g", topic="nothing", queue_ids=[0], offsets=[0]), "UNKNOWN_TOPIC"),
        (pb.CommitOffsetRequest(group="../g", topic=TOPIC, queue_ids=[0], offsets=[0]), "ILLEGAL_MESSAGE"),
        (pb.LockQueuesRequest(group="g", client_id="c"), "ILLEGAL_REQUEST"),
        (pb.LockQueuesRequest(group="g", queues=[pb.QueueId(topic=TOPIC)]), "ILLEGAL_REQUEST"),
        (pb.LockQueuesRequest(group="g", client_id="c", queues=[pb.QueueId(topic=TOPIC, queue_id=2)]), "UNKNOWN_QUEUE"),
        (pb.SetTopicRequest(topic=pb.Topic(name="rmq_sys_x", read_queues=1, write_queues=1)), "ILLEGAL_REQUEST"),
        (pb.SetTopicRequest(topic=pb.Topic(name="a b", read_queues=1, write_queues=1)), "ILLEGAL_REQUEST"),
        (pb.SetTopicRequest(topic=pb.Topic(name="t")), "ILLEGAL_REQUEST"),
        (pb.SetTopicRequest(topic=pb.Topic(name="t", read_queues=65537, write_queues=1)), "ILLEGAL_REQUEST"),
        (pb.SetTopicRequest(topic=pb.Topic(name="t", read_queues=1, permission=16)), "ILLEGAL_REQUEST"),
        (pb.DeleteTopicRequest(topic="nothing"), "UNKNOWN_TOPIC"),
        (pb.ListTopicsRequest(topic="nothing"), "UNKNOWN_TOPIC"),
        (pb.ListGroupsRequest(group="nothing"), "UNKNOWN_GROUP"),
    ],
)
def test_invalid_changes_are_refused_with_a_reason(shop, request_, reason):
    async def scenario():
        async with shop.open() as stub:
            ask = getattr(stub, type(request_).__name__.removesuffix("Request"))
            assert (await ask(request_)).answer.reason == reason

    run(scenario)


def test_members_are_notified_of_joins_and_leaves(shop):
    async def scenario():
        async with shop.open() as stub:
            first, second = stub.JoinGroup(), stub.JoinGroup()
            await first.write(pb.JoinGroupRequest(group="billing", client_id="a", instance=1))
            assert list((await first.read()).client_ids) == ["a"]
            await second.write(pb.JoinGroupRequest(group="billing", client_id="b", instance=2))
            assert list((await second.read()).client_ids) == ["a", "b"]
            answer = await first.read()
            assert (list(answer.client_ids), answer.version) == (["a", "b"], 2)
            in_use = await stub.DeleteGroup(pb.DeleteGroupRequest(group="billing"))
            assert in_use.answer.reason == "GROUP_IN_USE"

            third = stub.JoinGroup()
            await third.write(pb.JoinGroupRequest(group="billing", client_id="a", instance=3))
            assert (await third.read()).answer.reason == "CLIENT_ID_IN_USE"

            await second.done_writing()
            assert list((await first.read()).client_ids) == ["a"]
            first.cancel()
            # The broker detects it shortly after.
            while (await stub.DeleteGroup(pb.DeleteGroupRequest(group="billing"))).answer.code:  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    run(scenario)


def test_a_queue_is_locked_for_one_consumer_until_it_is_released(shop):
    async def scenario():
        async with shop.open() as stub:
            queues = [pb.QueueId(topic=TOPIC, queue_id=number) for number in (0, 1)]
            refused = (await stub.LockQueues(pb.LockQueuesRequest(group="g", client_id="a", queues=queues))).answer
            assert (refused.reason, "join it first" in refused.message) == ("NOT_IN_GROUP", True)
            stays = [stub.JoinGroup() for _ in "ab"]
            for client_id, stay in zip("ab", stays, strict=True):
                await stay.write(pb.JoinGroupRequest(group="g", client_id=client_id, instance=ord(client_id)))
                await stay.read()
            mine = pb.LockQueuesRequest(group="g", client_id="a", queues=queues[:1])
            all_ = pb.LockQueuesRequest(group="g", client_id="b", queues=queues)
            assert [each.queue_id for each in (await stub.LockQueues(mine)).locked] == [0]
            locked = await stub.LockQueues(all_)
            assert ([each.queue_id for each in locked.locked], locked.lock_ms) == ([1], 60_000)
            assert (await stub.UnlockQueues(mine)).is_changed
            assert not (await stub.UnlockQueues(mine)).is_changed
            assert [each.queue_id for each in (await stub.LockQueues(all_)).locked] == [0, 1]

    run(scenario)


def test_topics_are_created_changed_listed_routed_and_deleted(shop):
    async def scenario():
        async with shop.open() as stub:
            assert (await shop.set_topic("new", 3)).is_changed
            assert not (await shop.set_topic("new", 3)).is_changed
            different = pb.Topic(name="new", read_queues=4, write_queues=4, permission=6)
            exists = await stub.SetTopic(pb.SetTopicRequest(topic=different, is_new=True))
            assert exists.answer.reason == "TOPIC_EXISTS"
            listed = await stub.ListTopics(pb.ListTopicsRequest())
            assert [each.name for each in listed.topics] == ["new", TOPIC]
            routes = await stub.Route(nameserver_pb2.RouteRequest(topics=["new", "nothing"]))
            assert [route.topic for route in routes.routes] == ["new"]
            assert routes.routes[0].brokers[0].nodes[0].address
            assert (await stub.DeleteTopic(pb.DeleteTopicRequest(topic="new"))).is_changed
            assert (await shop.get(topic="new")).answer.reason == "UNKNOWN_TOPIC"

    run(scenario)


def test_topics_and_offsets_of_a_rocketmq_broker_are_imported_once(shop):
    config = shop.path / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text(
        '{"topicConfigTable":{"bills":{"perm":6,"readQueueNums":3,"topicName":"bills","writeQueueNums":3}}}'
    )
    (config / "consumerOffset.json").write_text('{"offsetTable":{"bills@billing":{0:7,1:9}}}')

    async def scenario():
        async with shop.open() as stub:
            assert (await shop.put(b"x", topic="bills", queue_id=2)).queue_offsets == [0]
            fetched = await stub.FetchOffset(pb.FetchOffsetRequest(group="billing", topic="bills"))
            assert dict(zip(fetched.queue_ids, fetched.offsets, strict=True)) == {0: 7, 1: 9}
            assert (await stub.DeleteTopic(pb.DeleteTopicRequest(topic="bills"))).is_changed
        async with shop.open():
            assert (await shop.put(b"x", topic="bills")).answer.reason == "UNKNOWN_TOPIC"

    run(scenario)


def test_other_work_runs_while_groups_are_listed(shop, monkeypatch):
    monkeypatch.setattr("cluster.process.cooperative.STEP_S", 0.0)

    async def scenario():
        async with shop.open() as stub:
            await shop.put(b"a")
            await shop.set_topic(TOPIC, 200)
            await commit(stub, *[0] * 200, queue_ids=range(200))
            async with counting_turns() as turns:
                answer = await shop.broker._service.topics.list_groups(pb.ListGroupsRequest())
                assert turns() >= 200
            assert [(each.group.name, list(each.topics)) for each in answer.groups] == [("billing", [TOPIC])]

    run(scenario)
