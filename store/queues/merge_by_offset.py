"""Selects the first messages of several queues in log order, up to a number of messages or bytes.

The physical offsets of a queue ascend. So a log offset splits each queue, and a limit of messages or bytes determines
one offset. The messages before it are close together in the log, even if the queues differ in length.

Many queues take a long time, so the work is split into steps, each of which reads one queue: a caller with an event
loop runs other tasks between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store.model.dispatch_batch import Int32s, Int64s
from store.queues.unit import BLANK_SIZE

if TYPE_CHECKING:
    from store.model.message import QueueKey
    from store.steps import Steps

# (begin, end) -> physical offset and size of each unit.
Units = Callable[[int, int], tuple[Int64s, Int32s]]
# With a limit of bytes: the most messages of one result.
_ROWS_MAX: Final = 1 << 19
# Messages at the start of a range whose sizes are read, to estimate the size of all.
_SAMPLE_MAX: Final = 1 << 10
# At most this many messages are sorted to find the exact end: sorting is quick, and each bisection of all queues is
# slow.
_SORTED_MAX: Final = 1 << 17


@dataclass(frozen=True, slots=True)
class UnitRange:
    """A range of one queue.

    Attributes:
        key: of the queue.
        begin, end: queue offsets, half open.
        units: of the queue.
    """

    key: QueueKey
    begin: int
    end: int
    units: Units

    def __len__(self) -> int:
        """Return the number of its units."""
        return self.end - self.begin


class LogWindow(NamedTuple):
    """Places of messages in the log.

    Attributes:
        begin: of the first one.
        end: after the last one.
        size_bytes: the estimated total, from the first messages of each range.
        messages: their number, blanks included.
    """

    begin: int
    end: int
    size_bytes: int
    messages: int


def first_in_log(
    ranges: Sequence[UnitRange], count_max: int | None = None, size_bytes_max: int | None = None
) -> Steps[dict[QueueKey, int]]:
    """Return the end of each range for the selection of the first messages in log order.

    Args:
        ranges: of different queues.
        count_max: messages at most; None: all.
        size_bytes_max: bytes at most; at least one message is selected, and at most 524,288.
    """
    ranges = [each for each in ranges if len(each) > 0]
    total = sum(map(len, ranges))
    count_max = min(total, count_max or total, total if size_bytes_max is None else _ROWS_MAX)
    ends = [each.end for each in ranges]
    if count_max < total:
        ends = yield from _up_to_count(ranges, count_max)
    if size_bytes_max is not None:
        ends = yield from _up_to_size(ranges, ends, size_bytes_max)
    return {each.key: end for each, end in zip(ranges, ends, strict=True)}


def window_of(ranges: Sequence[UnitRange]) -> Steps[LogWindow]:
    """Return the part of the log with the messages of these ranges; all zeros if there are none. Reads few units."""
    begin, end, size = None, 0, 0
    for each in ranges:
        yield
        first, last = _first_real(each), _last_real(each)
        if first is not None and last is not None:
            begin = first if begin is None else min(begin, first)
            end = max(end, last)
            _, sizes = each.units(each.begin, min(each.begin + _SAMPLE_MAX, each.end))
            size += round(np.where(sizes == BLANK_SIZE, 0, sizes).mean() * len(each))
    return LogWindow(begin or 0, end, size, sum(map(len, ranges)))


def split_points(ranges: Sequence[UnitRange], window: LogWindow, size_bytes: int) -> Iterator[int]:
    """Yield offsets of messages that split the window into ranges of about this size, without begin and end.

    They are taken from the range with most messages.
    """
    parts = (window.end - window.begin) // max(size_bytes, 1)
    longest = max(ranges, key=len, default=None)
    if parts < 2 or longest is None:
        return
    before = window.begin
    for number in range(1, parts):
        goal = window.begin + (window.end - window.begin) * number // parts
        place = _bisect(longest, longest.begin, longest.end, goal)
        if place < longest.end:
            offset, size = _unit(longest, place)
            if size != BLANK_SIZE and before < offset < window.end:
                yield offset
                before = offset


def _up_to_count(ranges: Sequence[UnitRange], count_max: int) -> Steps[list[int]]:
    """Return the ends of the first `count_max` messages, fewer than all, by bisection of a position in the log."""
    lows, highs = [each.begin for each in ranges], [each.end for each in ranges]
    borders: list[int] = []
    for each in ranges:
        yield
        borders += _unit(each, each.begin)[0], _unit(each, each.end - 1)[0]
    low, high = min(borders), max(borders) + 1
    low_count, high_count = 0, sum(map(len, ranges))
    is_guessed = True
    while high_count - low_count > _SORTED_MAX and high - low > 1:
        # Interpolation finds the position at once if messages are evenly distributed; halving bounds the other cases.
        share = (count_max - low_count) / (high_count - low_count) if is_guessed else 0.5
        place = min(max(low + round((high - low) * share), low + 1), high - 1)
        is_guessed = not is_guessed
        ends = []
        for each, begin, end in zip(ranges, lows, highs, strict=True):
            yield
            ends.append(_bisect(each, begin, end, place))
        count = sum(ends) - sum(each.begin for each in ranges)
        if count <= count_max:
            low, lows, low_count = place, ends, count
        else:
            high, highs, high_count = place, ends, count
    return (yield from _exactly(ranges, lows, highs, count_max - low_count))


def _exactly(ranges: Sequence[UnitRange], lows: list[int], highs: list[int], count: int) -> Steps[list[int]]:
    """Return the ends of the `count` messages of `[low, high)` that come first."""
    owners = np.repeat(np.arange(len(ranges)), [high - low for low, high in zip(lows, highs, strict=True)])
    offsets = []
    for each, low, high in zip(ranges, lows, highs, strict=True):
        yield
        offsets.append(each.units(low, high)[0])
    taken = owners[np.argsort(np.concatenate(offsets), kind="stable")[:count]]
    return [low + int(more) for low, more in zip(lows, np.bincount(taken, minlength=len(ranges)), strict=True)]


def _up_to_size(ranges: Sequence[UnitRange], ends: list[int], size_bytes_max: int) -> Steps[list[int]]:
    owners = np.repeat(np.arange(len(ranges)), [end - each.begin for each, end in zip(ranges, ends, strict=True)])
    units = []
    for each, end in zip(ranges, ends, strict=True):
        yield
        units.append(each.units(each.begin, end))
    if not units:
        return ends
    offsets, sizes = (np.concatenate(column) for column in zip(*units, strict=True))
    order = np.argsort(offsets, kind="stable")
    sizes = np.where(sizes == BLANK_SIZE, 0, sizes).astype(np.int64)
    count = max(int(np.searchsorted(np.cumsum(sizes[order]), size_bytes_max, "right")), 1)
    counts = np.bincount(owners[order[:count]], minlength=len(ranges))
    return [each.begin + int(more) for each, more in zip(ranges, counts, strict=True)]


def _first_real(each: UnitRange) -> int | None:
    """Return the offset of the first message that is not a blank."""
    for begin in range(each.begin, each.end, _SAMPLE_MAX):
        offsets, sizes = each.units(begin, min(begin + _SAMPLE_MAX, each.end))
        places = np.flatnonzero(sizes != BLANK_SIZE)
        if len(places):
            return int(offsets[places[0]])
    return None


def _last_real(each: UnitRange) -> int | None:
    """Return the offset after the last message that is not a blank."""
    for end in range(each.end, each.begin, -_SAMPLE_MAX):
        offsets, sizes = each.units(max(end - _SAMPLE_MAX, each.begin), end)
        places = np.flatnonzero(sizes != BLANK_SIZE)
        if len(places):
            return int(offsets[places[-1]] + sizes[places[-1]])
    return None


def _bisect(each: UnitRange, low: int, high: int, place: int) -> int:
    """Return the first unit of `[low, high)` that points to `place` or after it; `high` if there is none."""
    while low < high:
        middle = (low + high) // 2
        if _unit(each, middle)[0] < place:
            low = middle + 1
        else:
            high = middle
    return low


def _unit(each: UnitRange, queue_offset: int) -> tuple[int, int]:
    offsets, sizes = each.units(queue_offset, queue_offset + 1)
    return int(offsets[0]), int(sizes[0])


def clamp(ranges: Sequence[UnitRange], ends: Mapping[QueueKey, int]) -> list[UnitRange]:
    """Return the ranges up to these ends, without empty ones."""
    cut = [UnitRange(each.key, each.begin, ends.get(each.key, each.begin), each.units) for each in ranges]
    return [each for each in cut if len(each) > 0]
