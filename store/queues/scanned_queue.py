"""Determines the state of a queue from its files' metadata, without opening them, if they have the usual form.

Usual are files of correct sizes and names without a gap, whose data is contiguous, full except for the last one, with a
message as first and as last unit. For others `scanned_queue` returns None, and `ConsumeQueue.load` opens, refuses or
repairs them; the results of both are equal.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from store.fs.mapped.mapped_file_queue import name_of
from store.fs.ports import SUMMARY_SIZE_BYTES, FileSummary
from store.queues.unit import BLANK_SIZE, UNIT, UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Sequence

_SIZE_AT: Final = 8
_SIZE: Final = struct.Struct(">i")
_ZEROS: Final = bytes(SUMMARY_SIZE_BYTES + UNIT_SIZE)


class ScannedQueue(NamedTuple):
    """The state of a queue, from the metadata of its files.

    Attributes:
        begin_offset: the queue offset at which its first file begins.
        max_offset: after its last unit.
        max_physical_offset: after the message of its last unit; 0: there is none.
        first_place: offset in the log of the message of its first unit; -1: there is none.
        newest_begin: the queue offset at which `newest` begins.
        newest: the units at the end of its last file; empty if it has none.
        is_newest_whole: they are all units of that file.
    """

    begin_offset: int = 0
    max_offset: int = 0
    max_physical_offset: int = 0
    first_place: int = -1
    newest_begin: int = 0
    newest: bytes = b""
    is_newest_whole: bool = False


_NO_FILES: Final = ScannedQueue()


def scanned_queue(files: Sequence[FileSummary], file_size: int) -> ScannedQueue | None:
    """Return the queue that the metadata of its files shows; None if the files must be opened.

    Args:
        files: all files of its directory, in the order of their names.
        file_size: bytes that each must have.
    """
    if not files:
        return _NO_FILES
    begin = _begin(files, file_size)
    if begin is None or not all(_is_begun(file) and _is_full(file) for file in files[:-1]):
        return None
    last = files[-1]
    if not last.ranges:
        return ScannedQueue(begin // UNIT_SIZE, begin // UNIT_SIZE) if len(files) == 1 else None
    data_end = last.ranges[-1][1]
    position = -(-max(data_end - SUMMARY_SIZE_BYTES, 0) // UNIT_SIZE) * UNIT_SIZE
    newest, used_count = _used(last.tail[len(last.tail) - (data_end - position) :], min(data_end, last.size) - position)
    if not used_count or not _is_begun(last):
        return None
    first_place, first_size, _ = UNIT.unpack_from(files[0].head)
    place, size, _ = UNIT.unpack_from(newest, (used_count - 1) * UNIT_SIZE)
    if BLANK_SIZE in (first_size, size):
        return None
    newest_begin = (begin + (len(files) - 1) * file_size + position) // UNIT_SIZE
    end = newest_begin + used_count
    return ScannedQueue(begin // UNIT_SIZE, end, place + size, first_place, newest_begin, newest, position == 0)


def _begin(files: Sequence[FileSummary], file_size: int) -> int | None:
    """Return the start of the first file; None unless names and sizes are right, and each file's data has no gap."""
    begin = int(files[0].name) if files[0].name.isdecimal() else -1
    if begin % file_size:
        return None
    at = begin
    for name, size, ranges, _, _ in files:
        if size != file_size or name != name_of(at) or len(ranges) > 1 or (ranges and ranges[0][0]):
            return None
        at += file_size
    return begin


def _is_begun(file: FileSummary) -> bool:
    """Return whether the first place of a file has a unit."""
    return len(file.head) >= UNIT_SIZE and _size_of(file.head, 0) > 0


def _is_full(file: FileSummary) -> bool:
    """Return whether the last place of a file has a unit."""
    if not file.ranges or file.ranges[-1][1] != file.size or len(file.tail) < UNIT_SIZE:
        return False
    return _size_of(file.tail, len(file.tail) - UNIT_SIZE) > 0


def _used(data: bytes, size: int) -> tuple[bytes, int]:
    """Return the units at the end of a file up to the last one that is not zero, and how many from the first are used.

    Args:
        data: from the start of a unit to the end of what is not a hole.
        size: bytes from there to the last place that may have a unit.
    """
    count = -(-len(data) // UNIT_SIZE)
    data = data.ljust(count * UNIT_SIZE, b"\0")
    # Like the search of `store.queues.queue_units.used_count`, so that both have the same result for any file.
    low, high = 0, -(-size // UNIT_SIZE)
    while low < high:
        middle = (low + high) // 2
        if middle < count and _size_of(data, middle * UNIT_SIZE) > 0:
            low = middle + 1
        else:
            high = middle
    used = data[: low * UNIT_SIZE]
    if data[len(used) :] != _ZEROS[: len(data) - len(used)]:
        used = data.rstrip(b"\0")
        used = used.ljust(-(-len(used) // UNIT_SIZE) * UNIT_SIZE, b"\0")
    return used, low


def _size_of(units: bytes, position: int) -> int:
    """Return the size field of the unit at a position."""
    size: int = _SIZE.unpack_from(units, position + _SIZE_AT)[0]
    return size
