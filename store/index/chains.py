"""The fields of an index item besides key and message: the previous item in its slot, and its time.

Source: RocketMQ `IndexFile.putKey`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from store.model.dispatch_batch import Int32s, Int64s

_TIME_DIFFERENCE_MAX = (1 << 31) - 1


def time_differences(timestamps: Int64s, begins: Int64s) -> Int64s:
    """Return the whole seconds from the start of an index file to each time, as RocketMQ counts them."""
    differences: Int64s = np.clip((timestamps - begins) // 1000, 0, _TIME_DIFFERENCE_MAX)
    differences[begins <= 0] = 0
    return differences


def time_difference(timestamp: int, begin: int) -> int:
    """Return `time_differences` of one message."""
    return min(max((timestamp - begin) // 1000, 0), _TIME_DIFFERENCE_MAX) if begin > 0 else 0


def link(slots: Int32s, key_hashes: Int32s, first: int) -> tuple[Int32s, Int64s, int]:
    """Link new items, in order, to the newest items of their slots.

    Args:
        slots: changed in place.
        key_hashes: of the new items; at least one.
        first: number of the first of them.

    Returns:
        The previous item of each; the changed slots; the number of these that were empty before.
    """
    count = len(key_hashes)
    # Slot in the upper half, row in the lower: a single sort, faster than a stable one, groups by slot in log order.
    keyed = (key_hashes.astype(np.int64) % len(slots) << 32) | np.arange(count)
    keyed.sort()
    order, places = keyed & 0xFFFFFFFF, keyed >> 32
    numbers = (order + first).astype(np.int32)
    heads = np.concatenate(([0], np.flatnonzero(np.diff(places)) + 1))
    changed = places[heads]
    older = np.empty(count, np.int32)
    older[1:] = numbers[:-1]
    older[heads] = slots[changed]
    previous = np.empty(count, np.int32)
    previous[order] = older
    fresh_count = int(np.count_nonzero(older[heads] == 0))
    slots[changed] = numbers[np.concatenate((heads[1:] - 1, [count - 1]))]
    return previous, changed, fresh_count
