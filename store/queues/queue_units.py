"""Access to the units of one queue: in its files, in the tail being written, and in the tail being filled.

Files that the writer has created are opened on use. Not here: the meaning of units (`store.queues.consume_queue`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.errors import CorruptData, DiskFull
from store.queues.unit import BLANK_SIZE, UNIT, UNIT_SIZE, Units, decode_units

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store.fs.mapped.mapped_file import MappedFile
    from store.fs.mapped.mapped_file_queue import MappedFileQueue
    from store.fs.ports import Files
    from store.model.message import QueueKey
    from store.queues.pending_units import PendingUnits, UnitTail

UnitTuple = tuple[int, int, int]


class QueueUnits:
    """The units of one queue.

    Args:
        key: the queue.
        queue: its known files.
        pending: has its tails.
        names: creates its directory, if tails must be written synchronously.

    Attributes:
        begin_offset: the queue offset at which its first file begins.
        newest: the units at the end of its files from the metadata, when the queue was loaded; None: read the files.
            Kept only while a store is opened.
    """

    __slots__ = ("_key", "_names", "_pending", "_queue", "begin_offset", "newest")

    def __init__(self, key: QueueKey, queue: MappedFileQueue, pending: PendingUnits, names: Files) -> None:
        self.begin_offset = 0
        self.newest: UnitTail | None = None
        self._key = key
        self._queue = queue
        self._pending = pending
        self._names = names

    def ranges(self, begin: int, end: int) -> Iterator[tuple[memoryview, int, int]]:
        """Yield (view, position, count) of the units `[begin, end)` of the queue; none before its files."""
        if begin < self.begin_offset:
            return
        tails = self._pending.tails_of(self._key)
        files_end = min(end, tails[0].begin_offset) if tails else end
        newest = self.newest
        if newest is not None and newest.begin_offset <= begin < files_end <= newest.end_offset:
            yield memoryview(newest.data), (begin - newest.begin_offset) * UNIT_SIZE, files_end - begin
            begin = files_end
        while begin < files_end:
            file = self._file_of(begin)
            upto = min(files_end, file.end_offset // UNIT_SIZE)
            yield file.view(), begin * UNIT_SIZE - file.begin_offset, upto - begin
            begin = upto
        for tail in tails:
            for _, units in tail.parts(begin, end):
                # A copy, because bytes with a view cannot grow.
                yield memoryview(bytes(units)), 0, len(units) // UNIT_SIZE

    def unit(self, queue_offset: int) -> UnitTuple:
        """Return one unit."""
        unit: UnitTuple
        for tail in self._pending.tails_of(self._key):
            if tail.begin_offset <= queue_offset < tail.end_offset:
                return tail.unit(queue_offset)
        newest = self.newest
        if newest is not None and newest.begin_offset <= queue_offset < newest.end_offset:
            unit = UNIT.unpack_from(newest.data, (queue_offset - newest.begin_offset) * UNIT_SIZE)
            return unit
        file = self._file_of(queue_offset)
        unit = UNIT.unpack_from(file.view(), queue_offset * UNIT_SIZE - file.begin_offset)
        return unit

    def _file_of(self, queue_offset: int) -> MappedFile:
        """Return the file of a unit that is not in a tail."""
        offset = queue_offset * UNIT_SIZE
        file = self._queue.find(offset)
        if file is None:
            self._queue.attach(self.begin_offset * UNIT_SIZE, offset + UNIT_SIZE)
            file = self._queue.find(offset)
        assert file is not None, (self._key, queue_offset)
        return file

    def write_pending(self, max_offset: int) -> None:
        """Write all pending units to files now, for rare operations that need them there.

        Args:
            max_offset: the end of the queue.

        Raises:
            store.errors.DiskFull: the queue has the same units as before.
        """
        begin = self.begin_offset * UNIT_SIZE
        tails = self._pending.tails_of(self._key)
        if tails:
            self._names.make_directory(self._queue.directory)
            tails = self._pending.take(self._key)
            self._queue.attach(begin, tails[-1].end_offset * UNIT_SIZE + 1)
            try:
                for tail in tails:
                    self._write_tail(tail)
            except DiskFull:
                self._pending.begin(self._key, tails[0].begin_offset, tails[0].blank_count)
                for tail in tails:
                    self._pending.add(self._key, tail.data_offset, memoryview(tail.data))
                raise
        else:
            self._queue.attach(begin, max_offset * UNIT_SIZE + 1)

    def _units_of(self, file: MappedFile) -> Units:
        """Return all units of a file up to the last non-zero one, without tails."""
        newest = self.newest
        if newest is not None and newest.begin_offset * UNIT_SIZE == file.begin_offset:
            return decode_units(memoryview(newest.data), 0, len(newest.data) // UNIT_SIZE)
        data_size = file.find_data_end(file.begin_offset) - file.begin_offset
        return decode_units(file.view(), 0, -(-data_size // UNIT_SIZE))

    def sound_end(self, physical_offset: int) -> int:
        """Return the queue offset after the plausible units that point below `physical_offset`, without tails."""
        files = self._queue.mapped_files
        for file in reversed(files):
            begin = file.begin_offset // UNIT_SIZE
            first, size, _ = self.unit(begin)
            is_below = file is files[0] or (0 <= first < physical_offset and 0 < size < BLANK_SIZE)
            if is_below or size == BLANK_SIZE:
                units = self._units_of(file)
                is_above = units.physical_offsets >= physical_offset
                end = min(int(is_above.argmax()) if is_above.any() else len(is_above), units.sound_count())
                # A file may begin with blanks: it counts if it has a message that begins below.
                if is_below or not units.is_blank[:end].all():
                    return begin + end
        return self.begin_offset

    def data_end(self, file: MappedFile, offset: int) -> int:
        """Return the end of a file's data, at least `offset`, without tails; in bytes from the queue's origin."""
        newest = self.newest
        if newest is not None and newest.begin_offset * UNIT_SIZE == file.begin_offset:
            return max(offset, file.begin_offset + len(newest.data.rstrip(b"\0")))
        return file.find_data_end(offset)

    def pending_bytes(self) -> int:
        """Return the number of unwritten bytes of this queue."""
        return sum(len(tail.data) for tail in self._pending.tails_of(self._key))

    def _write_tail(self, tail: UnitTail) -> None:
        self.newest = None
        offset = tail.begin_offset * UNIT_SIZE
        # Space for all of it first, and a file even for a tail without units.
        self._queue.reserve(offset, max(tail.end_offset * UNIT_SIZE, offset + UNIT_SIZE))
        for queue_offset, units in tail.parts(tail.begin_offset, tail.end_offset):
            self._write(queue_offset, units)

    def _write(self, queue_offset: int, units: memoryview) -> None:
        queue, offset = self._queue, queue_offset * UNIT_SIZE
        size = len(units)
        space = queue.file_size - offset % queue.file_size
        if size <= space:
            queue.write(offset, units)
            return
        done = 0
        while done < size:
            part = units[done : done + queue.file_size - (offset + done) % queue.file_size]
            queue.write(offset + done, part)
            done += len(part)


def check_full(files: Sequence[MappedFile]) -> None:
    """Refuse incomplete files before one with units: a disk or a program has emptied them.

    Raises:
        CorruptData: one has no unit at its start or at its end.
    """
    for file in files:
        for position in (0, file.file.size - UNIT_SIZE):
            if UNIT.unpack_from(file.view(), position)[1] <= 0:
                raise CorruptData(file.path, position, "a unit, for a later file has some", "none")


def used_count(file: MappedFile) -> int:
    """Return the number of units in a file, which is zero after the last one."""
    view = file.view()
    # Holes are skipped: reading them dominates the cost, and a queue's file is mostly holes.
    ranges = file.file.data_ranges(0)
    low, high = 0, -(-ranges[-1][1] // UNIT_SIZE) if ranges else 0
    high = min(high, file.file.size // UNIT_SIZE)
    while low < high:
        middle = (low + high) // 2
        if UNIT.unpack_from(view, middle * UNIT_SIZE)[1] > 0:
            low = middle + 1
        else:
            high = middle
    return low
