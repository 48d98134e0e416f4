"""The queue of a trace: bounded, and sent as messages whose bodies and keys fit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.client.tracing.trace_batches import BODY_SIZE_MAX, KEYS_SIZE_MAX, TraceQueue
from cluster.client.tracing.trace_records import DeliveredTrace, decode_traces


def delivered(number: int, keys: str = "") -> DeliveredTrace:
    return DeliveredTrace(number, "g", "R", f"ID{number}", 0, keys)


def test_records_above_the_bound_are_dropped_and_counted() -> None:
    queue = TraceQueue(2)
    assert [queue.add(delivered(number)) for number in range(4)] == [True, True, False, False]
    assert (queue.dropped_count, len(queue)) == (2, 2)
    batch = queue.take()
    assert [record.message_id for record in decode_traces(batch.body)] == ["ID0", "ID1"]
    assert (batch.keys, batch.records_count, len(queue)) == ("ID0 ID1", 2, 0)


def test_message_ids_and_keys_are_keys_of_the_message_each_once() -> None:
    queue = TraceQueue()
    queue.add(delivered(1, "k1 k2"))
    queue.add(delivered(1, "k2 k3"))
    assert queue.take().keys == "ID1 k1 k2 k3"


def test_keys_that_alone_exceed_the_bound_are_left_out() -> None:
    queue = TraceQueue()
    queue.add(delivered(1, "k" * KEYS_SIZE_MAX))
    queue.add(delivered(2))
    batch = queue.take()
    assert (batch.keys, batch.records_count) == ("ID1 ID2", 2)


def test_keys_are_without_separators_and_without_what_no_property_can_hold() -> None:
    queue = TraceQueue()
    queue.add(delivered(1, "a\x01b \udc80c"))
    assert queue.take().keys == "ID1 ab ?c"


@given(st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 200)), max_size=12))
def test_all_records_are_sent_in_order_in_messages_within_the_bounds(shapes: list[tuple[int, int]]) -> None:
    queue = TraceQueue()
    records = [delivered(row, "x" * size + " y" * words) for row, (size, words) in enumerate(shapes)]
    assert all(map(queue.add, records))
    found: list[str] = []
    while queue:
        batch = queue.take()
        assert batch.records_count > 0
        assert len(batch.body) <= BODY_SIZE_MAX
        assert len(batch.keys.encode()) <= KEYS_SIZE_MAX
        ids = [record.message_id for record in decode_traces(batch.body)]
        assert set(ids) <= set(batch.keys.split())
        found += ids
    assert found == [record.message_id for record in records]
