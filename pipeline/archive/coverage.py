"""Verifies that all messages of a slice were read, before they are recorded as archived.

Each message must begin at the end of the previous one. Between two of them, and after the last one, only leaders'
entries and the blank at the end of a file are allowed; both are read in the file itself. The check is independent of
the code that reads slices, except for decoding one header.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

import numpy as np

from commitlog.offline.directory import LogFileInfo
from commitlog.record.record import BLANK_MAGIC, HEAD
from pipeline.common.errors import DataLost, LostRange
from pipeline.log.places import NO_INDEX, LogPlaces
from pipeline.log.slice import NO_LIMIT, Slice
from store.fs.read_only_files import OpenFiles, ReadOnlyFiles

if TYPE_CHECKING:
    import pyarrow as pa

# The columns of each batch that the check needs.
COVERAGE_COLUMNS = ("physicalOffset", "storeSize")


class Coverage:
    """Tracks the messages read from one slice of the log.

    Args:
        part: the slice.
    """

    def __init__(self, part: Slice) -> None:
        self._part = part
        self._position = part.begin
        # Messages and leaders' entries found so far.
        self._entries = 0
        self._is_begin_known = part.is_begin_known

    def take(self, batch: pa.RecordBatch) -> None:
        """Record messages, in log order.

        Raises:
            pipeline.common.errors.DataLost: bytes between them are neither a message nor a blank; the piece must not be
                committed.
        """
        offsets, sizes = (batch.column(name).to_numpy().astype(np.int64) for name in COVERAGE_COLUMNS)
        begins, ends = offsets - self._part.header_size, offsets + sizes
        before = np.concatenate(([self._position], ends[:-1]))
        for row in np.flatnonzero(before != begins).tolist():
            if self._is_begin_known or row or self._position != self._part.begin:
                self._pass_over(int(before[row]), int(begins[row]))
        self._position = int(ends[-1])
        self._entries += batch.num_rows

    def finish(self) -> None:
        """Check the bytes after the last message; raises as `take`."""
        part = self._part
        end = part.end if part.limit == NO_LIMIT else min(part.end, part.limit)
        if self._position < end and (self._is_begin_known or self._position != part.begin):
            self._pass_over(self._position, end)
        expected = part.end_index - part.begin_index
        if part.begin_index != NO_INDEX and self._entries != expected:
            reason = f"{self._entries} entries were read, the index files have {expected}"
            lost = LostRange("entries", part.begin_index, part.end_index, reason)
            raise DataLost(f"archive of {part.root}", [lost], _REMEDY)

    def _pass_over(self, begin: int, end: int) -> None:
        """Check that `[begin, end)` contains only leaders' entries and blanks."""
        part, open_files = self._part, OpenFiles(ReadOnlyFiles())
        try:
            view = open_files.get(part.path).view()
            file_begin = int(posixpath.basename(part.path))
            log = LogPlaces(open_files, (LogFileInfo(part.path, file_begin, len(view), part.header_size),))
            position = begin
            while position < end:
                head = log.entry_at(position) if part.header_size else None
                if head is not None and not head.is_client:
                    position = head.end_offset
                    self._entries += 1
                elif _is_blank(view, position - file_begin, part.header_size):
                    position = file_begin + len(view)
                else:
                    break
            if position < end:
                reason = f"bytes of {part.path} that are neither a message that was read nor a filler"
                raise DataLost(f"archive of {part.root}", [LostRange("log", position, end, reason)], _REMEDY)
        finally:
            open_files.close_all()


_REMEDY = "Run `dledger verify` on the store; archive from another replica, which has the message intact"


def _is_blank(view: memoryview, position: int, header_size: int) -> bool:
    """Return whether the blank at the end of a file begins here."""
    if len(view) - position < HEAD.size:
        return True
    first, second = HEAD.unpack_from(view, position)
    # A blank of entries begins with its magic, a blank of the plain log with its size.
    magic, size, wanted = (first, second, -1) if header_size else (second, first, BLANK_MAGIC)
    return bool(magic == wanted and size == len(view) - position)
