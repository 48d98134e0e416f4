"""Counts the entries of a range of a log by their indexes, independently of a plan of that range.

Indexes are consecutive, so the first entry of a range and the first one after it give the number. An archive compares
it with the entries of its slices before it records the range as archived: a plan that lacks entries would otherwise let
a broker delete them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.common.errors import DataLost, LostRange
from pipeline.log.places import NO_INDEX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.log.slice import Slice
    from pipeline.log.store_view import StoreView

_REMEDY = "Run `dledger verify` on the store, and read another replica, which has the entries"


def entries_in(store: StoreView, begin: int, end: int) -> int | None:
    """Return the number of entries that begin in the physical offsets `[begin, end)`, with those of leaders.

    None: the range has no entries because the log is plain, or an entry at its ends cannot be read.
    """
    if store.begin_index == NO_INDEX:
        return None
    divide = store.begin_offset if store.divide is None else store.divide
    first, after = (_index_at(store, max(offset, divide)) for offset in (begin, end))
    return None if first is None or after is None else after - first


def check_entries(store: StoreView, slices: Sequence[Slice], begin: int, end: int) -> None:
    """Check that the slices of the physical offsets `[begin, end)` have all entries of this range.

    Slices without index units have no count; the bytes that were read of them have to be compared instead.

    Raises:
        pipeline.common.errors.DataLost: the slices have fewer entries than the range, or more.
    """
    parts = [part for part in slices if part.header_size]
    wanted = entries_in(store, begin, end)
    if wanted is None or any(part.begin_index == NO_INDEX for part in parts):
        return
    found = sum(part.end_index - part.begin_index for part in parts)
    if found != wanted:
        reason = f"it has {wanted} entries by their headers, and {found} by the index files"
        raise DataLost(store.path, [LostRange("log", begin, end, reason)], _REMEDY)


def _index_at(store: StoreView, offset: int) -> int | None:
    """Return the index of the first entry at or after an offset; None: not known."""
    if offset >= store.end_offset:
        return store.end_index
    head = store.log.next_entry(offset)
    if head is not None:
        return head.index
    # The offset is within an entry, or the header there is damaged.
    return None if store.places is None else store.places.index_at(offset, store.begin_index, store.end_index)
