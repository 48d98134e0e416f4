"""Positions of entries, from the index files of a node that may be running; read only.

The unit of entry i is at byte 32 * i of the index files (`dledger.entries.index`). Units are validated: a unit with
another index ends the known part. Callers bound the range by the known end of the log, because units of truncated
entries may remain after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dledger.entries.format.entry import INDEX_UNIT, INDEX_UNIT_SIZE
from dledger.entries.index import UNIT_TYPE

if TYPE_CHECKING:
    from store.fs.read_only_files import OpenFiles, ReadOnlyFiles
    from store.model.dispatch_batch import Int64s

INDEX_NAME: Final = "index"
_NAME_DIGITS: Final = 20


class EntryPlace(NamedTuple):
    """The place of an entry.

    Attributes:
        position: in the log.
        size: with its header.
        term: of the entry.
    """

    position: int
    size: int
    term: int


class EntryPlaces:
    """The index files of one node.

    Args:
        files: the file system.
        open_files: caches open files.
        directory: `dledger-<id>/index`; may be missing.
    """

    __slots__ = ("_begins", "_file_size", "_open_files", "_paths")

    def __init__(self, files: ReadOnlyFiles, open_files: OpenFiles, directory: str) -> None:
        names = [name for name in files.list_directory(directory) if len(name) == _NAME_DIGITS and name.isdecimal()]
        self._open_files = open_files
        self._paths = {int(name): f"{directory}/{name}" for name in names}
        self._begins = sorted(self._paths)
        self._file_size = files.size_of(self._paths[self._begins[0]]) if names else INDEX_UNIT_SIZE

    @property
    def begin(self) -> int:
        """The first entry in the range of the files."""
        return self._begins[0] // INDEX_UNIT_SIZE if self._begins else 0

    @property
    def end(self) -> int:
        """Index after the last entry in the range of the files."""
        return (self._begins[-1] + self._file_size) // INDEX_UNIT_SIZE if self._begins else 0

    def place(self, index: int) -> EntryPlace | None:
        """Return the place of an entry; None if its unit is missing."""
        found = self._find(index)
        if found is None:
            return None
        view, position = found
        _, at, size, unit_index, term = INDEX_UNIT.unpack_from(view, position)
        return EntryPlace(at, size, term) if unit_index == index and size > 0 else None

    def columns(self, begin: int, end: int) -> tuple[Int64s, Int64s]:
        """Return positions and sizes of the entries `[begin, end)`, up to the first one without a unit."""
        positions, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        while begin < end:
            found = self._find(begin)
            if found is None:
                break
            view, position = found
            count = min(end - begin, (len(view) - position) // INDEX_UNIT_SIZE)
            units = np.frombuffer(view, UNIT_TYPE, count, position)
            is_there = (units["index"] == np.arange(begin, begin + count)) & (units["size"] > 0)
            good = count if is_there.all() else int(is_there.argmin())
            positions.append(units["position"][:good].astype(np.int64))
            sizes.append(units["size"][:good].astype(np.int64))
            begin += count
            if good < count:
                break
        return np.concatenate(positions), np.concatenate(sizes)

    def index_at(self, position: int, begin: int, end: int) -> int | None:
        """Return the first entry of `[begin, end)` at or after `position`; `end` if there is none.

        None: a required unit is missing.
        """
        while begin < end:
            middle = (begin + end) // 2
            place = self.place(middle)
            if place is None:
                return None
            begin, end = (begin, middle) if place.position >= position else (middle + 1, end)
        return end

    def last(self) -> int | None:
        """Return the last entry with a unit, which may have been truncated since; None: there is none."""
        low, high = self.begin, self.end
        # Units are contiguous from the first one on.
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.place(middle) is not None else (low, middle)
        return low - 1 if low > self.begin else None

    def _find(self, index: int) -> tuple[memoryview, int] | None:
        """Return the file and the position of the unit of an entry."""
        if not self._begins or index < 0:
            return None
        number = (index * INDEX_UNIT_SIZE - self._begins[0]) // self._file_size
        begin = self._begins[0] + number * self._file_size
        if number < 0 or begin not in self._paths:
            return None
        view, position = self._open_files.get(self._paths[begin]).view(), index * INDEX_UNIT_SIZE - begin
        return (view, position) if position + INDEX_UNIT_SIZE <= len(view) else None
