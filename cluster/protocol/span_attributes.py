"""What the spans of producers, brokers and consumers have in common. Needs the package opentelemetry-api.

Attributes are those of OpenTelemetry's conventions for messaging. None has a body, a property, a search key or a
message group of a client, because they may have what is secret.

Source: OpenTelemetry semantic conventions, messaging spans and RocketMQ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode

from cluster.protocol.errors import RequestFailed
from cluster.protocol.trace_context import INSTRUMENTATION, MESSAGING_SYSTEM

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider
    from opentelemetry.util.types import AttributeValue

SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
MESSAGE_ID: Final = "messaging.message.id"
BODY_SIZE: Final = "messaging.message.body.size"
BATCH_COUNT: Final = "messaging.batch.message_count"
GROUP: Final = "messaging.consumer.group.name"
CLIENT_ID: Final = "messaging.client.id"
TAG: Final = "messaging.rocketmq.message.tag"
DELAY_LEVEL: Final = "messaging.rocketmq.message.delay_time_level"
ERROR_TYPE: Final = "error.type"
# Of this project: number of the delivery, from 1.
ATTEMPT: Final = "messaging.rocketmq.message.delivery_attempt"


def tracer_of(provider: TracerProvider | Literal["global"]) -> Tracer:
    """Return the tracer of a client: of its own provider, or of the one that the program has set for all."""
    return trace.get_tracer(INSTRUMENTATION, tracer_provider=None if provider == "global" else provider)


def attributes_of(operation: str, operation_type: str, topic: str) -> dict[str, AttributeValue]:
    """Return the attributes that each span has."""
    return {SYSTEM: MESSAGING_SYSTEM, OPERATION_NAME: operation, OPERATION_TYPE: operation_type, DESTINATION: topic}


def set_failed(span: Span, error: BaseException | None) -> None:
    """Mark a span as failed: by the reason of a refusal, or the class of another error; None: it was cancelled.

    The text of an error stays out, because that of a program's own error may have anything.
    """
    if error is None:
        set_failed_by(span, "cancelled")
    elif isinstance(error, RequestFailed):
        set_failed_by(span, error.name)
    else:
        set_failed_by(span, type(error).__qualname__)


def set_failed_by(span: Span, cause: str) -> None:
    """Mark a span as failed by a named cause."""
    span.set_attribute(ERROR_TYPE, cause)
    span.set_status(Status(StatusCode.ERROR))
