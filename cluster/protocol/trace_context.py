"""The trace context of a message: how the spans of its producer, of the broker and of its consumers find each other.

W3C's `traceparent` and `tracestate` are ordinary properties of the message, so whatever copies a message keeps them:
delays, retries, ends of transactions. No property of RocketMQ has these names. A broker that knows nothing of them
stores them, too.

Needs the package opentelemetry-api: only modules that make spans import this one, and these only where spans are
wanted.

Source: W3C Trace Context; OpenTelemetry's agent for RocketMQ's Java client, which writes and reads the same properties.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
# The name under which spans are made, and the value of `messaging.system`, which tools know.
INSTRUMENTATION: Final = "dledger"
MESSAGING_SYSTEM: Final = "rocketmq"
# Links of one span: the limit of the SDK, which would drop the oldest.
LINKS_MAX: Final = 128
# Longer ones are not read. The version of today has 55 characters; the bound of the state is W3C's.
_PARENT_LENGTH_MAX: Final = 128
_STATE_LENGTH_MAX: Final = 512
_STATES_MAX: Final = 32
_STATE = re.compile(
    r"(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_W3C: Final = TraceContextTextMapPropagator()


def context_of(properties: Mapping[str, str]) -> SpanContext | None:
    """Return the context in the properties of a message, or in other names and values; None: there is no valid one."""
    parent = properties.get(TRACEPARENT)
    if not parent or len(parent) > _PARENT_LENGTH_MAX:
        return None
    carrier = {TRACEPARENT: parent}
    state = properties.get(TRACESTATE)
    if state and _is_valid_state(state):
        carrier[TRACESTATE] = state
    found = trace.get_current_span(_W3C.extract(carrier)).get_span_context()
    return found if found.is_valid else None


def _is_valid_state(state: str) -> bool:
    """Return whether a state is valid: the library logs a warning for each other one, and any client may send them."""
    if len(state) > _STATE_LENGTH_MAX:
        return False
    members = state.split(",")
    names = {member.partition("=")[0] for member in members}
    return len(names) == len(members) <= _STATES_MAX and all(map(_STATE.fullmatch, members))


def properties_of(span: Span) -> dict[str, str]:
    """Return the properties that carry the context of a span; empty if it has none."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span))
    return carrier


def as_parent(context: SpanContext | None) -> Context | None:
    """Return a context as the parent of a new span; None: the parent is the caller's current span, if there is one."""
    return None if context is None else trace.set_span_in_context(trace.NonRecordingSpan(context))
