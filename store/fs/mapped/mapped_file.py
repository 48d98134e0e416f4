"""One file of a mapped-file queue: its begin offset, and whether it needs a sync.

Offsets are bytes from the queue's origin; only this class translates them into positions within the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.fs.ports import File

# Preallocation of a sparse file: as many bytes as it already uses, so that calls are few, and small files use little
# disk space.
_ALLOCATE_AHEAD_MIN_BYTES = 4 << 10
_ALLOCATE_AHEAD_MAX_BYTES = 4 << 20
_CHUNK_SIZE_BYTES = 64 << 10


class MappedFile:
    """A file whose bytes are the queue's bytes `[begin_offset, end_offset)`.

    Attributes:
        file: the open file.
        begin_offset: the queue offset of the first byte; also the file's name.
        end_offset: the queue offset after the last byte.
        allocated_end: the range before this offset is known to have blocks; initially nothing is known of an existing
            file (Java's are sparse).
        is_dirty: it was written since it was last returned for a sync.

    Source: RocketMQ and DLedger `DefaultMmapFile` (`fileFromOffset`).
    """

    __slots__ = ("allocated_end", "begin_offset", "end_offset", "file", "is_dirty")

    def __init__(self, file: File, begin_offset: int, *, is_allocated: bool) -> None:
        self.file = file
        self.begin_offset = begin_offset
        self.end_offset = begin_offset + file.size
        self.is_dirty = False
        self.allocated_end = self.end_offset if is_allocated else begin_offset

    @property
    def path(self) -> str:
        """The path of the file."""
        return self.file.path

    def view(self) -> memoryview:
        """Return the whole file, read-only and live."""
        return self.file.view()

    def allocate(self, begin: int, end: int) -> None:
        """Ensure that the offsets `[begin, end)` have disk blocks.

        Raises:
            store.errors.DiskFull: nothing was changed.
        """
        if end <= self.allocated_end:
            return
        ahead_end = self.begin_offset + allocated_with(end - self.begin_offset, self.file.size)
        self.file.allocate(begin - self.begin_offset, ahead_end - begin)
        self.allocated_end = ahead_end

    def find_data(self, offset: int) -> int:
        """Return the offset of the first non-zero byte at or after `offset`; `end_offset` if there is none."""
        for position, chunk in self._chunks(offset):
            data = chunk.lstrip(b"\0")
            if data:
                return self.begin_offset + position + len(chunk) - len(data)
        return self.end_offset

    def find_data_end(self, offset: int) -> int:
        """Return the offset after the last non-zero byte at or after `offset`; `offset` if there is none."""
        data_end = offset
        for position, chunk in self._chunks(offset):
            data = chunk.rstrip(b"\0")
            if data:
                data_end = self.begin_offset + position + len(data)
        return data_end

    def _chunks(self, offset: int) -> Iterator[tuple[int, bytes]]:
        """Yield the ranges that may contain data after `offset`, as (position, bytes) of bounded size."""
        view = self.file.view()
        for begin, end in self.file.data_ranges(offset - self.begin_offset):
            for position in range(begin, end, _CHUNK_SIZE_BYTES):
                yield position, bytes(view[position : min(position + _CHUNK_SIZE_BYTES, end)])


def allocated_with(end: int, file_size: int) -> int:
    """Return the position in a file up to which blocks are allocated for a write that ends at `end`."""
    ahead = min(max(end, _ALLOCATE_AHEAD_MIN_BYTES), _ALLOCATE_AHEAD_MAX_BYTES)
    return min(end + ahead, file_size)
