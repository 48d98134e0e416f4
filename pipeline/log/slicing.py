"""Splits files of a log into slices: entries by the index files, the plain log by bytes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from commitlog.record.record import BadRecord, decode
from commitlog.record.resync import find_good
from pipeline.log.places import NO_INDEX
from pipeline.log.slice import Slice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from commitlog.offline.directory import LogFileInfo
    from pipeline.log.store_view import StoreView

_SAMPLE_COUNT: Final = 16


class LogSlicer:
    """Splits the log of one store.

    Args:
        store: the open store.
    """

    def __init__(self, store: StoreView) -> None:
        self._store = store
        # Cache of the last entries looked up, because files are split in order.
        self._index = max(store.begin_index, 0)

    def offset_of(self, index: int) -> int:
        """Return the offset of an entry; the nearest bound of the store for an index outside."""
        store = self._store
        divide = store.begin_offset if store.divide is None else store.divide
        if index <= store.begin_index:
            return divide
        if index >= store.end_index or store.places is None:
            return store.end_offset
        place = store.places.place(index)
        if place is not None:
            return place.position
        head = store.log.next_entry(divide)
        while head is not None and head.index < index:
            head = store.log.next_entry(head.end_offset)
        return store.end_offset if head is None else head.offset

    def slices(self, file: LogFileInfo, begin: int, end: int, target: int, rows_max: int | None) -> Iterator[Slice]:
        """Yield the slices of `[begin, end)` of a file, each of about `target` bytes, without gaps."""
        slices: list[Slice] = []
        indexes = self._indexes(begin, end, target, rows_max) if file.header_size else None
        if indexes is not None:
            slices = list(self._by_index(file, indexes, begin, end))
        if not are_tiled(_ranges(slices), begin, end):
            # The index lacks entries or is inconsistent.
            slices = list(self._by_size(file, begin, end, target, rows_max))
        assert are_tiled(_ranges(slices), begin, end), (file.path, begin, end, slices)
        yield from slices

    # ---------------------------------------------------------------------------------------------------- by index

    def _indexes(self, begin: int, end: int, target: int, rows_max: int | None) -> list[int] | None:
        """Return the entries at which to split, from the first one to after the last; None: not in the index."""
        store = self._store
        if store.places is None or store.begin_index == NO_INDEX:
            return None
        first = store.places.index_at(begin, self._index, store.end_index)
        if first is None:
            return None
        last = store.places.index_at(end, first, store.end_index)
        if last is None:
            return None
        found = [first]
        pieces = max(1, math.ceil((end - begin) / target))
        for piece in range(1, pieces + 1):
            after = last
            if piece < pieces:
                at = store.places.index_at(begin + (end - begin) * piece // pieces, found[-1], last)
                if at is None:
                    return None
                after = at
            count = after - found[-1]
            parts = math.ceil(count / rows_max) if rows_max else min(count, 1)
            start = found[-1]
            found += [start + count * part // parts for part in range(1, parts + 1)]
        self._index = last
        return found

    def _by_index(self, file: LogFileInfo, indexes: list[int], begin: int, end: int) -> Iterator[Slice]:
        places = self._store.places
        assert places is not None
        offsets = [end if place is None else place.position for place in map(places.place, indexes[:-1])]
        # Before the first entry is the rest of an earlier one, or a blank.
        is_begin_known = offsets[:1] == [begin]
        offsets[:1] = [begin]
        for number, first in enumerate(indexes[:-1]):
            after = offsets[number + 1] if number + 2 < len(indexes) else end
            yield Slice(
                self._store.path,
                file.path,
                offsets[number],
                after,
                file.header_size,
                first,
                indexes[number + 1],
                is_begin_known=is_begin_known or number > 0,
                size_bytes=after - offsets[number],
                limit=self._limit(file),
            )

    # ----------------------------------------------------------------------------------------------------- by size

    def _by_size(self, file: LogFileInfo, begin: int, end: int, target: int, rows_max: int | None) -> Iterator[Slice]:
        if rows_max is not None:
            target = max(1, min(target, rows_max * self._record_size(file, begin, end)))
        pieces = max(1, math.ceil((end - begin) / target))
        for piece in range(pieces):
            first = begin + (end - begin) * piece // pieces
            after = begin + (end - begin) * (piece + 1) // pieces
            if first < after:
                yield Slice(
                    self._store.path,
                    file.path,
                    first,
                    after,
                    file.header_size,
                    is_begin_known=first in (file.begin_offset, self._store.begin_offset),
                    is_end_known=after in (file.end_offset, self._store.end_offset),
                    size_bytes=after - first,
                    limit=self._limit(file),
                )

    def _limit(self, file: LogFileInfo) -> int:
        return min(file.end_offset, self._store.end_offset)

    def _record_size(self, file: LogFileInfo, begin: int, end: int) -> int:
        """Estimate the size of a record in `[begin, end)` from a sample."""
        view, base = self._store.log.view(file), file.begin_offset
        sizes: list[int] = []
        for at in range(begin, end, max(1, (end - begin) // _SAMPLE_COUNT)):
            position = find_good(view, at - base, end - base, base_offset=base, header_size=file.header_size)
            try:
                sizes.append(decode(view, position + file.header_size, end - base).size + file.header_size)
            except BadRecord:
                continue
        return max(1, sum(sizes) // max(len(sizes), 1)) if sizes else end - begin


def are_tiled(ranges: Iterable[tuple[int, int]], begin: int, end: int) -> bool:
    """Return whether ranges, in any order, together are exactly `[begin, end)`: none is empty, and none overlap."""
    for first, after in sorted(ranges):
        if first != begin or after <= first:
            return False
        begin = after
    return begin == end


def _ranges(slices: Iterable[Slice]) -> list[tuple[int, int]]:
    return [(part.begin, part.end) for part in slices]
