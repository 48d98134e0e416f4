"""The spans of a broker: one for each trace of which messages are put, from the arrival of a request to its outcome.

A broker begins no trace: it continues those that its callers record. A request to `Put` may name its span in its
metadata, as instrumented clients of gRPC do; the spans of our producers are found in the messages, of which one request
may have those of many calls.

Needs the package opentelemetry-api.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from opentelemetry.trace import Link, SpanKind

from cluster.protocol import span_attributes as names
from cluster.protocol.span_attributes import attributes_of, set_failed_by
from cluster.protocol.trace_context import LINKS_MAX, TRACEPARENT, as_parent, context_of
from commitlog.record.properties import NAME_VALUE_SEPARATOR, RawProperties
from store.model.topics import RETRY_TOPIC_LENGTH_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from opentelemetry.trace import Span, SpanContext, Tracer

# Spans of one request; the messages of further traces have none.
SPANS_MAX: Final = 64
# The last digit of the flags in a `traceparent`, of any version, and its values in recorded traces.
_FLAG: Final = slice(54, 55)
_RECORDED: Final = frozenset("13579bdf")
_MARK: Final = f"{TRACEPARENT}{NAME_VALUE_SEPARATOR}".encode()


class PutSpans:
    """The spans of the puts of one node.

    Args:
        tracer: begins them.

    Attributes:
        left_out_count: traces without a span, because their request had too many.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self.left_out_count = 0

    def begin(
        self,
        topic: str,
        properties: Sequence[bytes],
        queue_ids: Sequence[int],
        metadata: Iterable[tuple[str, str | bytes]] = (),
    ) -> list[Span]:
        """Begin the spans of a request; none if its callers record nothing.

        Args:
            topic: of the request, not checked yet.
            properties: of each message, as they are stored.
            queue_ids: of the request.
            metadata: of the call.
        """
        caller = _caller_of(metadata)
        sent = self._recorded(properties)
        if caller is None and not sent:
            return []
        destination = topic[:RETRY_TOPIC_LENGTH_MAX]
        attributes = attributes_of("put", "send", destination)
        attributes[names.BATCH_COUNT] = len(properties)
        if queue_ids and min(queue_ids) == max(queue_ids):
            attributes[names.PARTITION] = str(queue_ids[0])
        name = f"put {destination}"
        if caller is not None:
            links = [Link(each) for each in sent[:LINKS_MAX]]
            parent = as_parent(caller)
            return [self._tracer.start_span(name, parent, SpanKind.SERVER, attributes, links=links)]
        return [
            self._tracer.start_span(name, as_parent(each), SpanKind.SERVER, attributes, links=[Link(each)])
            for each in sent
        ]

    def end(self, spans: Iterable[Span], cause: str) -> None:
        """End the spans of a request.

        Args:
            spans: of the request.
            cause: why nothing was stored, or this is unknown; empty: it was stored.
        """
        for span in spans:
            if cause:
                set_failed_by(span, cause)
            span.end()

    def _recorded(self, properties: Sequence[bytes]) -> list[SpanContext]:
        """Return the different recorded contexts of messages, `SPANS_MAX` at most."""
        texts = {
            text: raw
            for raw in properties
            if _MARK in raw and (text := RawProperties(raw).find(TRACEPARENT)) is not None and text[_FLAG] in _RECORDED
        }
        # Only these are parsed, which costs ten times as much.
        chosen = list(texts.values())[:SPANS_MAX]
        self.left_out_count += len(texts) - len(chosen)
        found = [context_of(RawProperties(raw)) for raw in chosen]
        return [context for context in found if context is not None and context.trace_flags.sampled]


def _caller_of(metadata: Iterable[tuple[str, str | bytes]]) -> SpanContext | None:
    found = context_of({name: value for name, value in metadata if isinstance(value, str)})
    return found if found is not None and found.trace_flags.sampled else None
