"""Batches of a producer: complete by size, number or time; in order; and bounded in all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.client.accumulator import Accumulator, AccumulatorFull, Batch, BatchLimits


def items(batches: list[Batch[str, int]]) -> list[list[int]]:
    return [batch.items for batch in batches]


def test_without_linger_a_lone_message_goes_at_once_and_company_goes_along() -> None:
    collected: Accumulator[str, int] = Accumulator()

    assert collected.add("a", 1, 10, now_ms=5) == []
    assert collected.next_due_ms == 5
    assert items(collected.take_due(5)) == [[1]]
    for item in (2, 3):
        collected.add("a", item, 10, now_ms=5)
    assert items(collected.take_due(5)) == [[2, 3]]
    assert collected.take_due(5) == []
    assert collected.next_due_ms is None


def test_a_batch_waits_from_its_first_message_on_each_for_itself() -> None:
    collected: Accumulator[str, int] = Accumulator(BatchLimits(linger_ms=10))
    collected.add("a", 1, 1, now_ms=0)
    collected.add("b", 2, 1, now_ms=4)
    collected.add("a", 3, 1, now_ms=9)

    assert collected.take_due(9.9) == []
    assert items(collected.take_due(10)) == [[1, 3]]
    assert collected.next_due_ms == 14
    assert items(collected.take_all()) == [[2]]


def test_full_batches_are_complete_at_once() -> None:
    collected: Accumulator[str, int] = Accumulator(BatchLimits(linger_ms=99, messages_max=3, size_bytes_max=100))

    assert items([*collected.add("a", 1, 1, 0), *collected.add("a", 2, 1, 0)]) == []
    assert items(collected.add("a", 3, 1, 0)) == [[1, 2, 3]]
    collected.add("a", 4, 60, 0)
    assert items(collected.add("a", 5, 41, 0)) == [[4]]
    assert items(collected.add("a", 6, 59, 0)) == [[5, 6]]
    collected.add("a", 7, 1, 0)
    # Too large for any batch: what came before goes first, then it goes alone.
    assert items(collected.add("a", 8, 500, 0)) == [[7], [8]]


def test_what_waits_is_bounded_until_it_is_released() -> None:
    collected: Accumulator[str, int] = Accumulator(BatchLimits(total_size_bytes_max=100))
    collected.add("a", 1, 60, 0)
    with pytest.raises(AccumulatorFull, match="60 bytes"):
        collected.add("b", 2, 41, 0)
    (batch,) = collected.take_due(0)
    with pytest.raises(AccumulatorFull):
        collected.add("b", 2, 41, 0)

    collected.release(batch)

    assert collected.total_size_bytes == 0
    # Alone it may be as large as it likes.
    collected.add("b", 3, 400, 0)
    assert items(collected.take_due(0)) == [[3]]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 60), st.integers(0, 5)), max_size=60),
    st.integers(0, 8),
)
def test_nothing_is_lost_or_overtaken_and_no_batch_is_too_large(
    added: list[tuple[str, int, int]], linger_ms: int
) -> None:
    limits = BatchLimits(linger_ms, messages_max=4, size_bytes_max=100)
    collected: Accumulator[str, tuple[int, int]] = Accumulator(limits)
    sent: list[Batch[str, tuple[int, int]]] = []
    now = 0
    for number, (key, size, pause) in enumerate(added):
        now += pause
        due = collected.take_due(now)
        assert all(batch.due_ms <= now for batch in due)
        sent += due + collected.add(key, (number, size), size, now)
        assert collected.next_due_ms is None or collected.next_due_ms >= now
    sent += collected.take_all()

    for key in "abc":
        order = [number for batch in sent if batch.key == key for number, _ in batch.items]
        assert order == [number for number, (to, _, _) in enumerate(added) if to == key]
    for batch in sent:
        assert 1 <= len(batch.items) <= 4
        assert batch.size_bytes == sum(size for _, size in batch.items) <= 100
        collected.release(batch)
    assert collected.total_size_bytes == 0
