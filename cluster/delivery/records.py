"""Reads the records of messages that wait, many at once: each by itself takes five times as long."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, cast

import numpy as np

from store.errors import CorruptData

if TYPE_CHECKING:
    from collections.abc import Sequence

    from commitlog.record.record import Record
    from store.model.commit_log import CommitLog
    from store.queues.unit import Units


def read_records(log: CommitLog, places: Sequence[tuple[int, int]]) -> list[Record | None]:
    """Return the records at some places, in the same order; None: it is deleted, damaged, or may not be read.

    Args:
        log: the node's.
        places: physical offset and size of each record, in any order.
    """
    order = sorted(range(len(places)), key=places.__getitem__)
    offsets, sizes = [places[row][0] for row in order], [places[row][1] for row in order]
    found: list[Record | None] = [None] * len(places)
    at = 0
    while at < len(order):
        records = cast("Sequence[Record]", log.read_many(offsets[at:], sizes[at:]))
        for row, record in zip(order[at:], records, strict=False):
            found[row] = record
        at += len(records)
        if at < len(order):
            # The first one in another file, or one that cannot be read.
            with suppress(CorruptData):
                found[order[at]] = cast("Record | None", log.read(offsets[at], sizes[at]))
            at += 1
    return found


def read_run(log: CommitLog, units: Units, size_bytes_max: int) -> list[Record]:
    """Return the records of the first of some consecutive units, which the log reads together.

    None if the first one has to be examined by itself: it is deleted, damaged, or in another file than those before.

    Args:
        log: the node's.
        units: of one queue.
        size_bytes_max: of the records together; the first one is read whatever its size.
    """
    count = max(int(np.searchsorted(np.cumsum(units.sizes, dtype=np.int64), size_bytes_max, "right")), 1)
    places, sizes = units.physical_offsets[:count].tolist(), units.sizes[:count].tolist()
    if not places or min(places) < log.begin_offset:
        return []
    return cast("list[Record]", log.read_many(places, sizes))
