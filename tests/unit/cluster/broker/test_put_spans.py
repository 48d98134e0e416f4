"""The spans of puts: one for each recorded trace, none else, and never more than the bound."""

import pytest

from cluster.broker.put_spans import SPANS_MAX, PutSpans
from cluster.protocol.trace_context import TRACEPARENT
from commitlog.record.properties import encode_properties
from tests.support.telemetry.recorded import Recorded, links_of


def parent(number, flags="01"):
    return f"00-{number:032x}-{number:016x}-{flags}"


def properties(*parents):
    return [encode_properties({"KEYS": "secret", **({TRACEPARENT: each} if each else {})}) for each in parents]


@pytest.fixture
def recorded():
    return Recorded()


@pytest.fixture
def spans(recorded):
    return PutSpans(recorded.provider.get_tracer("test"))


def test_each_recorded_trace_of_a_request_has_one_span_below_that_of_its_producer(recorded, spans):
    begun = spans.begin("orders", properties(parent(1), "", parent(2), parent(1), parent(3, "00")), [4, 4, 4, 4, 4])
    spans.end(begun, "")

    found = recorded.named("put orders")
    assert [(each.parent.trace_id, each.parent.span_id) for each in found] == [(1, 1), (2, 2)]
    assert [links_of(each) for each in found] == [{1}, {2}]
    assert dict(found[0].attributes) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "put",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "4",
        "messaging.batch.message_count": 5,
    }


def test_request_without_a_recorded_trace_has_no_span(recorded, spans):
    assert spans.begin("orders", properties("", parent(3, "00"), "nonsense"), [0, 1, 2]) == []
    assert recorded.spans == []


def test_caller_that_names_its_span_is_the_parent_and_messages_are_links(recorded, spans):
    metadata = [("authorization", "Bearer secret"), (TRACEPARENT, parent(9)), ("x-bin", b"\xff")]
    spans.end(spans.begin("orders", properties(parent(1), parent(2)), [0, 1], metadata), "FLUSH_DISK_TIMEOUT")

    found = recorded.one("put orders")
    assert (found.parent.span_id, links_of(found)) == (9, {1, 2})
    assert found.attributes["error.type"] == "FLUSH_DISK_TIMEOUT"
    assert not found.status.is_ok
    assert "messaging.destination.partition.id" not in found.attributes
    assert "secret" not in str(found.to_json())


def test_traces_above_the_bound_of_a_request_have_no_span_and_are_counted(recorded, spans):
    begun = spans.begin("orders", properties(*(parent(number) for number in range(1, SPANS_MAX + 6))), [0])

    assert (len(begun), spans.left_out_count) == (SPANS_MAX, 5)
