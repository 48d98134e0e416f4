"""Searches a consume queue by bisection: by physical offset or by store time. Units are read one by one.

Physical offsets of a queue ascend. Blanks have no physical offset, so the units after them are used instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store.queues.unit import BLANK_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.check.queue_view import QueueView, StoredUnit

# Blanks that are skipped together.
_CHUNK = 4096


def first_at(queue: QueueView, begin: int, end: int, physical_offset: int) -> int:
    """Return the first unit of `[begin, end)` with a message at or after an offset; `end` if there is none."""
    return first_where(queue, begin, end, lambda offset, _: offset >= physical_offset)


def first_where(queue: QueueView, begin: int, end: int, holds: Callable[[int, int], bool]) -> int:
    """Return the first unit of `[begin, end)` for which `holds(physical offset, size)`; `end` if there is none.

    The predicate must be false up to some unit and true after it.
    """
    last = end
    # Fast path: usually it is true for all units, or for none.
    if begin < end and not _is_blank(unit := queue.unit(end - 1)) and not holds(unit.offset, unit.size):
        return end
    if begin < end and not _is_blank(unit := queue.unit(begin)) and holds(unit.offset, unit.size):
        return begin
    while begin < end:
        middle = (begin + end) // 2
        real = _not_blank(queue, middle, end)
        if real < end and not holds(*queue.unit(real)[1:3]):
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
