"""Get, Subscribe and queries over gRPC: results, waits, and refusals."""

import asyncio

import grpc
import pytest

from cluster.api import read_calls
from cluster.api.query_calls import QueryCalls
from cluster.v1 import broker_pb2 as pb
from tests.integration.cluster.api.conftest import run
from tests.support.waiting import counting_turns, until

TOPIC = "orders"


def tagged(tag, key=b"k"):
    return b"KEYS\x01%s\x02TAGS\x01%s\x02" % (key, tag)


@pytest.mark.parametrize(
    ("fields", "status", "next_offset"),
    [
        ({"offset": 0}, "FOUND", 3),
        ({"offset": 3}, "OFFSET_OVERFLOW_ONE", 3),
        ({"offset": 4}, "OFFSET_OVERFLOW_BADLY", 3),
        ({"offset": 1 << 62}, "OFFSET_OVERFLOW_BADLY", 3),
        ({"offset": 1 << 62, "wait_ms": 2**31 - 1}, "OFFSET_OVERFLOW_BADLY", 3),
        ({"queue_id": 1, "offset": 0}, "NO_MATCHED_LOGIC_QUEUE", 0),
        ({"queue_id": 1, "offset": 5, "wait_ms": 30_000}, "OFFSET_OVERFLOW_BADLY", 0),
        ({"offset": 0, "tags": "nobody"}, "NO_MATCHED_MESSAGE", 3),
        ({"offset": 0, "max_messages": 1}, "FOUND", 1),
        ({"offset": 0, "max_bytes": 1}, "FOUND", 1),
        ({"offset": 1, "max_messages": 2**31 - 1, "max_bytes": 2**62}, "FOUND", 3),
    ],
)
def test_a_read_returns_the_messages_and_the_next_offset(shop, fields, status, next_offset):
    async def scenario():
        async with shop.open():
            await shop.put(bytes(100), bytes(100), bytes(100))
            found = await shop.get(**fields)
            assert (pb.GetStatus.Name(found.status), found.next_offset) == (f"GET_STATUS_{status}", next_offset)

    run(scenario)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"offset": -1}, "ILLEGAL_REQUEST"),
        ({"max_messages": -1}, "ILLEGAL_REQUEST"),
        ({"max_bytes": -1}, "ILLEGAL_REQUEST"),
        ({"wait_ms": -1}, "ILLEGAL_REQUEST"),
        ({"tags": "a|b"}, "ILLEGAL_REQUEST"),
        ({"queue_id": 2}, "UNKNOWN_QUEUE"),
        ({"queue_id": -1}, "UNKNOWN_QUEUE"),
        ({"topic": "nothing"}, "UNKNOWN_TOPIC"),
        ({"topic": "secret"}, "TOPIC_NOT_READABLE"),
        ({"group": "stopped"}, "GROUP_NOT_ENABLED"),
    ],
)
def test_invalid_reads_are_refused_with_a_reason(shop, fields, reason):
    async def scenario():
        async with shop.open() as stub:
            await shop.set_topic("secret", permission=2)
            await stub.SetGroup(pb.SetGroupRequest(group=pb.Group(name="stopped")))
            fields_of_stream = {name: value for name, value in fields.items() if name in ("topic", "tags", "group")}
            fields_of_stream |= {"queue_ids": [fields.get("queue_id", 0)], "offsets": [fields.get("offset", 0)]}
            assert (await shop.get(**fields)).answer.reason == reason
            if not {"max_messages", "wait_ms"} & fields.keys():
                stream = stub.Subscribe(
                    pb.SubscribeRequest(**{"topic": TOPIC, **fields_of_stream, "max_bytes": fields.get("max_bytes", 0)})
                )
                assert [each.answer.reason async for each in stream] == [reason]

    run(scenario)


def test_a_long_poll_ends_with_the_message_that_it_waits_for(shop):
    async def scenario():
        async with shop.open():
            await shop.put(b"before")
            waiting = asyncio.ensure_future(shop.get(1, wait_ms=2**31 - 1, tags="paid"))
            await until(lambda: shop.replica.store.waiters_count == 1)
            await shop.put(b"open", properties=[tagged(b"open")])
            await shop.put(b"paid", properties=[tagged(b"paid")])
            found = await waiting
            assert (list(found.columns.bodies), found.next_offset) == ([b"paid"], 3)
            assert shop.replica.store.waiters_count == 0

    run(scenario)


def test_a_long_poll_ends_after_its_time_and_leaves_no_waiter_when_the_client_goes(shop):
    async def scenario():
        async with shop.open():
            found = await shop.get(0, wait_ms=30)
            assert pb.GetStatus.Name(found.status) == "GET_STATUS_NO_MATCHED_LOGIC_QUEUE"
            waiting = asyncio.ensure_future(shop.get(0, wait_ms=30_000))
            await until(lambda: shop.replica.store.waiters_count == 1)
            waiting.cancel()
            await until(lambda: shop.replica.store.waiters_count == 0)

    run(scenario)


@pytest.mark.parametrize("wait_ms", [31_000, 2**31 - 1])
def test_a_long_poll_never_waits_longer_than_the_limit(shop, monkeypatch, wait_ms):
    assert read_calls.WAIT_MS_MAX == 30_000
    monkeypatch.setattr(read_calls, "WAIT_MS_MAX", 50)

    async def scenario():
        async with shop.open():
            found = await shop.get(0, wait_ms=wait_ms)
            assert pb.GetStatus.Name(found.status) == "GET_STATUS_NO_MATCHED_LOGIC_QUEUE"
            assert shop.replica.store.waiters_count == 0

    run(scenario)


def test_address_with_its_share_of_the_waiting_readers_is_refused(shop):
    async def scenario():
        async with shop.open():
            waiting = [asyncio.ensure_future(shop.get(0, wait_ms=30_000)) for _ in range(8)]
            await until(lambda: shop.replica.store.waiters_count == 8)
            answer = (await shop.get(0, wait_ms=30_000)).answer
            assert (answer.reason, "the 16 waiting readers" in answer.message) == ("OVERLOADED", True)
            await shop.put(b"x")
            assert {each.columns.bodies[0] for each in await asyncio.gather(*waiting)} == {b"x"}

    run(scenario)


@pytest.mark.parametrize("form", [pb.MESSAGE_FORM_COLUMNS, pb.MESSAGE_FORM_RECORDS])
def test_a_subscription_delivers_existing_and_new_messages_of_all_its_queues(shop, form):
    async def scenario():
        async with shop.open() as stub:
            for number in range(50):
                await shop.put(
                    b"old%d" % number, queue_id=number % 2, properties=[tagged(b"a" if number % 3 else b"b")]
                )
            request = pb.SubscribeRequest(
                topic=TOPIC, queue_ids=[0, 1], offsets=[4, 0], tags="a", form=form, max_bytes=600
            )
            stream = stub.Subscribe(request)
            wanted = {b"old%d" % number for number in range(50) if number % 3 and (number % 2 or number >= 8)}
            found, next_offsets = [], {0: 4, 1: 0}
            while len(found) < len(wanted) + 1:
                response = await stream.read()
                assert not response.answer.code
                assert next_offsets[response.queue_id] <= response.next_offset
                next_offsets[response.queue_id] = response.next_offset
                found += bodies_of(response)
                if len(found) == len(wanted):
                    await shop.put(b"skip", properties=[tagged(b"b")])
                    await shop.put(b"new", properties=[tagged(b"a")])
            assert found[-1] == b"new"
            assert set(found[:-1]) == wanted
            stream.cancel()
            await until(lambda: shop.broker.core.metrics.counts.subscribe_streams == 0)
            await until(lambda: shop.replica.store.waiters_count == 0)

    run(scenario)


def bodies_of(response):
    if response.columns.bodies:
        return list(response.columns.bodies)
    bodies, data = [], response.records
    while data:
        size, body_size = int.from_bytes(data[:4], "big"), int.from_bytes(data[84:88], "big")
        bodies.append(data[88 : 88 + body_size])
        data = data[size:]
    return bodies


def test_a_subscription_reports_an_offset_beyond_the_end_and_continues_with_the_others(shop):
    async def scenario():
        async with shop.open() as stub:
            await shop.put(b"x", queue_id=1)
            stream = stub.Subscribe(pb.SubscribeRequest(topic=TOPIC, queue_ids=[0, 1], offsets=[7, 0]))
            await stream.read()
            beyond, found = await stream.read(), await stream.read()
            assert (pb.GetStatus.Name(beyond.status), beyond.queue_id) == ("GET_STATUS_OFFSET_OVERFLOW_BADLY", 0)
            assert (list(found.columns.bodies), found.queue_id) == ([b"x"], 1)

    run(scenario)


def test_a_reader_that_never_reads_uses_bounded_memory(shop):
    async def scenario():
        async with shop.open() as stub:
            body = bytes(100_000)
            stream = stub.Subscribe(pb.SubscribeRequest(topic=TOPIC, queue_ids=[0], offsets=[0], max_bytes=200_000))
            await stream.read()
            counts = shop.broker.core.metrics.counts
            for number in range(150):
                assert (await shop.put(body)).queue_offsets == [number]
            # 15 MB were put; only the buffers of one connection have left the broker.
            assert counts.get_bytes < 8_000_000
            found = 0
            while found < 150:
                found += len((await stream.read()).columns.bodies)
            assert counts.get_messages == 150

    run(scenario)


def test_messages_are_found_by_key_and_by_time(shop):
    async def scenario():
        async with shop.open() as stub:
            stamps = []
            for number in range(30):
                put = await shop.put(
                    b"%d" % number, queue_id=number % 2, properties=[tagged(b"t", b"k%d" % (number % 3))]
                )
                stamps.append(put.store_timestamps[0])
                await asyncio.sleep(0.002)
            keyed = await stub.QueryByKey(pb.QueryByKeyRequest(topic=TOPIC, key="k1", max_messages=4))
            assert (list(keyed.columns.bodies), keyed.is_truncated) == ([b"28", b"25", b"22", b"19"], True)
            assert not (await stub.QueryByKey(pb.QueryByKeyRequest(topic=TOPIC, key="none"))).columns.bodies

            begin_ms, end_ms = stamps[10], stamps[20]
            request = pb.QueryByTimeRequest(topic=TOPIC, begin_ms=begin_ms, end_ms=end_ms, max_messages=3)
            found = []
            while True:
                response = await stub.QueryByTime(request)
                found += [int(body) for body in response.columns.bodies]
                request.cursor = response.cursor
                if not response.cursor:
                    break
            wanted = [number for number in range(30) if begin_ms <= stamps[number] < end_ms]
            assert found == sorted(wanted, key=lambda number: (number % 2, number))

            offsets = await stub.Offsets(pb.OffsetsRequest(topic=TOPIC, timestamp_ms=begin_ms))
            assert (list(offsets.min_offsets), list(offsets.max_offsets)) == ([0, 0], [15, 15])
            # [5, 5], unless the machine's clock was set back meanwhile.
            earlier = [number for number in range(30) if stamps[number] < begin_ms]
            assert list(offsets.offsets_by_time) == [sum(number % 2 == each for number in earlier) for each in (0, 1)]
            assert list(offsets.earliest_timestamps) == stamps[:2]

    run(scenario)


def test_other_work_runs_while_many_queues_are_examined(shop, monkeypatch):
    monkeypatch.setattr("cluster.process.cooperative.STEP_S", 0.0)

    async def scenario():
        async with shop.open():
            await shop.set_topic("many", 500)
            request = pb.OffsetsRequest(topic="many", timestamp_ms=1)
            async with counting_turns() as turns:
                answer = await QueryCalls(shop.broker.core).offsets(request)
                assert turns() >= 500
            assert len(answer.offsets_by_time) == len(answer.max_offsets) == 500

    run(scenario)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (pb.QueryByIdRequest(message_id="00"), "ILLEGAL_REQUEST"),
        (pb.QueryByIdRequest(message_id="0" * 32), "NO_MESSAGE"),
        (pb.QueryByIdRequest(unique_key="none", topic=TOPIC), "NO_MESSAGE"),
        (pb.QueryByIdRequest(unique_key="none", topic="nothing"), "UNKNOWN_TOPIC"),
        (pb.QueryByKeyRequest(topic=TOPIC), "ILLEGAL_REQUEST"),
        (pb.QueryByKeyRequest(topic=TOPIC, key="k", max_messages=-1), "ILLEGAL_REQUEST"),
        (pb.QueryByTimeRequest(topic=TOPIC, begin_ms=2, end_ms=1), "ILLEGAL_REQUEST"),
        (pb.QueryByTimeRequest(topic=TOPIC, cursor=b"x"), "ILLEGAL_REQUEST"),
        (pb.QueryByTimeRequest(topic=TOPIC, queue_ids=[9]), "UNKNOWN_QUEUE"),
        (pb.OffsetsRequest(topic="nothing"), "UNKNOWN_TOPIC"),
    ],
)
def test_invalid_queries_are_refused_with_a_reason(shop, request_, reason):
    async def scenario():
        async with shop.open() as stub:
            await shop.put(b"x")
            ask = getattr(stub, type(request_).__name__.removesuffix("Request"))
            assert (await ask(request_)).answer.reason == reason

    run(scenario)


def test_status_health_and_metrics_describe_the_broker(shop):
    async def scenario():
        async with shop.open() as stub:
            await shop.put(b"x")
            # A confirmed read: its messages are dispatched.
            assert list((await stub.Offsets(pb.OffsetsRequest(topic=TOPIC, queue_ids=[0]))).max_offsets) == [1]
            status = await stub.Status(pb.BrokerStatusRequest())
            assert (status.role, status.is_serving_puts, status.divided_offset) == ("STANDALONE", True, -1)
            assert 0 < status.dispatched_physical_offset == status.max_physical_offset
            assert (status.topics_count, status.queues_count) == (1, 1)
            families = {family.name: family for family in shop.broker.core.metrics.collect()}
            assert families["dledger_broker_put_messages"].samples[0].value == 1
            assert families["dledger_broker_max_physical_offset"].samples[0].value == status.max_physical_offset

    run(scenario)


def test_a_second_broker_cannot_open_a_store_that_is_open(shop, tmp_path):
    async def scenario():
        async with shop.open():
            other = type(shop)(shop.path)
            with pytest.raises(Exception, match="locked"):
                async with other.open():
                    pass
            assert (await shop.put(b"x")).queue_offsets == [0]

    run(scenario)


def test_calls_end_when_the_broker_stops(shop):
    async def scenario():
        async with shop.open():
            waiting = asyncio.ensure_future(shop.get(0, wait_ms=30_000))
            await until(lambda: shop.replica.store.waiters_count == 1)
        with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
            await waiting

    run(scenario)
