"""The trace context in the properties of a message: what is read, and what is not."""

import pytest
from opentelemetry.trace import INVALID_SPAN, NonRecordingSpan

from cluster.protocol.trace_context import TRACEPARENT, TRACESTATE, as_parent, context_of, properties_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def test_context_of_a_span_is_read_back_from_the_properties_that_carry_it():
    found = context_of({TRACEPARENT: PARENT, TRACESTATE: "vendor=1", "other": "x"})

    assert (found.trace_id, found.span_id, found.trace_flags.sampled) == (int(TRACE, 16), int(SPAN, 16), True)
    assert properties_of(NonRecordingSpan(found)) == {TRACEPARENT: PARENT, TRACESTATE: "vendor=1"}
    assert properties_of(INVALID_SPAN) == {}
    assert as_parent(None) is None


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "x",
        PARENT[:-1],
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        PARENT + "-" + "x" * 600,
    ],
)
def test_text_that_is_no_context_is_none_and_nothing_is_logged(parent, caplog):
    assert context_of({TRACEPARENT: parent}) is None
    assert caplog.records == []


def test_state_that_is_too_long_or_wrong_is_left_out_and_the_context_is_kept(caplog):
    for state in ("a=" + "x" * 600, ",,,", "=", "a=1,a=2", ",".join(f"k{n}=1" for n in range(33)), "é=1"):
        found = context_of({TRACEPARENT: PARENT, TRACESTATE: state})
        assert properties_of(NonRecordingSpan(found)) == {TRACEPARENT: PARENT}
    assert caplog.records == []
