"""Reads one slice of the log: by the positions in index files, else by a scan."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Generic

import numpy as np

from commitlog.record.resync import find_good
from pipeline.common.errors import LostRange
from pipeline.log.entry_places import INDEX_NAME, EntryPlaces
from pipeline.log.places import NO_INDEX
from pipeline.log.slice import NO_LIMIT, Slice
from pipeline.reading.indexed_reading import IndexedReading, is_filler, is_sound
from pipeline.reading.log_reading import Reading, T
from store.errors import StorageFailed
from store.fs.read_only_files import OpenFiles, ReadOnlyFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.model.dispatch_batch import Int64s


class LogReading(Generic[T]):
    """Reads one slice of the log.

    Args:
        reading: settings.
        part: the slice.
    """

    def __init__(self, reading: Reading[T], part: Slice) -> None:
        self._reading = reading
        self._part = part
        self._base = int(posixpath.basename(part.path))
        self._files = ReadOnlyFiles()
        self._open_files = OpenFiles(self._files)

    def batches(self) -> Iterator[T]:
        """Yield its messages."""
        part, reading = self._part, self._reading
        view = reading.open(self._open_files, part.path, self._lost())
        if view is None:
            return
        try:
            yield from self._batches(view)
        finally:
            self._open_files.close_all()

    def _batches(self, view: memoryview) -> Iterator[T]:
        part, base, header_size = self._part, self._base, self._part.header_size
        position, stop = part.begin - base, part.end - base
        view = view if part.limit == NO_LIMIT else view[: part.limit - base]
        if part.begin_index != NO_INDEX:
            begins, sizes = self._places(part)
            is_whole = len(begins) == part.end_index - part.begin_index
            if (
                is_whole
                and is_sound(begins, sizes, position, stop)
                and is_filler(view, int(begins[-1] + sizes[-1]), stop)
            ):
                indexed = IndexedReading(self._reading, view, base, part.path)
                yield from indexed.batches(part.begin_index, begins, sizes)
                return
        if not part.is_begin_known:
            position = find_good(view, position, len(view), base_offset=base, header_size=header_size)
        yield from self._reading.walk(
            view, base, part.path, header_size, position=position, stop=stop, is_end_known=part.is_end_known
        )

    def _places(self, part: Slice) -> tuple[Int64s, Int64s]:
        """Return the positions and sizes of the slice's entries in their file, up to the end of the index."""
        directory = posixpath.join(posixpath.dirname(posixpath.dirname(part.path)), INDEX_NAME)
        try:
            places = EntryPlaces(self._files, self._open_files, directory)
            positions, sizes = places.columns(part.begin_index, part.end_index)
        except StorageFailed:
            positions = sizes = np.empty(0, np.int64)
        return positions - self._base, sizes

    def _lost(self) -> LostRange:
        part, reason = self._part, f"{self._part.path} was deleted since the plan was made"
        if part.begin_index != NO_INDEX:
            return LostRange("entries", part.begin_index, part.end_index, reason)
        return LostRange("log", part.begin, part.end, reason)
