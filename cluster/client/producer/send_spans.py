"""The spans of a producer: one for each call that sends messages, from the call until their outcome is known.

Its context travels with each message of the call, unless the message has one of its own, from a span of the program in
which it was made; then the span has a link to that one.

Source: OpenTelemetry semantic conventions, messaging spans: "Send" spans, and contexts that applications give.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.trace import Link, SpanKind

from cluster.protocol import span_attributes as names
from cluster.protocol.span_attributes import attributes_of, set_failed, tracer_of
from cluster.protocol.trace_context import LINKS_MAX, TRACEPARENT, context_of, properties_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence
    from typing import Literal

    from opentelemetry.trace import Span, TracerProvider
    from opentelemetry.util.types import AttributeValue

    from cluster.client.outcomes import MessageAppended
    from cluster.client.producer.batch import SendItem
    from cluster.client.producer.outgoing import OutgoingMessage


class SendSpans:
    """The spans of one producer.

    Args:
        provider: of the tracer; `global`: that of the program.
    """

    def __init__(self, provider: TracerProvider | Literal["global"]) -> None:
        self._tracer = tracer_of(provider)

    def follow(
        self, messages: Sequence[OutgoingMessage], make: Callable[[Sequence[OutgoingMessage]], SendItem]
    ) -> SendItem:
        """Begin a span, and return the item of the messages, which `make` makes of them with its context.

        Raises:
            BaseException: what `make` raises; the span has ended.
        """
        topic = messages[0].topic if messages else ""
        made_in = {
            found.span_id: found
            for each in messages
            if TRACEPARENT in each.properties and (found := context_of(each.properties)) is not None
        }
        span = self._tracer.start_span(
            f"send {topic}",
            kind=SpanKind.PRODUCER,
            attributes=_attributes_of(topic, messages),
            links=[Link(each) for each in made_in.values()][:LINKS_MAX],
        )
        carried = properties_of(span)
        try:
            item = make([_with_context(each, carried) for each in messages])
        except BaseException as error:
            set_failed(span, error)
            span.end()
            raise
        if len(messages) == 1:
            span.set_attribute(names.MESSAGE_ID, item.unique_keys[0])
        item.future.add_done_callback(lambda future: _end(span, future))
        return item


def _with_context(message: OutgoingMessage, carried: dict[str, str]) -> OutgoingMessage:
    if not carried or TRACEPARENT in message.properties:
        return message
    return message._replace(properties={**message.properties, **carried})


def _attributes_of(topic: str, messages: Sequence[OutgoingMessage]) -> dict[str, AttributeValue]:
    found = attributes_of("send", "send", topic)
    if len(messages) != 1:
        found[names.BATCH_COUNT] = len(messages)
        return found
    message = messages[0]
    found[names.BODY_SIZE] = len(message.body)
    if message.tags:
        found[names.TAG] = message.tags
    if message.delay_level:
        found[names.DELAY_LEVEL] = message.delay_level
    return found


def _end(span: Span, future: asyncio.Future[list[MessageAppended]]) -> None:
    error = None if future.cancelled() else future.exception()
    if future.cancelled() or error is not None:
        set_failed(span, error)
    else:
        span.set_attribute(names.PARTITION, str(future.result()[0].queue_id))
    span.end()
