"""The spans of a consumer: one for each message, from its delivery until it is acknowledged or returned.

The span continues the trace of the message's producer, and has a link to its span. There is none for a read of several
messages: they are read in advance, so it would show nothing but a local queue. A message that is never acknowledged has
no span, because a span is exported when it ends.

Source: OpenTelemetry semantic conventions, messaging spans: "Process" spans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.trace import Link, SpanKind

from cluster.protocol import span_attributes as names
from cluster.protocol.span_attributes import attributes_of, set_failed, set_failed_by, tracer_of
from cluster.protocol.trace_context import as_parent, context_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import Literal

    from opentelemetry.trace import Span, TracerProvider

    from cluster.client.consumer.pop.message import PopMessage
    from cluster.client.consumer.received import ReceivedMessage


class DeliverySpans:
    """The spans of one consumer.

    Args:
        provider: of the tracer; `global`: that of the program.
        group: of the consumer.
        client_id: of the consumer; empty: it has none.
    """

    def __init__(self, provider: TracerProvider | Literal["global"], group: str, client_id: str = "") -> None:
        self._tracer = tracer_of(provider)
        self._own = {names.GROUP: group} | ({names.CLIENT_ID: client_id} if client_id else {})

    def delivered(self, messages: Iterable[ReceivedMessage]) -> None:
        """Begin the spans of messages that the application gets."""
        for message in messages:
            message.span = self._begin(message, message.origin_topic, message.attempts)

    def taken(self, messages: Iterable[PopMessage]) -> None:
        """Begin the spans of messages that a pop consumer got."""
        for message in messages:
            message.span = self._begin(message, message.topic, message.attempt)

    def processed(self, messages: Iterable[ReceivedMessage | PopMessage]) -> None:
        """End the spans of acknowledged messages; those that have ended are left out."""
        for message in messages:
            span = message.span
            if span is not None:
                message.span = None
                span.end()

    def returned(self, message: ReceivedMessage) -> None:
        """End the span of a message that its consumer returns; that of a handler that failed has ended."""
        if message.span is not None:
            set_failed_by(message.span, "returned")
            self.processed((message,))

    async def handle(self, handler: Callable[[ReceivedMessage], Awaitable[None]], message: ReceivedMessage) -> None:
        """Call a handler with the span of its message as the current one, so that spans of the program are below it.

        Raises:
            BaseException: what the handler raises; its class is in the span.
        """
        span = message.span
        if span is None:
            await handler(message)
            return
        with trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
            try:
                await handler(message)
            except BaseException as error:
                set_failed(span, error)
                self.processed((message,))
                raise

    async def close(self) -> None:
        """Do nothing: spans are exported by the provider, which belongs to the program."""

    def _begin(self, message: ReceivedMessage | PopMessage, topic: str, attempt: int) -> Span:
        sent = context_of(message.properties)
        attributes = attributes_of("process", "process", topic)
        attributes |= self._own
        attributes |= {
            names.PARTITION: str(message.queue_id),
            names.BODY_SIZE: message.record.body_size,
            names.ATTEMPT: attempt,
        }
        for name, value in ((names.MESSAGE_ID, message.unique_key), (names.TAG, message.tags)):
            if value:
                attributes[name] = value
        return self._tracer.start_span(
            f"process {topic}",
            as_parent(sent),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=[] if sent is None else [Link(sent)],
        )
