"""Searches a consume queue by bisection: by physical offset or by store time. Units are read one by one.

Physical offsets of a queue ascend. Blanks have no physical offset, so the units after them are used instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store.queues.offset_by_time import first_confirmed_time
from store.queues.unit import BLANK_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.check.queue_view import QueueView, StoredUnit

# Blanks that are skipped together.
_CHUNK = 4096


def first_at(queue: QueueView, begin: int, end: int, physical_offset: int) -> int:
    """Return the first unit of `[begin, end)` with a message at or after an offset; `end` if there is none."""
    return first_where(queue, begin, end, lambda unit: unit.offset >= physical_offset)


def first_at_time(
    queue: QueueView,
    begin: int,
    end: int,
    store_timestamp_ms: int,
    store_timestamp_of: Callable[[int], int | None],
) -> int:
    """Return the first unit of `[begin, end)` with a message stored at or after a time; `end` if there is none.

    A time counts only if the messages before and after it agree (`store.queues.offset_by_time`), so a wrong one makes
    the result too low at most.

    Args:
        queue: of the units.
        begin: queue offset.
        end: queue offset.
        store_timestamp_ms: milliseconds since 1970.
        store_timestamp_of: called with a physical offset; None: no record can be read there.
    """

    def time_at(queue_offset: int) -> int | None:
        if not begin <= queue_offset < end:
            return None
        unit = queue.unit(queue_offset)
        return None if _is_blank(unit) else store_timestamp_of(unit.offset)

    def is_later(unit: StoredUnit) -> bool:
        found = first_confirmed_time(time_at, unit.queue_offset)
        return found is None or found >= store_timestamp_ms

    return first_where(queue, begin, end, is_later)


def first_where(queue: QueueView, begin: int, end: int, holds: Callable[[StoredUnit], bool]) -> int:
    """Return the first unit of `[begin, end)` for which `holds`; `end` if there is none.

    The predicate must be false up to some unit and true after it.
    """
    last = end
    # Fast path: usually it is true for all units, or for none.
    if begin < end and not _is_blank(unit := queue.unit(end - 1)) and not holds(unit):
        return end
    if begin < end and not _is_blank(unit := queue.unit(begin)) and holds(unit):
        return begin
    while begin < end:
        middle = (begin + end) // 2
        real = _not_blank(queue, middle, end)
        if real < end and not holds(queue.unit(real)):
            begin = real + 1
        else:
            end = middle
    return _not_blank(queue, begin, last)


def _is_blank(unit: StoredUnit) -> bool:
    return unit.size == BLANK_SIZE


def _not_blank(queue: QueueView, begin: int, end: int) -> int:
    """Return the first unit of `[begin, end)` that is not blank; `end` if there is none."""
    first = begin
    while first < end:
        last = min(first + (1 if first == begin else _CHUNK), end)
        units = queue.units(first, last)
        real = np.flatnonzero((units["size"] != BLANK_SIZE) | (units["physical_offset"] != 0))
        if len(real):
            return first + int(real[0])
        first = last
    return end
