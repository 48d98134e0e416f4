"""Planted bugs of message trace, of spans of OpenTelemetry, and of metrics by topic and group."""

import cluster.broker.core
import cluster.broker.put_spans
import cluster.client.consumer.delivery_spans
import cluster.client.producer.send_spans
import cluster.client.tracing.trace_batches
import cluster.client.tracing.trace_records
from cluster.broker.group_lag import GroupLag
from cluster.broker.traffic import Traffic
from cluster.client.tracing.trace_batches import TraceQueue
from cluster.server.span_export import _Bounded
from tests.mutants.mutant import Mutant, Tests

BATCHES = "tests/unit/cluster/client/requests_and_traces/test_trace_batches.py::"
RECORDS = "tests/unit/cluster/client/requests_and_traces/test_trace_records.py::"
TRACES = "tests/integration/cluster/api/observed/test_message_trace.py::"
LAG = "tests/unit/cluster/broker/test_group_lag.py::"
PUT_SPANS = "tests/unit/cluster/broker/test_put_spans.py::"
SPANS = "tests/unit/cluster/client/requests_and_traces/test_spans.py::"
EXPORT = "tests/unit/cluster/server/test_span_export.py::"
TRAFFIC = "tests/unit/cluster/broker/test_traffic.py::"


def queue_of_a_trace_is_unbounded(patch):
    def add(self, record):
        self._records.append(record)
        return True

    patch.setattr(TraceQueue, "add", add)


def keys_of_a_trace_are_unbounded(patch):
    patch.setattr(cluster.client.tracing.trace_batches, "KEYS_SIZE_MAX", 1 << 30)


def absent_text_of_a_trace_is_empty(patch):
    patch.setattr(cluster.client.tracing.trace_records, "_NONE", "")


def clients_may_use_every_system_topic(patch):
    patch.setattr(cluster.broker.core, "is_closed_topic", lambda _: False)


def lag_of_the_rest_is_left_out(patch):
    patch.setattr(GroupLag, "plus", lambda self, _: self)


def rows_of_metrics_are_unbounded(patch):
    found = Traffic.__init__

    def created(self, has_group, **_bounds):
        found(self, has_group, rows_max=1 << 30)

    patch.setattr(Traffic, "__init__", created)


def queue_of_spans_drops_without_a_count(patch):
    def on_end(self, span):
        self._added_count += 1
        self._queue.on_end(span)

    patch.setattr(_Bounded, "on_end", on_end)


def spans_of_a_put_are_unbounded(patch):
    patch.setattr(cluster.broker.put_spans, "SPANS_MAX", 1 << 30)


def send_replaces_the_context_of_a_message(patch):
    def with_context(message, carried):
        return message._replace(properties={**message.properties, **carried})

    patch.setattr(cluster.client.producer.send_spans, "_with_context", with_context)


def delivery_begins_a_trace_of_its_own(patch):
    patch.setattr(cluster.client.consumer.delivery_spans, "as_parent", lambda _context: None)


MUTANTS = [
    Mutant(
        queue_of_spans_drops_without_a_count,
        "everything bounded",
        Tests(EXPORT + "test_spans_above_the_bound_are_dropped_and_counted_while_the_collector_hangs"),
    ),
    Mutant(
        spans_of_a_put_are_unbounded,
        "everything bounded",
        Tests(PUT_SPANS + "test_traces_above_the_bound_of_a_request_have_no_span_and_are_counted"),
    ),
    Mutant(
        send_replaces_the_context_of_a_message,
        "one trace",
        Tests(SPANS + "test_message_that_has_a_context_keeps_it_and_the_send_is_linked_to_it"),
    ),
    Mutant(
        delivery_begins_a_trace_of_its_own,
        "one trace",
        Tests(SPANS + "test_delivery_continues_the_trace_of_its_producer_and_is_linked_to_it"),
    ),
    Mutant(
        queue_of_a_trace_is_unbounded,
        "everything bounded",
        Tests(BATCHES + "test_records_above_the_bound_are_dropped_and_counted"),
    ),
    Mutant(
        keys_of_a_trace_are_unbounded,
        "a trace fits its message",
        Tests(BATCHES + "test_keys_that_alone_exceed_the_bound_are_left_out"),
    ),
    Mutant(
        absent_text_of_a_trace_is_empty,
        "Java reads our trace",
        Tests(RECORDS + "test_absent_texts_are_null_so_that_java_finds_every_field"),
    ),
    Mutant(
        clients_may_use_every_system_topic,
        "system topics are closed",
        Tests(TRACES + "test_clients_may_use_the_trace_topic_and_no_other_topic_of_the_broker"),
    ),
    Mutant(
        lag_of_the_rest_is_left_out,
        "no lag is hidden",
        Tests(LAG + "test_rows_above_the_bound_are_one_row_with_their_sum"),
    ),
    Mutant(
        rows_of_metrics_are_unbounded,
        "everything bounded",
        Tests(TRAFFIC + "test_topics_above_the_bound_share_one_row"),
    ),
]
