"""Exports spans to a collector, by OTLP over HTTP, in a thread: a slow or absent collector delays no request.

At most `QUEUE_MAX` spans wait; more are dropped and counted, as are those that the collector does not take within the
exporter's own time limit (10 s, `OTEL_EXPORTER_OTLP_TIMEOUT`). The standard variables of OpenTelemetry apply to
everything that no setting says: `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_CERTIFICATE`,
`OTEL_RESOURCE_ATTRIBUTES`.

Needs the packages of the extra `otel`.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

from cluster.broker.put_spans import PutSpans
from cluster.protocol.trace_context import INSTRUMENTATION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.trace import ReadableSpan

QUEUE_MAX: Final = 4_096
_BATCH_MAX: Final = 512
_INTERVAL_S: Final = 1.0
_MS_PER_S: Final = 1_000
# How long the end of a process waits for its spans.
_CLOSE_LIMIT_S: Final = 2.0
_TRACES_PATH: Final = "/v1/traces"


def otlp_exporter(endpoint: str) -> SpanExporter:
    """Return the exporter to a collector; `endpoint`: its URL, without the path of traces."""
    return OTLPSpanExporter(endpoint=endpoint.rstrip("/") + _TRACES_PATH)


class SpanExport:
    """The spans of one node, on their way to a collector.

    Args:
        exporter: sends them; called in a thread of its own.
        cluster: name of the cluster.
        broker: name of the broker.
        self_id: id of the node.
        interval_s: how long spans wait for others.

    Attributes:
        puts: makes the spans of puts.
    """

    def __init__(
        self, exporter: SpanExporter, cluster: str, broker: str, self_id: str, *, interval_s: float = _INTERVAL_S
    ) -> None:
        self._exporter = _Counting(exporter)
        self._queue = _Bounded(self._exporter, interval_s)
        resource = Resource.create(
            {
                "service.name": "dledger-broker",
                "service.namespace": cluster,
                "service.instance.id": f"{broker}/{self_id}",
            }
        )
        # A node begins no trace, whatever OTEL_TRACES_SAMPLER says: its callers decide what is recorded.
        self._provider = TracerProvider(ParentBased(ALWAYS_OFF), resource, shutdown_on_exit=False)
        self._provider.add_span_processor(self._queue)
        self.puts = PutSpans(self._provider.get_tracer(INSTRUMENTATION))

    def outcomes(self) -> dict[str, int]:
        """Return the number of spans by their outcome; any thread may call it."""
        return {
            "exported": self._exporter.exported_count,
            "failed": self._exporter.failed_count,
            "dropped": self._queue.dropped_count,
            "left_out": self.puts.left_out_count,
        }

    async def close(self) -> None:
        """Export what waits, for two seconds at most, and end."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        # The SDK would wait for half a minute.
        closing = threading.Thread(target=self._provider.shutdown, name="spans-close", daemon=True)
        closing.start()
        closing.join(_CLOSE_LIMIT_S)
        if closing.is_alive():
            self._exporter.shutdown()


class _Counting(SpanExporter):
    """Counts what an exporter has taken, and what became of it."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._is_closed = False
        self.taken_count = 0
        self.exported_count = 0
        self.failed_count = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans, in the thread of the queue."""
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            # Only now: until then they are in memory.
            self.taken_count += len(spans)
            if result is SpanExportResult.SUCCESS:
                self.exported_count += len(spans)
            else:
                self.failed_count += len(spans)
        return result

    def shutdown(self) -> None:
        """End the exporter, once."""
        if not self._is_closed:
            self._is_closed = True
            self._exporter.shutdown()


class _Bounded(SpanProcessor):
    """A queue of spans that takes no more than `QUEUE_MAX`, and counts the others: the SDK's own drops the oldest."""

    def __init__(self, exporter: _Counting, interval_s: float) -> None:
        self._exporter = exporter
        self._queue = BatchSpanProcessor(
            exporter,
            max_queue_size=QUEUE_MAX,
            schedule_delay_millis=interval_s * _MS_PER_S,
            max_export_batch_size=_BATCH_MAX,
        )
        self._added_count = 0
        self.dropped_count = 0

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span that has ended, in the event loop."""
        if self._added_count - self._exporter.taken_count >= QUEUE_MAX:
            self.dropped_count += 1
            return
        self._added_count += 1
        self._queue.on_end(span)

    def shutdown(self) -> None:
        """Export what waits, and end."""
        self._queue.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export what waits; return whether that was done."""
        return self._queue.force_flush(timeout_millis)
