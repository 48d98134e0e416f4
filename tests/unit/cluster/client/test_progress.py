"""The committed offset of a consumer: never beyond an unprocessed message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.client.consumer.progress import QueueProgress


def test_messages_processed_out_of_order_count_when_all_before_them_are_processed() -> None:
    progress = QueueProgress(10)
    progress.delivered([10, 11, 12], 13)

    progress.done(12)
    progress.done(11)
    assert (progress.position, len(progress._undone)) == (10, 1)

    progress.done(10)
    assert (progress.position, len(progress._undone)) == (13, 0)


def test_filtered_messages_count_as_processed_with_those_before_them() -> None:
    progress = QueueProgress(10)
    progress.delivered([12, 15], 20)
    assert progress.position == 12

    progress.done(12)
    assert progress.position == 15
    progress.done(15)
    assert progress.position == 20
    progress.delivered([], 30)
    assert progress.position == 30


@pytest.mark.parametrize("offset", [9, 11, 13, 99, -1])
def test_acknowledging_an_unknown_message_changes_nothing(offset: int) -> None:
    progress = QueueProgress(10)
    progress.delivered([10, 12], 13)

    progress.done(offset)

    assert (progress.position, len(progress._undone)) == (10, 2)


@given(st.lists(st.booleans(), max_size=40), st.permutations(range(40)), st.integers(0, 5))
def test_the_position_is_that_of_the_first_unprocessed_message(
    is_wanted: list[bool], order: list[int], begin: int
) -> None:
    progress = QueueProgress(begin)
    wanted = [begin + number for number, is_one in enumerate(is_wanted) if is_one]
    end = begin + len(is_wanted)
    progress.delivered(wanted, end)
    undone = set(wanted)
    for number in order:
        progress.done(begin + number)
        undone.discard(begin + number)
        assert progress.position == min(undone, default=end)
        assert len(progress._undone) == len(undone)


def test_returned_messages_are_not_committed_and_not_waited_for() -> None:
    progress = QueueProgress(10)
    progress.delivered([10, 11, 14, 15], 20)
    progress.done(10)

    progress.returned(14)
    progress.done(14)
    assert (progress.position, len(progress._undone), progress.is_settled) == (11, 1, False)

    progress.done(11)
    assert (progress.position, progress.is_settled) == (14, False)
    progress.committed = 14
    assert progress.is_settled
