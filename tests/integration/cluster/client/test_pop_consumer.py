"""The pop consumer against real brokers: both interfaces, several consumers, several brokers, a change of leader."""

import asyncio

import pytest

from cluster import PopConsumer, Producer, RequestFailed, Sql92
from cluster.protocol.errors import Reason
from cluster.state.pop.ops import AckOutcome
from cluster.v1 import broker_pb2 as pb
from tests.integration.cluster.api.conftest import SMALL, TOPIC, Shop, run
from tests.support.brokers.group import BrokerGroup
from tests.support.brokers.process import BrokerProcess
from tests.support.waiting import until

OK, STALE = AckOutcome.ACKNOWLEDGED, AckOutcome.STALE


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path / "store")


def test_consumers_of_a_group_share_the_messages_of_one_queue(shop):
    async def scenario():
        async with shop.open():
            await shop.put(*(b"%d" % number for number in range(50)))
            open_consumer = lambda: PopConsumer(str(shop.address), group="g", topic=TOPIC)  # noqa: E731
            async with open_consumer() as first, open_consumer() as second:
                found = []
                while len(found) < 50:
                    for messages in await asyncio.gather(*(each.receive(10, wait_s=5) for each in (first, second))):
                        found += [int(message.body) for message in messages]
                        assert await first.acknowledge(messages) == [OK] * len(messages), "a handle is enough"
                assert sorted(found) == list(range(50))
                assert await first.receive(wait_s=0) == []
            assert shop.replica.state.offset("g", TOPIC, 0).offset == 50

    run(scenario)


def test_consumer_that_has_received_nothing_acknowledges_what_another_one_took(shop):
    async def scenario():
        async with shop.open():
            await shop.put(b"a", b"b")
            open_consumer = lambda: PopConsumer(str(shop.address), group="g", topic=TOPIC)  # noqa: E731
            async with open_consumer() as first, open_consumer() as second, open_consumer() as third:
                one, other = await first.receive()
                assert await second.acknowledge(one) == [OK]
                assert await third.change_invisible(other, 60) is OK

    run(scenario)


def test_message_that_is_given_back_comes_again_with_its_attempt_and_filter(shop):
    async def scenario():
        async with shop.open():
            await shop.put(b"a", b"b", properties=[b"", b"TAGS\x01t\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01u\x02n\x017\x02"])
            async with PopConsumer(str(shop.address), group="g", topic=TOPIC, tags=Sql92("n = 7")) as consumer:
                (message,) = await consumer.receive()
                assert (message.body, message.attempt, message.queue_offset) == (b"b", 1, 1)
                assert (message.tags, message.keys, message.unique_key) == ("t", ["k1", "k2"], "u")
                assert await consumer.change_invisible(message, 0, is_counted=False) is OK
                (again,) = await consumer.receive()
                assert again.attempt == 1
                assert await consumer.acknowledge(message) == [STALE]
                assert await consumer.change_invisible(again, 0) is OK
                (third,) = await consumer.receive()
                assert third.attempt == 2
                assert await consumer.change_invisible(third, 3_600) is OK
                assert await consumer.acknowledge([third]) == [OK], "by the new handle"

    run(scenario)


def test_blocking_consumer_of_two_brokers_gets_the_messages_of_both(tmp_path):
    brokers = [BrokerProcess(tmp_path / name, name, options=["--auto-create-topics"], **SMALL) for name in ("b0", "b1")]
    try:
        for each in brokers:
            each.start()
            with Producer(each.address) as producer:
                producer.send("orders", b"of " + each.address.encode())
        addresses = [each.address for each in brokers]
        with PopConsumer(addresses, group="g", topic="orders") as consumer:
            found = []
            while len(found) < 2:
                messages = consumer.receive(wait_s=5)
                found += [message.body for message in messages]
                assert consumer.acknowledge(messages) == [OK] * len(messages)
            assert sorted(found) == sorted(b"of " + each.encode() for each in addresses)
            assert consumer.receive(wait_s=0.1) == []
    finally:
        for each in brokers:
            each.kill()


def test_consumer_continues_at_the_new_leader(tmp_path):
    with (
        BrokerGroup(tmp_path, auto_create_topic_enable=True, default_topic_queue_nums=1) as group,
        Producer(group.addresses) as producer,
    ):
        producer.send("T", b"1")
        with PopConsumer(group.addresses, group="g", topic="T", invisible_s=300) as consumer:
            (first,) = consumer.receive(1)
            producer.send("T", b"2")
            group.kill(group.leader()[0])
            assert consumer.acknowledge(first) == [OK]
            (second,) = consumer.receive()
            assert (second.body, second.attempt) == (b"2", 1)


def test_receive_whose_answer_is_lost_gets_the_same_messages_of_a_group_that_consumes_in_order(shop, monkeypatch):
    async def scenario():
        async with shop.open():
            group = pb.Group(name="g", is_consume_enabled=True, is_orderly=True, retry_queues=1)
            await shop.stub.SetGroup(pb.SetGroupRequest(group=group))
            await shop.put(
                b"1", b"2", b"3", properties=[b"__SHARDINGKEY\x01%s\x02" % each for each in (b"a", b"a", b"b")]
            )
            async with PopConsumer(str(shop.address), group="g", topic=TOPIC) as consumer:
                nodes, lost = consumer._connection.nodes, []
                call = nodes.call_node

                async def losing(address, method, request, *more):
                    answer = await call(address, method, request, *more)
                    if isinstance(request, pb.ReceiveRequest) and len(lost) < 2:
                        lost.append(request.attempt_id)
                        if len(lost) == 1:
                            raise RequestFailed(Reason.ANSWER_LOST, "the connection broke")
                        await asyncio.sleep(3_600)
                    return answer

                monkeypatch.setattr(nodes, "call_node", losing)
                given_up = asyncio.ensure_future(consumer.receive())
                await until(lambda: len(lost) == 2, "the request was repeated by itself, and is given up now")
                given_up.cancel()
                await asyncio.wait([given_up])
                found = await consumer.receive()
                assert [(each.body, each.message_group, each.attempt) for each in found] == [
                    (b"1", "a", 1),
                    (b"3", "b", 1),
                ]
                assert lost[0] == lost[1]
                assert await consumer.acknowledge(found) == [OK, OK]
                assert [each.body for each in await consumer.receive()] == [b"2"]
                assert not consumer._unanswered["b"], "answered"

    run(scenario)


def test_errors_name_their_cause(shop):
    async def scenario():
        async with shop.open(auto_create_subscription_group=False):
            async with PopConsumer(str(shop.address), group="g", topic=TOPIC) as consumer:
                with pytest.raises(RequestFailed) as failed:
                    await consumer.receive()
                assert failed.value.reason is Reason.UNKNOWN_GROUP
            async with PopConsumer(str(shop.address), group="g", topic="nothing") as consumer:
                with pytest.raises(RequestFailed) as failed:
                    await consumer.receive()
                assert failed.value.reason is Reason.UNKNOWN_TOPIC
            await shop.stub.SetGroup(pb.SetGroupRequest(group=pb.Group(name="g")))
            async with PopConsumer(str(shop.address), group="g", topic=TOPIC) as consumer:
                with pytest.raises(RequestFailed) as failed:
                    await consumer.receive()
                assert failed.value.reason is Reason.GROUP_NOT_ENABLED

    run(scenario)
    for invisible_s in (0.5, 12 * 3_600 + 1):
        with pytest.raises(ValueError, match="invisible_s"):
            PopConsumer("127.0.0.1:1", group="g", topic="t", invisible_s=invisible_s)
    with pytest.raises(ValueError, match="endpoints"):
        PopConsumer(group="g", topic="t")
