"""The first messages in the log, out of many queues, compared with a sorted list."""

import random

import numpy as np
import pytest

from store.model.message import QueueKey
from store.queues import merge_by_offset
from store.queues.merge_by_offset import UnitRange, clamp, split_points
from store.queues.unit import BLANK_SIZE
from store.steps import at_once


def first_in_log(*args):
    return at_once(merge_by_offset.first_in_log(*args))


def window_of(ranges):
    return at_once(merge_by_offset.window_of(ranges))


def log_of(queues, count, seed):
    """Return ranges of `queues` queues over a log of `count` messages, and the log as (offset, size, queue, place)."""
    draw = random.Random(seed)
    units = [[] for _ in range(queues)]
    log, at = [], 1000
    for _ in range(count):
        queue = min(int(draw.expovariate(0.5)), queues - 1)
        size = draw.randrange(100, 900)
        log.append((at, size, queue, len(units[queue])))
        units[queue].append((at, size))
        at += size + draw.choice((0, 48))
    return [range_of(QueueKey("t", number), each) for number, each in enumerate(units)], log


def range_of(key, units):
    offsets = np.array([offset for offset, _ in units], np.int64)
    sizes = np.array([size for _, size in units], np.int32)
    return UnitRange(key, 0, len(units), lambda begin, end: (offsets[begin:end], sizes[begin:end]))


@pytest.mark.parametrize("sorted_max", [1, 7, 1 << 12])
@pytest.mark.parametrize("count_max", [1, 2, 99, 500, 1999, 2000, 5000])
def test_a_limit_of_messages_takes_the_first_ones(monkeypatch, sorted_max, count_max):
    monkeypatch.setattr(merge_by_offset, "_SORTED_MAX", sorted_max)
    ranges, log = log_of(12, 2000, seed=count_max)

    ends = first_in_log(ranges, count_max)

    expected = dict.fromkeys((each.key for each in ranges if len(each)), 0)
    for _, _, queue, place in log[:count_max]:
        expected[QueueKey("t", queue)] = place + 1
    assert expected == ends


@pytest.mark.parametrize("size_max", [1, 1000, 50_000, 10**9])
def test_a_limit_of_bytes_takes_whole_messages_and_at_least_one(size_max):
    ranges, log = log_of(5, 1000, seed=size_max)

    taken = clamp(ranges, first_in_log(ranges, None, size_max))
    window = window_of(taken)

    sizes = np.cumsum([size for _, size, _, _ in log])
    count = max(int((sizes <= size_max).sum()), 1)
    assert count == window.messages == sum(map(len, taken))
    assert sizes[count - 1] == window.size_bytes
    assert (log[0][0], log[count - 1][0] + log[count - 1][1]) == (window.begin, window.end)


def test_the_tighter_of_two_limits_holds():
    ranges, log = log_of(3, 300, seed=1)

    assert 10 == sum(first_in_log(ranges, 10, 10**6).values())
    assert sum(first_in_log(ranges, 10, log[0][1] + log[1][1]).values()) == 2


def test_ranges_may_begin_anywhere_and_be_empty():
    ranges, _ = log_of(4, 400, seed=2)
    later = [UnitRange(each.key, len(each) // 2, each.end, each.units) for each in ranges]
    empty = UnitRange(QueueKey("t", 9), 7, 7, ranges[0].units)

    ends = first_in_log([*later, empty], 50)

    assert 50 == sum(ends[each.key] - each.begin for each in later)
    assert empty.key not in ends
    assert {} == first_in_log([empty], 5)
    assert (0, 0, 0, 0) == window_of([])


def test_blanks_are_no_messages():
    blanks = range_of(QueueKey("t", 0), [(0, BLANK_SIZE), (0, BLANK_SIZE), (500, 100), (700, 50)])

    assert (500, 750, 150, 4) == window_of([blanks])
    assert (0, 0, 0, 2) == window_of([UnitRange(blanks.key, 0, 2, blanks.units)])
    assert {QueueKey("t", 0): 3} == first_in_log([blanks], None, 120)


def test_split_points_are_messages_about_as_far_apart_as_asked():
    ranges, log = log_of(3, 2000, seed=3)
    window = window_of(ranges)

    points = list(split_points(ranges, window, 100_000))

    assert {offset for offset, _, _, _ in log} >= set(points)
    sizes = np.diff([window.begin, *points, window.end])
    assert len(points) + 1 == (window.end - window.begin) // 100_000
    assert 90_000 < sizes.min() <= sizes.max() < 140_000
    assert [] == list(split_points([], window_of([]), 100))


def test_each_step_looks_at_one_queue_at_most():
    ranges, _ = log_of(12, 2000, seed=1)
    looks = []

    def watched(each):
        def units(begin, end):
            looks.append(each.key)
            return each.units(begin, end)

        return UnitRange(each.key, each.begin, each.end, units)

    watching = [watched(each) for each in ranges if len(each)]
    for steps in (
        merge_by_offset.first_in_log(watching, 500),
        merge_by_offset.first_in_log(watching, None, 50_000),
        merge_by_offset.window_of(watching),
    ):
        seen = set()
        for _ in steps:
            seen.update(looks)
            assert len(set(looks)) <= 1
            looks.clear()
        seen.update(looks)
        looks.clear()
        assert seen == {each.key for each in watching}
