"""Puts over gRPC: offsets of messages, errors of invalid ones, retries, and the state after a kill."""

import asyncio
import threading

import grpc
import pytest

from cluster import NotAppended, Producer
from cluster.protocol.errors import Reason, RequestFailed
from cluster.replica.local_state import LocalState
from cluster.v1 import answer_pb2, broker_pb2_grpc, nameserver_pb2
from cluster.v1 import broker_pb2 as pb
from store.errors import Certainty
from tests.integration.cluster.api.conftest import run
from tests.support.faulty_disk import FaultyDisk
from tests.support.waiting import wait_until

TOPIC = "orders"


def unique(key):
    return b"UNIQ_KEY\x01%s\x02" % key


def test_messages_are_at_the_returned_positions(shop):
    async def scenario():
        async with shop.open() as stub:
            first = await shop.put(b"a", b"b")
            second = await shop.put(b"c", properties=[b"KEYS\x01k\x02TAGS\x01t\x02"], flags=[-7])
            found = await shop.get()

            assert (first.answer.certainty, list(first.queue_offsets)) == (answer_pb2.CERTAINTY_DONE, [0, 1])
            assert list(second.queue_offsets) == [2]
            assert list(found.columns.bodies) == [b"a", b"b", b"c"]
            assert list(found.columns.physical_offsets) == [*first.physical_offsets, *second.physical_offsets]
            assert list(found.columns.flags) == [0, 0, -7]
            assert (found.next_offset, found.max_offset) == (3, 3)
            place = second.store_host + second.physical_offsets[0].to_bytes(8, "big")
            by_id = await stub.QueryById(pb.QueryByIdRequest(message_id=place.hex().upper()))
            assert list(by_id.columns.bodies) == [b"c"]
            assert by_id.columns.properties[0] == b"KEYS\x01k\x02TAGS\x01t\x02"

    run(scenario)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"bodies": []}, "ILLEGAL_MESSAGE"),
        ({"bodies": [b"x"] * 4097}, "ILLEGAL_MESSAGE"),
        ({"bodies": [bytes(4 << 20), b"", bytes(4 << 20), b"x"]}, "ILLEGAL_MESSAGE"),
        ({"bodies": [bytes((4 << 20) + 1)]}, "ILLEGAL_MESSAGE"),
        ({"bodies": [b"x"], "properties": [bytes(32768)]}, "ILLEGAL_MESSAGE"),
        ({"bodies": [b"x"], "properties": [b"", b""]}, "ILLEGAL_MESSAGE"),
        ({"bodies": [b"x"], "queue_ids": [0, 1]}, "ILLEGAL_MESSAGE"),
        ({"bodies": [b"x"], "sys_flags": [0x80]}, "ILLEGAL_MESSAGE"),
        ({"bodies": [b"x"], "queue_ids": [2]}, "UNKNOWN_QUEUE"),
        ({"bodies": [b"x"], "queue_ids": [-1]}, "UNKNOWN_QUEUE"),
        ({"bodies": [b"x"], "topic": "nothing"}, "UNKNOWN_TOPIC"),
        ({"bodies": [b"x"], "topic": "../etc"}, "ILLEGAL_MESSAGE"),
        ({"bodies": [b"x"], "topic": ""}, "ILLEGAL_MESSAGE"),
        ({"bodies": [b"x"], "topic": "rmq_sys_dledger"}, "ILLEGAL_MESSAGE"),
        ({"bodies": [b"x"], "topic": "readonly"}, "TOPIC_NOT_WRITABLE"),
        ({"bodies": [b"x"], "properties": [b"KEYS\x01%s\x02DELAY\x011\x02" % (b"k" * 32_690)]}, "ILLEGAL_MESSAGE"),
        ({"bodies": [b"x"], "properties": [b"DELAY\x011\x02TRAN_MSG\x01true\x02"]}, "ILLEGAL_MESSAGE"),
        ({"bodies": [b"x", b"y"], "properties": [b"DELAY\x011\x02", b"TIMER_OUT_MS\x011"]}, "UNSUPPORTED"),
        ({"bodies": [b"x"], "properties": [b"TIMER_DELIVER_MS\x01soon\x02"]}, "ILLEGAL_MESSAGE"),
        ({"bodies": [b"x"], "properties": [b"TIMER_DELAY_SEC\x01999999999\x02"]}, "ILLEGAL_MESSAGE"),
        ({"bodies": [b"x"], "properties": [b"TRAN_MSG\x01True\x02"]}, "ILLEGAL_MESSAGE"),
        ({"bodies": [b"x"], "sys_flags": [0x4]}, "UNSUPPORTED"),
        ({"bodies": [b"x"], "sys_flags": [0xC]}, "UNSUPPORTED"),
    ],
)
def test_invalid_puts_are_refused_with_a_reason_and_nothing_is_stored(shop, fields, reason):
    async def scenario():
        async with shop.open() as stub:
            await shop.set_topic("readonly", permission=4)
            request = pb.PutRequest(**{"topic": TOPIC, "request_id": 9, **fields})
            stream = stub.PutStream(iter([request]))
            for response in (await stub.Put(request), await stream.read()):
                assert response.answer.reason == reason, response.answer
                assert response.answer.certainty == answer_pb2.CERTAINTY_NOT_DONE
                assert response.answer.message
                assert (response.request_id, len(response.queue_offsets)) == (9, 0)
            assert shop.replica.store.log.end_offset == 0

    run(scenario)


@pytest.mark.parametrize(
    "properties",
    [
        b"DELAY\x010\x02",
        b"DELAY\x01soon\x02",
        b"TRAN_MSG\x01false\x02",
        b"NO_DELAY\x013\x02",
        b"KEYS\x01TIMER_DELIVER_MS\x02",
        b"DELAY\x013\x02REAL_TOPIC\x01orders\x02",
    ],
)
def test_messages_without_a_delivery_option_or_with_a_completed_one_are_put(shop, properties):
    async def scenario():
        async with shop.open():
            assert (await shop.put(b"x", properties=[properties])).answer.code == 0
            assert [properties] == list((await shop.get()).columns.properties)

    run(scenario)


def test_a_retry_is_answered_with_the_first_result_also_after_a_restart(shop):
    async def scenario():
        async with shop.open():
            await shop.put(b"zero")
            first = await shop.put(b"x", properties=[unique(b"A")])
            again = await shop.put(b"x", properties=[unique(b"A")])
            assert (again.physical_offsets, again.repeated_count) == (first.physical_offsets, 1)
        async with shop.open() as stub:
            again = await shop.put(b"x", b"y", properties=[unique(b"A"), unique(b"B")])
            assert (list(again.queue_offsets), again.repeated_count) == ([1, 2], 1)
            assert list(again.store_hosts) == [first.store_host, again.store_host]
            found = await stub.QueryById(pb.QueryByIdRequest(unique_key="A", topic=TOPIC))
            assert list(found.columns.queue_offsets) == [1]

    run(scenario)


def test_query_by_a_unique_key_reports_a_search_that_ended_early(shop, monkeypatch):
    async def scenario():
        async with shop.open() as stub:
            await shop.put(b"x", properties=[unique(b"A")])
            request = pb.QueryByIdRequest(unique_key="A", topic=TOPIC)
            assert not (await stub.QueryById(request)).is_truncated
            monkeypatch.setattr("store.access.message_query._CANDIDATES_MAX", 1)
            found = await stub.QueryById(request)
            assert (list(found.columns.bodies), found.is_truncated) == ([b"x"], True)

    run(scenario)


def test_a_retry_to_another_queue_returns_the_queue_of_the_stored_message(shop):
    async def scenario():
        async with shop.open():
            first = await shop.put(b"x", properties=[unique(b"A")], queue_id=1)
            assert list(first.queue_ids) == []
            again = await shop.put(b"y", b"x", properties=[unique(b"B"), unique(b"A")], queue_id=0)
            assert (list(again.queue_ids), list(again.queue_offsets)) == ([0, 1], [0, 0])

    run(scenario)


def test_a_topic_is_created_by_a_put_only_if_that_is_enabled(shop):
    async def scenario():
        async with shop.open(auto_create_topic_enable=True, default_topic_queue_nums=3) as stub:
            answers = await asyncio.gather(*(shop.put(b"%d" % number, topic="new") for number in range(20)))
            assert sorted(answer.queue_offsets[0] for answer in answers) == list(range(20))
            topics = await stub.ListTopics(pb.ListTopicsRequest(topic="new"))
            assert topics.topics[0].write_queues == 3
        async with shop.open():
            assert (await shop.put(b"x", topic="new")).queue_offsets == [20]
            assert (await shop.put(b"x", topic="other")).answer.reason == "UNKNOWN_TOPIC"

    run(scenario)


def test_a_put_whose_topic_may_have_been_created_reports_its_messages_as_not_put(shop, monkeypatch):
    change = LocalState.change

    async def changed_without_answer(self, command):
        await change(self, command)
        raise RequestFailed(Reason.DISK_FULL, "it is not known", certainty=Certainty.UNKNOWN)

    async def scenario():
        async with shop.open(auto_create_topic_enable=True) as stub:
            monkeypatch.setattr(LocalState, "change", changed_without_answer)
            answer = (await shop.put(b"x", topic="new")).answer
            assert (answer.reason, answer.certainty) == ("DISK_FULL", answer_pb2.CERTAINTY_NOT_DONE)
            monkeypatch.undo()
            # So it is retried: here the topic existed.
            assert [topic.name for topic in (await stub.ListTopics(pb.ListTopicsRequest())).topics] == ["new", TOPIC]
            assert (await shop.put(b"x", topic="new")).queue_offsets == [0]

    run(scenario)


def test_a_put_creates_its_topic_on_a_full_disk_whose_journal_has_space(shop):
    async def scenario():
        shop.files = FaultyDisk()
        shop.files.full_part = "config"
        async with shop.open(auto_create_topic_enable=True):
            shop.files.is_full = True
            assert (await shop.put(b"x", topic="new")).queue_offsets == [0]
        async with shop.open(auto_create_topic_enable=True) as stub:
            assert [topic.name for topic in (await stub.ListTopics(pb.ListTopicsRequest())).topics] == ["new", TOPIC]

    run(scenario)


def test_a_producer_finds_the_route_of_a_topic_that_its_first_message_creates(shop):
    async def scenario():
        async with shop.open(auto_create_topic_enable=True, default_topic_queue_nums=3) as stub:
            for name in ("a b", "rmq_sys_x", "TBW102"):
                assert not (await stub.Route(nameserver_pb2.RouteRequest(topics=[name]))).routes
            async with Producer(str(shop.address)) as producer:
                sent = [await producer.send("new", b"x") for _ in range(3)]
                assert sorted(each.queue_id for each in sent) == [0, 1, 2]
                with pytest.raises(NotAppended, match="UNKNOWN_TOPIC"):
                    await producer.send("rmq_sys_x", b"x")

    run(scenario)


def test_topic_of_an_old_store_whose_name_is_too_long_for_puts_is_read_only(shop):
    async def scenario():
        async with shop.open(auto_create_topic_enable=True) as stub:
            name = "t" * 141
            unknown = await shop.put(b"x", topic=name)
            assert (unknown.answer.reason, unknown.answer.code) == ("UNKNOWN_TOPIC", 5)
            assert "too long for puts" in unknown.answer.message
            assert not (await stub.Route(nameserver_pb2.RouteRequest(topics=[name]))).routes

            refused = (await shop.set_topic(name)).answer
            assert (refused.reason, "only names of at most 127 characters" in refused.message) == (
                "ILLEGAL_REQUEST",
                True,
            )
            assert (await shop.set_topic(name, permission=4)).is_changed

            put = await shop.put(b"x", topic=name)
            assert put.answer.reason == "TOPIC_NOT_WRITABLE"
            assert "it can only be read: choose a shorter one" in put.answer.message
            assert not (await shop.get(topic=name)).answer.code

    run(scenario)


def test_requests_of_one_stream_keep_their_order_and_each_is_answered_once(shop):
    async def scenario():
        async with shop.open() as stub:
            requests = [
                pb.PutRequest(topic=TOPIC, queue_ids=[number % 2], bodies=[b"%d" % number], request_id=number)
                for number in range(300)
            ]
            answers = {response.request_id: response async for response in stub.PutStream(iter(requests))}
            assert sorted(answers) == list(range(300))
            for queue_id in (0, 1):
                offsets = [answers[number].queue_offsets[0] for number in range(queue_id, 300, 2)]
                assert offsets == list(range(150))

    run(scenario)


def test_acknowledged_messages_exist_once_after_a_kill(broker):
    """Four callers put until the process is killed, three times; every acknowledged message is at its offset."""
    places: dict[bytes, tuple[int, int]] = {}
    for life in range(3):
        with grpc.insecure_channel(broker.address) as channel:
            stub = broker_pb2_grpc.BrokerServiceStub(channel)
            topic = pb.Topic(name=TOPIC, read_queues=4, write_queues=4, permission=6)
            assert not stub.SetTopic(pb.SetTopicRequest(topic=topic)).answer.code
            threads = [threading.Thread(target=_put_until_killed, args=(stub, life, each, places)) for each in range(4)]
            for thread in threads:
                thread.start()
            wait_until(lambda goal=60 * (life + 1): len(places) >= goal, "puts are acknowledged")
            broker.kill()
            for thread in threads:
                thread.join()
        broker.start()
    with grpc.insecure_channel(broker.address) as channel:
        stub = broker_pb2_grpc.BrokerServiceStub(channel)
        found = {body: place for queue_id in range(4) for body, place in _read_queue(stub, queue_id)}
        assert stub.ListTopics(pb.ListTopicsRequest()).topics[0].name == TOPIC
    assert places.items() <= found.items()
    assert broker.stop() == 0


def _put_until_killed(stub, life, queue_id, places):
    for number in range(100_000):
        body = b"%d-%d-%d" % (life, queue_id, number)
        request = pb.PutRequest(topic=TOPIC, queue_ids=[queue_id], bodies=[body], properties=[unique(body)])
        try:
            response = stub.Put(request)
        except grpc.RpcError:
            return
        assert not response.answer.code, response.answer
        places[body] = (queue_id, response.queue_offsets[0])


def _read_queue(stub, queue_id):
    offset, bodies = 0, []
    while True:
        got = stub.Get(pb.GetRequest(topic=TOPIC, queue_id=queue_id, offset=offset, max_messages=1000))
        if not got.columns.bodies:
            break
        assert list(got.columns.queue_offsets) == list(range(offset, got.next_offset))
        bodies += [(body, (queue_id, offset + number)) for number, body in enumerate(got.columns.bodies)]
        offset = got.next_offset
    assert len({body for body, _ in bodies}) == len(bodies)
    return bodies
