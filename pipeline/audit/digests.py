"""Digests of ranges of a log, to compare replicas without comparing their bytes directly.

All replicas of a log have the same bytes at the same offsets, including headers and blanks. So a range of the log is
split into windows of equal size, and the CRC-32 of each window is its digest. Windows never cross the end of a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from isal.isal_zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from commitlog.offline.directory import LogFileInfo
    from store.fs.read_only_files import OpenFiles

# About a thousand entries of half a kilobyte: few enough to examine each one if digests differ.
WINDOW_SIZE: Final = 1 << 19


class DigestWindow(NamedTuple):
    """A part of the log, as offsets `[begin, end)`."""

    begin: int
    end: int


def windows(begin: int, end: int, size: int = WINDOW_SIZE) -> Iterator[DigestWindow]:
    """Yield the windows of a range, ascending; all but the first begin at a multiple of their size."""
    while begin < end:
        border = min((begin // size + 1) * size, end)
        yield DigestWindow(begin, border)
        begin = border


def digest(open_files: OpenFiles, file: LogFileInfo, window: DigestWindow) -> int:
    """Return the CRC-32 of a window of one file.

    Raises:
        store.errors.StorageFailed: the file cannot be read.
    """
    view = open_files.get(file.path).view()
    return crc32(view[window.begin - file.begin_offset : window.end - file.begin_offset])
