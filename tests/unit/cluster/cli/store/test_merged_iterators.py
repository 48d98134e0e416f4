"""Merged iterators: all items are returned, in the order of each source, with bounded prefetching."""

import itertools
import threading

import pytest

from cluster.cli.messages.merged_iterators import merged
from tests.support.waiting import wait_until


def test_all_items_are_returned_and_each_source_in_its_own_order():
    sources = [iter([(number, count) for count in range(500)]) for number in range(3)]

    found = list(merged(sources))

    assert len(found) == 1500
    for number in range(3):
        assert [count for source, count in found if source == number] == list(range(500))


def test_error_of_a_source_is_raised_and_ends_the_iteration():
    def failing():
        yield 1
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        list(merged([failing(), iter(itertools.count())]))


def test_sources_are_read_ahead_within_bounds_and_no_more_after_the_reader_stops():
    taken = [0, 0]

    def counting(number):
        while True:
            taken[number] += 1
            yield number

    before = threading.active_count()
    items = merged([counting(0), counting(1)])
    for _ in range(10):
        next(items)
    assert sum(taken) <= 10 + 256 + 2 + 1
    items.close()
    wait_until(lambda: threading.active_count() <= before, "the threads of the sources have ended")


def test_one_source_is_read_by_the_caller_itself():
    threads = []

    def source():
        threads.append(threading.current_thread())
        yield 1

    assert list(merged([source()])) == [1]
    assert threads == [threading.current_thread()]
