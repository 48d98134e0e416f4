"""A reader that waits for messages of a queue is woken once, when there may be one, and can stop waiting before."""

import numpy as np
import pytest

from store.dispatch.long_polls import MessageWaiters
from store.errors import TooManyWaiters
from store.model.dispatch_batch import DispatchBatch
from store.model.java_hash import java_hash
from store.model.message import QueueKey
from store.model.tag_filter import TagFilter

A0, A1, B0 = QueueKey("A", 0), QueueKey("A", 1), QueueKey("B", 0)


def batch(*rows):
    """Make a batch of (queue, queue offset, tag, is queued)."""
    queues = list(dict.fromkeys(row[0] for row in rows))
    count = len(rows)
    return DispatchBatch(
        begin_offset=0,
        next_offset=count,
        physical_offsets=np.arange(count),
        sizes=np.ones(count, np.int32),
        queue_offsets=np.array([row[1] for row in rows], np.int64),
        tags_codes=np.array([java_hash(row[2]) for row in rows], np.int64),
        store_timestamps=np.zeros(count, np.int64),
        queues=queues,
        queue_numbers=np.array([queues.index(row[0]) for row in rows], np.int32),
        is_queued=np.array([row[3] for row in rows], bool),
        key_hashes=np.empty(0, np.int32),
        key_rows=np.empty(0, np.int64),
    )


@pytest.fixture
def woken():
    return []


@pytest.fixture
def waiters():
    return MessageWaiters(5)


def test_waiter_is_woken_once_for_its_own_queue(waiters, woken):
    waiters.add(A0, 3, lambda: woken.append("a0"))
    waiters.add(A1, 0, lambda: woken.append("a1"))
    waiters.add(B0, 0, lambda: woken.append("b0"))

    waiters.dispatched(batch((B0, 0, "x", True), (A0, 2, "x", True)))
    assert woken == ["b0"]
    waiters.dispatched(batch((A0, 3, "x", True), (A0, 4, "x", True)))
    assert woken == ["b0", "a0"]
    waiters.dispatched(batch((A0, 5, "x", True), (B0, 1, "x", True)))
    assert woken == ["b0", "a0"]
    assert len(waiters) == 1


def test_waiter_with_a_filter_is_not_woken_by_other_tags(waiters, woken):
    waiters.add(A0, 0, lambda: woken.append("Aa"), TagFilter.parse("Aa"))

    waiters.dispatched(batch((A0, 0, "x", True), (A0, 1, "y", True)))
    assert woken == []
    waiters.dispatched(batch((A0, 2, "BB", True)))
    assert woken == ["Aa"], "the hash is the same: the reader finds out"


def test_message_outside_queues_wakes_no_reader(waiters, woken):
    waiters.add(A0, 0, lambda: woken.append("a0"))

    waiters.dispatched(batch((A0, 0, "x", False)))

    assert woken == []


def test_waiters_are_bounded_and_their_places_are_reused(waiters, woken):
    kept = [waiters.add(A0, number, lambda: woken.append("no")) for number in range(5)]
    with pytest.raises(TooManyWaiters, match="5 readers wait"):
        waiters.add(B0, 0, lambda: None)

    kept[2].cancel()
    kept[2].cancel()

    assert len(waiters) == 4
    waiters.add(B0, 0, lambda: woken.append("b0"))
    waiters.dispatched(batch((A0, 2, "x", True), (B0, 0, "x", True)))
    assert woken == ["no", "no", "b0"]


def test_woken_waiter_may_wait_again_and_cancel_others(waiters, woken):
    def again():
        woken.append("first")
        second.cancel()
        waiters.add(A0, 9, lambda: woken.append("again"))

    waiters.add(A0, 0, again)
    second = waiters.add(A0, 0, lambda: woken.append("second"))

    waiters.dispatched(batch((A0, 0, "x", True)))

    assert woken == ["first"]
    assert len(waiters) == 1


def test_all_failures_are_reported_at_the_end(waiters, woken):
    for number, key in enumerate((A0, A0, B0)):
        waiters.add(key, 100, lambda number=number: woken.append(number))

    waiters.notify_all()

    assert woken == [0, 1, 2]
    assert len(waiters) == 0
