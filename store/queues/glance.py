"""What one look at the files of a queue shows, if all of it is ordinary: then nothing of it must be opened or searched.

Ordinary are files of the right sizes and names without a gap, whose data is in one piece, full but for the last one,
with a message as first and as last unit. Of anything else `seen_queue` says nothing, and `ConsumeQueue.load` looks
closely, refuses or repairs; both come to the same result where both have one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from store.fs.mapped_file_queue import name_of
from store.fs.ports import GLANCE_SIZE_BYTES, FileGlance
from store.queues.pending_units import UnitTail
from store.queues.unit import BLANK_SIZE, UNIT, UNIT_SIZE


class SeenQueue(NamedTuple):
    """A queue as its files show it.

    Attributes:
        begin_offset: the queue offset at which its first file begins.
        max_offset: after its last unit.
        first_place: where the message of its first unit begins in the log; -1: there is none.
        newest: the units at the end of its last file, if it has any.
        is_newest_whole: they are all of that file.
    """

    begin_offset: int = 0
    max_offset: int = 0
    first_place: int = -1
    newest: UnitTail | None = None
    is_newest_whole: bool = False


def seen_queue(files: Sequence[FileGlance], file_size: int) -> SeenQueue | None:
    """Return what the files of one queue show; None: they must be looked at more closely.

    Args:
        files: all files of its directory, in the order of their names.
        file_size: bytes that each must have.
    """
    if not files:
        return SeenQueue()
    if not _are_in_order(files, file_size):
        return None
    begin = int(files[0].name)
    last = files[-1]
    if not last.ranges:
        return SeenQueue(begin // UNIT_SIZE, begin // UNIT_SIZE) if len(files) == 1 else None
    if any(_size_of(file.head, 0) <= 0 for file in files) or any(not _is_full(file) for file in files[:-1]):
        return None
    newest, is_whole = _newest(last)
    places = range(
        -(-min(last.ranges[-1][1], last.size) // UNIT_SIZE) + int(last.name) // UNIT_SIZE - newest.begin_offset
    )
    used_count = bisect_left(places, 1, key=lambda at: _size_of(newest.data, at) <= 0)
    first_place, first_size, _ = UNIT.unpack_from(files[0].head)
    if not used_count or BLANK_SIZE in (first_size, _size_of(newest.data, used_count - 1)):
        return None
    return SeenQueue(begin // UNIT_SIZE, newest.begin_offset + used_count, first_place, newest, is_whole)


def _are_in_order(files: Sequence[FileGlance], file_size: int) -> bool:
    """Return whether names and sizes are right, and the data of each file is in one piece."""
    if not files[0].name.isdecimal() or int(files[0].name) % file_size:
        return False
    begin = int(files[0].name)
    return all(
        file.name == name_of(begin + number * file_size)
        and file.size == file_size
        and len(file.ranges) <= 1
        and all(first == 0 for first, _ in file.ranges)
        for number, file in enumerate(files)
    )


def _is_full(file: FileGlance) -> bool:
    """Return whether the last place of a file has a unit."""
    return bool(file.ranges) and file.ranges[-1][1] == file.size and _size_of(file.tail[-UNIT_SIZE:], 0) > 0


def _newest(file: FileGlance) -> tuple[UnitTail, bool]:
    """Return the units at the end of a file with data, and whether they are all of it."""
    data_end = file.ranges[-1][1]
    position = -(-max(data_end - GLANCE_SIZE_BYTES, 0) // UNIT_SIZE) * UNIT_SIZE
    newest = UnitTail((int(file.name) + position) // UNIT_SIZE)
    data = file.tail[len(file.tail) - (data_end - position) :].rstrip(b"\0")
    newest.data += data.ljust(-(-len(data) // UNIT_SIZE) * UNIT_SIZE, b"\0")
    return newest, position == 0


def _size_of(units: bytes | bytearray, number: int) -> int:
    """Return the size that a unit names; 0 where there is none."""
    if len(units) < (number + 1) * UNIT_SIZE:
        return 0
    size: int = UNIT.unpack_from(units, number * UNIT_SIZE)[1]
    return size
