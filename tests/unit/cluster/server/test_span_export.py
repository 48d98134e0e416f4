"""The export of spans: by OTLP to a real collector, in bounded memory, and without waiting for one that hangs."""

import time

import pytest

from cluster.broker.core import BrokerOptions
from cluster.protocol.trace_context import TRACEPARENT
from cluster.server import opened_spans as opening
from cluster.server import span_export
from cluster.server.span_export import SpanExport, otlp_exporter
from commitlog.record.properties import encode_properties
from tests.support.telemetry.collector import running_collector
from tests.support.waiting import PATIENCE_S, in_a_loop, wait_until


def put(export, number):
    parent = f"00-{number:032x}-{number:016x}-01"
    export.puts.end(export.puts.begin("orders", [encode_properties({TRACEPARENT: parent})], [0]), "")


@in_a_loop
async def test_spans_are_at_the_collector_when_the_export_has_closed(monkeypatch):
    monkeypatch.setattr(span_export, "_CLOSE_LIMIT_S", PATIENCE_S)
    with running_collector() as collector:
        export = SpanExport(otlp_exporter(collector.url + "/"), "c", "b", "n0")
        for number in range(1, 4):
            put(export, number)
        await export.close()

        assert [(span.name, int.from_bytes(span.trace_id, "big")) for span in collector.spans] == [
            ("put orders", number) for number in range(1, 4)
        ]
        assert set(collector.paths) == {"/v1/traces"}
        names = ("service.name", "service.namespace", "service.instance.id")
        assert [collector.resources[0][name] for name in names] == ["dledger-broker", "c", "b/n0"]
        assert export.outcomes() == {"exported": 3, "failed": 0, "dropped": 0, "left_out": 0}


@in_a_loop
async def test_spans_above_the_bound_are_dropped_and_counted_while_the_collector_hangs(monkeypatch):
    monkeypatch.setattr(span_export, "QUEUE_MAX", 8)
    monkeypatch.setattr(span_export, "_BATCH_MAX", 4)
    monkeypatch.setattr(span_export, "_CLOSE_LIMIT_S", 0.05)
    with running_collector() as collector:
        collector.is_open.clear()
        export = SpanExport(otlp_exporter(collector.url), "c", "b", "n0", interval_s=0.001)
        for number in range(1, 101):
            put(export, number)

        assert export.outcomes() == {"exported": 0, "failed": 0, "dropped": 92, "left_out": 0}
        begin_s = time.monotonic()
        await export.close()
        assert time.monotonic() - begin_s < PATIENCE_S
        collector.is_open.set()


def test_spans_that_a_collector_refuses_are_counted(caplog):
    with running_collector() as collector:
        collector.status = 400
        export = SpanExport(otlp_exporter(collector.url), "c", "b", "n0", interval_s=0.001)
        put(export, 1)
        wait_until(lambda: export.outcomes()["failed"] == 1, export.outcomes)
        export._close()
    assert export.outcomes() == {"exported": 0, "failed": 1, "dropped": 0, "left_out": 0}
    assert "Failed to export spans" in caplog.text


def test_missing_packages_are_an_error_that_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cluster.server.span_export", None)

    assert opening.opened_spans("", BrokerOptions("b"), None) is None
    with pytest.raises(opening.OpenTelemetryMissing, match="otel"):
        opening.opened_spans("http://127.0.0.1:4318", BrokerOptions("b"), None)
