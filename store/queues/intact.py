"""Finds, among many queues, those that need no truncation: one NumPy pass instead of one per queue.

Not here: cutting the others (`ConsumeQueue.truncate`, which has the same result for those found here).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store.queues.unit import BLANK_SIZE, UNIT_SIZE, UNIT_TYPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.model.dispatch_batch import Bools


def are_intact(queues: Sequence[bytes | bytearray], physical_offset: int) -> Bools:
    """Return a mask of the queues whose units are all plausible, not blank, and point below an offset.

    Args:
        queues: for each the units of its last file, at least one.
        physical_offset: in the log.
    """
    if not queues:
        return np.zeros(0, bool)
    units = np.frombuffer(b"".join(queues), UNIT_TYPE)
    places, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
    is_right = (places >= 0) & (places < physical_offset) & (sizes > 0) & (sizes != BLANK_SIZE)
    follows = np.ones(len(units), bool)
    follows[1:] = places[1:] >= (places + sizes)[:-1]
    counts = np.array([len(each) // UNIT_SIZE for each in queues], np.int64)
    firsts = np.cumsum(counts) - counts
    # The unit before a queue's first one belongs to another queue.
    follows[firsts] = True
    found: Bools = np.logical_and.reduceat(is_right & follows, firsts)
    return found
