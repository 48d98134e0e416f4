"""The spans of clients: how they carry, continue and link traces, and what becomes of them when something fails."""

import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from cluster.client.consumer.delivery_spans import DeliverySpans
from cluster.client.producer.batch import SendItem
from cluster.client.producer.outgoing import OutgoingMessage
from cluster.client.producer.send_spans import SendSpans
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.trace_context import TRACEPARENT, context_of
from tests.support.telemetry.recorded import Recorded, links_of
from tests.support.waiting import in_a_loop


@pytest.fixture
def recorded():
    return Recorded()


class Making:
    """Makes items, and keeps their messages."""

    def __init__(self):
        self.messages = []

    def __call__(self, messages):
        self.messages += messages
        keys = tuple(f"U{number}" for number in range(len(messages)))
        return SendItem(messages[0].topic, (), keys, 0.0, 1, asyncio.get_running_loop().create_future())


class Place:
    queue_id = 3


@in_a_loop
async def test_context_of_a_send_travels_with_each_of_its_messages(recorded):
    making = Making()
    messages = [OutgoingMessage("orders", b"1", properties={"a": "b"}), OutgoingMessage("orders", b"22")]
    item = SendSpans(recorded.provider).follow(messages, making)
    item.future.set_result([Place()])
    await asyncio.sleep(0)

    span = recorded.one("send orders")
    assert [context_of(each.properties).span_id for each in making.messages] == [span.context.span_id] * 2
    assert making.messages[0].properties["a"] == "b"
    assert messages[0].properties == {"a": "b"}
    assert span.attributes["messaging.batch.message_count"] == 2
    assert span.attributes["messaging.destination.partition.id"] == "3"
    assert span.kind is trace.SpanKind.PRODUCER
    assert span.status.is_ok


@in_a_loop
async def test_message_that_has_a_context_keeps_it_and_the_send_is_linked_to_it(recorded):
    making, own = Making(), f"00-{7:032x}-{8:016x}-01"
    message = OutgoingMessage("orders", b"", properties={TRACEPARENT: own}, keys="secret-key")
    SendSpans(recorded.provider).follow([message], making).future.set_result([Place()])
    await asyncio.sleep(0)

    assert making.messages[0].properties[TRACEPARENT] == own
    assert links_of(recorded.one("send orders")) == {8}
    assert "secret" not in recorded.one("send orders").to_json()


@in_a_loop
async def test_send_that_fails_or_is_cancelled_ends_its_span_with_the_cause(recorded):
    spans, message = SendSpans(recorded.provider), OutgoingMessage("orders", b"")
    spans.follow([message], Making()).future.set_exception(RequestFailed(Reason.DISK_FULL, "secret text"))
    spans.follow([message], Making()).future.cancel()

    def refused(_messages):
        raise TypeError("secret text")

    with pytest.raises(TypeError):
        spans.follow([message], refused)
    await asyncio.sleep(0)

    assert {span.attributes["error.type"] for span in recorded.spans} == {"DISK_FULL", "cancelled", "TypeError"}
    assert not any("secret" in span.to_json() for span in recorded.spans)


@in_a_loop
async def test_decision_not_to_record_travels_too():
    recorded, making = Recorded(ALWAYS_OFF), Making()
    SendSpans(recorded.provider).follow([OutgoingMessage("orders", b"")], making).future.set_result([Place()])
    await asyncio.sleep(0)

    assert not context_of(making.messages[0].properties).trace_flags.sampled
    assert recorded.spans == []


class Body:
    body_size = 4


class Delivered:
    """A message as a consumer gets it."""

    topic = origin_topic = "orders"
    queue_id = 5
    attempts = 2
    unique_key = "U1"
    tags = "paid"
    record = Body()
    span = None

    def __init__(self, **properties):
        self.properties = {"KEYS": "secret", **properties}


def test_delivery_continues_the_trace_of_its_producer_and_is_linked_to_it(recorded):
    spans = DeliverySpans(recorded.provider, "billing", "c1")
    message = Delivered(traceparent=f"00-{7:032x}-{8:016x}-01")
    spans.delivered([message, alone := Delivered()])
    assert recorded.spans == []
    spans.processed([message, alone, message])

    first, second = recorded.named("process orders")
    assert (first.context.trace_id, first.parent.span_id, links_of(first)) == (7, 8, {8})
    assert (second.parent, links_of(second)) == (None, set())
    assert first.kind is trace.SpanKind.CONSUMER
    assert dict(first.attributes) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.consumer.group.name": "billing",
        "messaging.client.id": "c1",
        "messaging.destination.partition.id": "5",
        "messaging.message.body.size": 4,
        "messaging.rocketmq.message.delivery_attempt": 2,
        "messaging.message.id": "U1",
        "messaging.rocketmq.message.tag": "paid",
    }


@in_a_loop
async def test_handler_runs_within_the_span_of_its_message_and_its_failure_is_in_it(recorded):
    spans, current = DeliverySpans(recorded.provider, "billing"), []

    async def handler(_message):
        current.append(trace.get_current_span().get_span_context().span_id)
        raise ValueError("secret text")

    message = Delivered()
    spans.delivered([message])
    with pytest.raises(ValueError, match="secret text"):
        await spans.handle(handler, message)
    spans.returned(message)

    span = recorded.one("process orders")
    assert current == [span.context.span_id]
    assert span.attributes["error.type"] == "ValueError"
    assert not span.status.is_ok
    assert "secret" not in span.to_json()


def test_message_that_is_returned_has_a_failed_span(recorded):
    spans, message = DeliverySpans(recorded.provider, "billing"), Delivered()
    spans.delivered([message])
    spans.returned(message)
    spans.processed([message])

    assert recorded.one("process orders").attributes["error.type"] == "returned"
