"""OpenTelemetry through real clients and brokers: one trace from the send to the processing; nothing when it is off."""

import sys

import grpc
import pytest

from cluster import Consumer, PopConsumer, Producer
from cluster.client.producer.outgoing import OutgoingMessage
from cluster.protocol.trace_context import TRACEPARENT
from cluster.server.span_export import SpanExport
from cluster.v1 import broker_pb2 as pb
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from commitlog.record.properties import encode_properties
from tests.integration.cluster.api.conftest import SMALL, TOPIC, run
from tests.support.brokers.process import BrokerProcess
from tests.support.telemetry.collector import running_collector
from tests.support.telemetry.recorded import Recorded, links_of
from tests.support.waiting import wait_until

SEND, PUT, PROCESS = f"send {TOPIC}", f"put {TOPIC}", f"process {TOPIC}"


@pytest.fixture
def recorded():
    return Recorded()


@pytest.fixture
def traced(shop):
    """Return a broker whose spans end in memory."""
    own = Recorded()
    shop.spans = SpanExport(own.exporter, "c", "b", "b", interval_s=0.001)
    yield shop, own
    shop.spans._close()


def spans_of_the_broker(shop, own, count):
    wait_until(lambda: len(own.spans) >= count)
    return own.spans


@pytest.mark.parametrize("may_use_frames", [True, False])
def test_one_trace_leads_from_the_producer_through_the_broker_to_the_consumer(traced, recorded, may_use_frames):
    shop, own = traced

    async def scenario():
        async with shop.open():
            address, provider = str(shop.address), recorded.provider
            with provider.get_tracer("application").start_as_current_span("order") as order:
                async with Producer(address, tracer_provider=provider, may_use_frames=may_use_frames) as producer:
                    sent = await producer.send(TOPIC, b"body", tags="paid", queue_id=1)
            group = {"group": "billing", "topics": [TOPIC], "start": "first"}
            async with Consumer(address, **group, tracer_provider=provider, trace=True) as consumer:
                message = await anext(consumer)
                assert message.span is not None
                consumer.acknowledge(message)
                assert message.span is None
            return order.get_span_context(), sent

    order, sent = run_and_return(scenario)
    send, process = recorded.one(SEND), recorded.one(PROCESS)
    (put,) = spans_of_the_broker(shop, own, 1)
    assert {each.context.trace_id for each in (send, put, process)} == {order.trace_id}
    assert send.parent.span_id == order.span_id
    assert [each.parent.span_id for each in (put, process)] == [send.context.span_id] * 2
    assert [links_of(each) for each in (put, process)] == [{send.context.span_id}] * 2
    assert send.attributes["messaging.message.id"] == process.attributes["messaging.message.id"] == sent.unique_key
    assert send.start_time <= put.start_time <= put.end_time
    assert all(each.status.is_ok for each in (send, put, process))


def run_and_return(scenario):
    found = []

    async def kept():
        found.append(await scenario())

    run(kept)
    return found[0]


def test_delayed_messages_and_those_of_a_batch_stay_in_their_trace(traced, recorded):
    shop, own = traced

    async def scenario():
        async with shop.open():
            async with Producer(str(shop.address), tracer_provider=recorded.provider) as producer:
                await producer.send(TOPIC, b"later", delay_s=0.01)
                await producer.send_many([OutgoingMessage(TOPIC, b"1"), OutgoingMessage(TOPIC, b"2")])
            group = {"group": "billing", "topics": [TOPIC], "start": "first"}
            async with Consumer(str(shop.address), **group, tracer_provider=recorded.provider) as consumer:
                found = 0
                while found < 3:
                    found += len(await consumer.poll())
                await consumer.poll(timeout_s=0)

    run(scenario)
    later, batch = recorded.named(SEND)
    traces = [each.context.trace_id for each in recorded.named(PROCESS)]
    assert sorted(traces) == sorted([later.context.trace_id, *[batch.context.trace_id] * 2])
    assert len(spans_of_the_broker(shop, own, 2)) == 2


def test_handler_that_fails_and_the_retry_are_in_the_trace_of_the_message(traced, recorded):
    shop, _ = traced

    async def scenario():
        async with shop.open():
            async with Producer(str(shop.address), tracer_provider=recorded.provider) as producer:
                await producer.send(TOPIC, b"body")
            group = {"group": "billing", "topics": [TOPIC], "start": "first", "has_retries": True}
            async with Consumer(str(shop.address), **group, tracer_provider=recorded.provider) as consumer:
                message = await anext(consumer)
                await consumer.nack(message, delay_level=1)
                shop.clock_ahead_ms = 60_000
                again = await anext(consumer)
                assert again.attempts == 2
                consumer.acknowledge(again)

    run(scenario)
    first, second = recorded.named(PROCESS)
    assert {first.context.trace_id, second.context.trace_id} == {recorded.one(SEND).context.trace_id}
    assert (first.attributes["error.type"], second.status.is_ok) == ("returned", True)
    assert (
        first.attributes["messaging.rocketmq.message.delivery_attempt"],
        second.attributes["messaging.rocketmq.message.delivery_attempt"],
    ) == (1, 2)


def test_pop_consumer_continues_the_trace(traced, recorded):
    shop, _ = traced

    async def scenario():
        async with shop.open():
            async with Producer(str(shop.address), tracer_provider=recorded.provider) as producer:
                await producer.send(TOPIC, b"body")
            async with PopConsumer(
                str(shop.address), group="billing", topic=TOPIC, tracer_provider=recorded.provider
            ) as consumer:
                await consumer.acknowledge(await consumer.receive())

    run(scenario)
    send, process = recorded.one(SEND), recorded.one(PROCESS)
    assert (process.context.trace_id, links_of(process)) == (send.context.trace_id, {send.context.span_id})


def test_put_continues_the_trace_that_its_metadata_names(traced):
    shop, own = traced

    async def scenario():
        async with shop.open() as stub:
            request = pb.PutRequest(topic=TOPIC, queue_ids=[0], bodies=[b"x"])
            await stub.Put(request, metadata=[(TRACEPARENT, f"00-{7:032x}-{8:016x}-01")])
            refused = pb.PutRequest(topic="unknown", queue_ids=[0], bodies=[b"x"])
            await stub.Put(refused, metadata=[(TRACEPARENT, f"00-{7:032x}-{9:016x}-01")])

    run(scenario)
    stored, refused = spans_of_the_broker(shop, own, 2)
    assert [each.parent.span_id for each in (stored, refused)] == [8, 9]
    assert (stored.status.is_ok, refused.attributes["error.type"]) == (True, "UNKNOWN_TOPIC")


def test_clients_and_brokers_call_nothing_of_it_when_it_is_off(shop):
    """Also messages that carry a context are put, stored and read without a look at it."""
    called = []

    def follow(frame, event, _argument):
        name = frame.f_code.co_filename
        if event == "call" and (
            "opentelemetry" in name or "span" in name.rpartition("/")[2] or "trace_context" in name
        ):
            called.append((name, frame.f_code.co_name))

    async def scenario():
        async with shop.open():
            async with Producer(str(shop.address)) as producer:
                assert producer._spans is None
                sys.setprofile(follow)
                await producer.send(TOPIC, b"body", properties={TRACEPARENT: f"00-{7:032x}-{8:016x}-01"})
            group = {"group": "billing", "topics": [TOPIC], "start": "first"}
            async with Consumer(str(shop.address), **group) as consumer:
                message = await anext(consumer)
                consumer.acknowledge(message)
            sys.setprofile(None)
            assert message.properties[TRACEPARENT]

    try:
        run(scenario)
    finally:
        sys.setprofile(None)
    assert called == []


def test_process_of_a_broker_exports_its_spans_by_otlp(tmp_path, recorded):
    """The blocking producer sends in another thread, and yet below the span that is current in its caller's."""
    with running_collector() as collector:
        options = ["--auto-create-topics", "--otlp-endpoint", collector.url]
        broker = BrokerProcess(tmp_path / "store", options=options, **SMALL)
        broker.start()
        try:
            with grpc.insecure_channel(broker.address) as channel:
                properties = encode_properties({TRACEPARENT: f"00-{7:032x}-{8:016x}-01"})
                request = pb.PutRequest(topic=TOPIC, queue_ids=[0], bodies=[b"x"], properties=[properties])
                assert BrokerServiceStub(channel).Put(request, wait_for_ready=True).answer.code == 0
            with (
                recorded.provider.get_tracer("application").start_as_current_span("order") as order,
                Producer(broker.address, tracer_provider=recorded.provider) as producer,
            ):
                producer.send(TOPIC, b"x")
            wait_until(lambda: len(collector.spans) == 2)
        finally:
            broker.kill()
    assert recorded.one(SEND).parent.span_id == order.get_span_context().span_id
    span, below = collector.spans
    assert int.from_bytes(below.parent_span_id, "big") == recorded.one(SEND).context.span_id
    assert (span.name, int.from_bytes(span.trace_id, "big"), int.from_bytes(span.parent_span_id, "big")) == (PUT, 7, 8)
