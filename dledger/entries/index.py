"""The index files: the position of each entry by index, without state in memory.

The unit of entry i is stored at byte 32 * i. The index is derived from the data files: recovery compares and rewrites
it. It is synced when a data file is full, so recovery does not have to check older units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dledger.entries.format.entry import INDEX_UNIT, INDEX_UNIT_SIZE
from dledger.types import Span, TermRun
from store.errors import CorruptData
from store.fs.struct_type import numpy_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from store.fs.mapped.mapped_file_queue import MappedFileQueue

UNIT_TYPE = numpy_type(INDEX_UNIT, ("magic", "position", "size", "index", "term"))
# Units compared at once: bounds the memory of the check (1 MiB per column).
_CHECK_COUNT = 1 << 15

# magic, position, size, index, term
Fields = tuple[int, int, int, int, int]
_NONE: Fields = (0, 0, 0, -1, 0)


class EntryIndex:
    """Reads and writes index units in a queue of index files."""

    __slots__ = ("_newest", "_queue")

    def __init__(self, queue: MappedFileQueue) -> None:
        assert queue.file_size % INDEX_UNIT_SIZE == 0, queue.file_size
        self._queue = queue
        # The unit that was read last: usually that of the log's end, which every append and push reads several times.
        # Only a write can make it outdated, because only units of the log's entries are read.
        self._newest = _NONE

    @property
    def queue(self) -> MappedFileQueue:
        """The files."""
        return self._queue

    def fields(self, index: int) -> Fields:
        """Return (magic, position, size, index, term) of an entry that is in the log.

        Raises:
            store.errors.CorruptData: the index files lack it; opening the store again rebuilds them.
        """
        if self._newest[3] == index:
            return self._newest
        offset = index * INDEX_UNIT_SIZE
        file = self._queue.find(offset)
        if file is not None:
            unit: Fields = INDEX_UNIT.unpack_from(file.file.view(), offset - file.begin_offset)
            if unit[3] == index:
                self._newest = unit
                return unit
        raise self.corrupt(index)

    def unit(self, index: int) -> IndexUnit:
        """Return the unit of an entry that is in the log; raises as `fields`."""
        return IndexUnit(*self.fields(index))

    def term_at(self, index: int) -> int:
        """Return the term of an entry that is in the log; raises as `fields`."""
        return self.fields(index)[4]

    def reserve(self, first_index: int, last_index: int) -> None:
        """Reserve disk space for the units of these entries.

        Raises:
            store.errors.DiskFull: nothing was changed, except that empty files may have been added.
        """
        self._queue.reserve(first_index * INDEX_UNIT_SIZE, (last_index + 1) * INDEX_UNIT_SIZE)

    def write(self, first_index: int, units: bytes) -> None:
        """Write consecutive units into the page cache; space for them was reserved."""
        self._newest = _NONE
        queue, offset = self._queue, first_index * INDEX_UNIT_SIZE
        space = queue.file_size - offset % queue.file_size
        if len(units) <= space:
            queue.write(offset, units)
            return
        done = 0
        while done < len(units):
            part = units[done : done + queue.file_size - (offset + done) % queue.file_size]
            queue.write(offset + done, part)
            done += len(part)

    def positions(self, first_index: int, last_index: int) -> NDArray[np.int64]:
        """Return the positions of these entries, which are in the log; none if `last_index` is before `first_index`.

        Raises:
            store.errors.CorruptData: the index files lack them; opening the store again rebuilds them.
        """
        parts = [units["position"].astype(np.int64) for units in self._units(first_index, last_index)]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def positions_in_row(self, first_index: int, last_index: int) -> NDArray[np.int64]:
        """Return the positions of one or more contiguous entries.

        Raises:
            store.errors.CorruptData: as `positions`, or the units are not contiguous.
        """
        parts = [(units["position"], units["size"]) for units in self._units(first_index, last_index)]
        positions, sizes = (np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True))
        wrong = np.flatnonzero(positions[1:] != positions[:-1] + sizes[:-1])
        if len(wrong):
            raise self.corrupt(first_index + int(wrong[0]))
        return positions

    def _units(self, first_index: int, last_index: int) -> Iterator[NDArray[np.void]]:
        """Yield the units of these entries, file by file; raises as `positions`."""
        index = first_index
        while index <= last_index:
            offset = index * INDEX_UNIT_SIZE
            file = self._queue.find(offset)
            if file is None:
                raise self.corrupt(index)
            count = min(last_index - index + 1, (file.end_offset - offset) // INDEX_UNIT_SIZE)
            units = np.frombuffer(file.file.view(), UNIT_TYPE, count, offset - file.begin_offset)
            if not (units["index"] == np.arange(index, index + count)).all():
                raise self.corrupt(index)
            yield units
            index += count

    def holds(self, first_index: int, units: bytes) -> bool:
        """Return whether these units are stored from `first_index` on."""
        queue, offset, done = self._queue, first_index * INDEX_UNIT_SIZE, 0
        while done < len(units):
            file = queue.find(offset + done)
            if file is None:
                return False
            size = min(len(units) - done, file.end_offset - offset - done)
            if queue.read(offset + done, size) != units[done : done + size]:
                return False
            done += size
        return True

    def truncate(self, first_index: int, last_index: int) -> None:
        """Zero the units from `first_index` to the log's `last_index`; not synced, because the index is derived."""
        begin, end = first_index * INDEX_UNIT_SIZE, (last_index + 1) * INDEX_UNIT_SIZE
        self._queue.truncate(begin, end, is_durable=False)

    def clear_after(self, last_index: int) -> None:
        """Overwrite everything after the unit of the last entry with zeros."""
        offset = (last_index + 1) * INDEX_UNIT_SIZE
        file = self._queue.find(offset)
        data_end = offset if file is None else file.find_data_end(offset)
        self._queue.truncate(offset, data_end, is_durable=False)

    def is_sound(self, begin_index: int, end_index: int, begin_position: int, data_file_size: int) -> bool:
        """Return whether the units of `[begin_index, end_index)` are consistent.

        Indexes must be consecutive, terms must not decrease, and each entry must begin at the end of the one before, or
        at the beginning of a data file; the first one at `begin_position`.
        """
        expected_position, term = begin_position, 0
        index = begin_index
        while index < end_index:
            offset = index * INDEX_UNIT_SIZE
            file = self._queue.find(offset)
            if file is None:
                return False
            count = min(_CHECK_COUNT, end_index - index, (file.end_offset - offset) // INDEX_UNIT_SIZE)
            units = np.frombuffer(file.file.view(), UNIT_TYPE, count, offset - file.begin_offset)
            positions, ends = units["position"], units["position"] + units["size"]
            expected = np.concatenate(([expected_position], ends[:-1]))
            terms = np.concatenate(([term], units["term"]))
            is_in_place = (positions == expected) | ((positions > expected) & (positions % data_file_size == 0))
            is_sound = (units["index"] == np.arange(index, index + count)) & is_in_place & (np.diff(terms) >= 0)
            if not is_sound.all():
                return False
            index, expected_position, term = index + count, int(ends[-1]), int(terms[-1])
        return True

    def last_where(self, first_index: int, last_index: int, holds: Callable[[int, int, int], bool]) -> int:
        """Return the last index of `[first_index, last_index]` for which `holds` is true, else `first_index - 1`.

        `holds` is called with position, size and term of an entry; it must be true up to some entry and false after it.
        Raises as `fields`.
        """
        low, high = first_index - 1, last_index
        file, view = None, memoryview(b"")
        while low < high:
            middle = (low + high + 1) // 2
            offset = middle * INDEX_UNIT_SIZE
            # Nearly always one file has all of these units, so it is looked up once.
            if file is None or not file.begin_offset <= offset < file.end_offset:
                file = self._queue.find(offset)
                if file is None:
                    raise self.corrupt(middle)
                view = file.file.view()
            _, position, size, index, term = INDEX_UNIT.unpack_from(view, offset - file.begin_offset)
            if index != middle:
                raise self.corrupt(middle)
            if holds(position, size, term):
                low = middle
            else:
                high = middle - 1
        return low

    def term_runs(self, first_index: int, last_index: int) -> tuple[TermRun, ...]:
        """Return the terms of entries; found by bisection, because terms never decrease."""
        runs: list[TermRun] = []
        while first_index <= last_index:
            term = self.term_at(first_index)
            runs.append(TermRun(first_index, term))
            first_index = self.last_of_term(first_index, last_index, term) + 1
        return tuple(runs)

    def fit(self, first_index: int, last_index: int, size_bytes_max: int, file_size: int) -> Span:
        """Return the longest span of entries of `[first_index, last_index]` that can be sent in one push.

        That is: of one term, in one data file of `file_size` bytes, and together at most `size_bytes_max` bytes; the
        first entry is always included.
        """
        _, position, size, _, term = self.fields(first_index)
        file_end = position - position % file_size + file_size
        end_max = min(position + max(size_bytes_max, size), file_end)

        def belongs(at_position: int, at_size: int, at_term: int) -> bool:
            return at_term == term and at_position + at_size <= end_max

        _, last_position, last_size, _, last_term = self.fields(last_index)
        # Fast path: usually all entries fit.
        if last_term != term or last_position + last_size > end_max:
            last_index = self.last_where(first_index + 1, last_index - 1, belongs)
            _, last_position, last_size, _, _ = self.fields(last_index)
        return Span(first_index, last_index, term, position, last_position + last_size - position)

    def span_of(self, first_index: int, last_index: int, file_size: int) -> Span:
        """Return the span of these entries, which must `fit`; raises as `fields`."""
        _, position, _, _, term = self.fields(first_index)
        _, last_position, last_size, _, last_term = self.fields(last_index)
        if term != last_term or position // file_size != last_position // file_size:
            raise self.corrupt(last_index)
        return Span(first_index, last_index, term, position, last_position + last_size - position)

    def last_of_term(self, first_index: int, last_index: int, term: int) -> int:
        """Return the last index of `[first_index, last_index]` with `term`, which `first_index` has."""
        return self.last_where(first_index, last_index, lambda _position, _size, at_term: at_term == term)

    def corrupt(self, index: int) -> CorruptData:
        """Return the error for a damaged unit of this entry."""
        offset = index * INDEX_UNIT_SIZE
        file = self._queue.find(offset)
        if file is None:
            return CorruptData(self._queue.directory, offset, f"the index unit of entry {index}", "no such file")
        position = offset - file.begin_offset
        found = IndexUnit(*INDEX_UNIT.unpack_from(file.file.view(), position))
        return CorruptData(file.path, position, f"the index unit of entry {index}", str(found))


@dataclass(frozen=True, slots=True)
class IndexUnit:
    """One unit of the index; `position` is that of the entry in this node's files."""

    magic: int
    position: int
    size: int
    index: int
    term: int
