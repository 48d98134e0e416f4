"""What a consumer commits: never beyond a message that is not done."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.client.message_queue import MessageQueue
from cluster.client.progress import IN_WORK_MAX, SPAN_MAX, Commit, ProgressTable, QueueProgress

QUEUE = MessageQueue("orders", "b0", 3)


def test_what_is_done_out_of_order_counts_when_nothing_before_is_undone() -> None:
    progress = QueueProgress(10)
    progress.take([10, 11, 12], 13)

    progress.done(12)
    progress.done(11)
    assert (progress.done_offset, progress.in_work_count) == (10, 1)

    progress.done(10)
    assert (progress.done_offset, progress.in_work_count) == (13, 0)


def test_messages_that_were_not_wanted_count_as_done_with_those_before_them() -> None:
    progress = QueueProgress(10)
    progress.take([12, 15], 20)
    assert (progress.done_offset, progress.read_offset) == (12, 20)

    progress.done(12)
    assert progress.done_offset == 15
    progress.done(15)
    assert progress.done_offset == 20
    progress.take([], 30)
    assert progress.done_offset == 30


@pytest.mark.parametrize("offset", [9, 11, 13, 99, -1])
def test_what_is_not_in_work_changes_nothing(offset: int) -> None:
    progress = QueueProgress(10)
    progress.take([10, 12], 13)

    progress.done(offset)

    assert (progress.done_offset, progress.in_work_count) == (10, 2)


def test_work_is_bounded_in_number_and_in_span() -> None:
    many, wide = QueueProgress(0), QueueProgress(0)
    many.take(range(IN_WORK_MAX), IN_WORK_MAX)
    assert many.is_full
    many.done(5)
    assert not many.is_full

    wide.take([0, SPAN_MAX], SPAN_MAX + 1)
    assert wide.is_full
    wide.done(0)
    assert not wide.is_full


def test_only_what_came_forward_is_committed_and_once() -> None:
    table = ProgressTable()
    progress = table.assign(QUEUE, 10, reset_count=2)
    assert table.due() == []
    progress.take([10, 11], 12)
    progress.done(10)

    assert table.due() == [Commit(QUEUE, 11, 2)]
    progress.done(11)
    table.committed(Commit(QUEUE, 11, 2))
    assert table.due() == [Commit(QUEUE, 12, 2)]
    table.committed(Commit(QUEUE, 12, 2))
    assert table.due() == []


def test_a_queue_that_is_given_up_leaves_its_last_commit() -> None:
    table = ProgressTable()
    table.assign(QUEUE, 10).take([10, 11], 12)
    progress = table.get(QUEUE)
    assert progress is not None
    progress.done(10)

    assert table.revoke(QUEUE) == Commit(QUEUE, 11, 0)
    assert table.revoke(QUEUE) is None
    assert list(table) == []
    table.committed(Commit(QUEUE, 11, 0))


def test_a_commit_of_before_a_reset_says_nothing_about_after_it() -> None:
    table = ProgressTable()
    table.assign(QUEUE, 100)
    table.assign(QUEUE, 5, reset_count=1).take([5], 6)
    table.committed(Commit(QUEUE, 100, 0))
    progress = table.get(QUEUE)
    assert progress is not None
    progress.done(5)

    assert table.due() == [Commit(QUEUE, 6, 1)]


@given(st.lists(st.booleans(), max_size=40), st.permutations(range(40)), st.integers(0, 5))
def test_the_committed_offset_is_where_the_first_undone_message_stands(
    is_wanted: list[bool], order: list[int], begin: int
) -> None:
    progress = QueueProgress(begin)
    wanted = [begin + number for number, is_one in enumerate(is_wanted) if is_one]
    end = begin + len(is_wanted)
    progress.take(wanted, end)
    undone = set(wanted)
    for number in order:
        progress.done(begin + number)
        undone.discard(begin + number)
        assert progress.done_offset == min(undone, default=end)
        assert progress.in_work_count == len(undone)
