"""The index of one compacted queue in a file: rows, then a trailer of the size of a row. Little-endian.

| offset | size | type | field |
| -----: | ---: | --- | --- |
| 0 | 8 | bytes | `DLCOMPCT` |
| 8 | 4 | uint | version, 1 |
| 12 | 4 | uint | CRC-32C of all rows |
| 16 | 8 | long | number of rows |
| 24 | 8 | long | end: messages of the queue before this queue offset are in the index, or were replaced |
| 32 | 8 | long | the smallest place of a row in the log; the largest long without rows |
| 40 | 8 | long | CRC-32C of the trailer up to here |

A file never changes; a newer one replaces it (`store.compaction.manifest`).
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from crc32c import crc32c

from store.compaction.rows import ROW, ROW_SIZE_BYTES, TOMBSTONE, Rows, no_rows
from store.errors import CorruptData

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from store.fs.ports import File, Files

_MAGIC: Final = b"DLCOMPCT"
_VERSION: Final = 1
_TRAILER: Final = struct.Struct("<8sIIqqqq")
assert _TRAILER.size == ROW_SIZE_BYTES
_CHECKED: Final = _TRAILER.size - 8
NO_PLACE: Final = (1 << 63) - 1
# Rows that are checked together.
_CHUNK_ROWS: Final = 16_384
_REBUILT: Final = ", or remove the directory `compacted`: it is built again from the log"


def write_index(files: Files, path: str, chunks: Iterable[Rows], end_offset: int) -> None:
    """Write a file, and sync it; its name is not durable yet.

    Raises:
        store.errors.DiskFull, StorageFailed: see `Files.create_from`.
    """
    files.create_from(path, _encoded(chunks, end_offset))


def _encoded(chunks: Iterable[Rows], end_offset: int) -> Iterator[bytes]:
    count, crc, place = 0, 0, NO_PLACE
    for rows in chunks:
        if len(rows):
            data = rows.tobytes()
            count, crc, place = count + len(rows), crc32c(data, crc), min(place, int(rows["place"].min()))
            yield data
    head = _TRAILER.pack(_MAGIC, _VERSION, crc, count, end_offset, place, 0)[:_CHECKED]
    yield head + crc32c(head).to_bytes(8, "little")


class IndexContent(NamedTuple):
    """The content of a file; see `QueueIndex`."""

    rows: Rows
    end_offset: int
    min_place: int
    oldest_tombstone_ms: int


class QueueIndex:
    """The open index of one queue.

    Attributes:
        path: of its file; empty: it has none, and no rows.
        rows: ascending by queue offset, each key once.
        end_offset: see the module's table.
        min_place: see the module's table.
        oldest_tombstone_ms: the smallest store timestamp of a tombstone; `NO_PLACE` without one.
    """

    __slots__ = ("_file", "end_offset", "min_place", "oldest_tombstone_ms", "path", "rows")

    def __init__(self, path: str = "", file: File | None = None, found: IndexContent | None = None) -> None:
        content = found or IndexContent(no_rows(), 0, NO_PLACE, NO_PLACE)
        self.path = path
        self.rows, self.end_offset, self.min_place, self.oldest_tombstone_ms = content
        self._file = file

    @classmethod
    def open(cls, files: Files, path: str, *, is_cache_trusted: bool = False) -> QueueIndex:
        """Open a file, and check it.

        Raises:
            CorruptData: it is damaged.
            StorageFailed: it cannot be read.
        """
        file = files.open(path, is_cache_trusted=is_cache_trusted)
        try:
            found = decoded(path, file.view())
        except BaseException:
            file.close()
            raise
        return cls(path, file, found)

    def first_at(self, queue_offset: int) -> int:
        """Return the number of the first row with this offset or a later one."""
        offsets = self.rows["offset"]
        return bisect_left(range(len(offsets)), queue_offset, key=offsets.__getitem__)

    def close(self, *, is_removed: bool = False) -> None:
        """Close the file; the rows must no longer be used."""
        self.rows = no_rows()
        if self._file is not None:
            (self._file.discard if is_removed else self._file.close)()


def decoded(path: str, view: memoryview) -> IndexContent:
    """Return the content of a file.

    Raises:
        CorruptData: it is damaged.
    """
    rows_size = len(view) - _TRAILER.size
    if rows_size < 0 or rows_size % ROW_SIZE_BYTES:
        raise CorruptData(path, 0, "rows of 48 bytes and a trailer", f"{len(view)} bytes", _REBUILT)
    head = bytes(view[rows_size:])
    magic, version, crc, count, end, place, head_crc = _TRAILER.unpack(head)
    if (magic, version, head_crc) != (_MAGIC, _VERSION, crc32c(head[:_CHECKED])) or count * ROW_SIZE_BYTES != rows_size:
        raise CorruptData(path, rows_size, "a trailer of version 1 with its checksum", repr(head[:16]), _REBUILT)
    rows = np.frombuffer(view[:rows_size], ROW)
    found_crc, oldest_ms = 0, NO_PLACE
    for begin in range(0, count, _CHUNK_ROWS):
        part = rows[begin : begin + _CHUNK_ROWS]
        found_crc = crc32c(view[begin * ROW_SIZE_BYTES : (begin + len(part)) * ROW_SIZE_BYTES], found_crc)
        times = part["time"][part["flags"] == TOMBSTONE]
        if len(times):
            oldest_ms = min(oldest_ms, int(times.min()))
    if found_crc != crc:
        raise CorruptData(path, 0, f"rows with the checksum {crc:#x}", f"{found_crc:#x}", _REBUILT)
    return IndexContent(rows, end, place, oldest_ms)
