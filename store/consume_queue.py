"""One consume queue: for each message of a queue, in order, where it stands in the log.

The unit of queue offset n stands at byte 20 * n of the queue's files; the newest ones may not be in files yet
(`store.pending_units`). The queue is a function of the log: whatever a
crash leaves of it is cut to what is certain, and dispatched again. Behind the last unit all bytes are zero.

Not here: many queues (`store.consume_queues`), and what is done with a message whose queue offset is not the next one
(`store.unit_placement`).

Source: RocketMQ `ConsumeQueue`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

import numpy as np

from store.files import Files
from store.mapped_file_queue import MappedFileQueue, name_of
from store.message import QueueKey
from store.pending_units import PendingUnits
from store.queue_unit import BLANK, BLANK_SIZE, UNIT, UNIT_SIZE, Units, decode_units
from store.unit_parts import UnitParts, check_full, used_count

IsMessage = Callable[[QueueKey, int, int, int], bool]
StoreTimestampOf = Callable[[int, int], int]
UnitTuple = tuple[int, int, int]

# What stands ready in memory of one queue's blanks; more of them go into files at once.
_BLANKS_PENDING_BYTES_MAX = 1 << 20
# Blanks written at once; also bounds what is read at once when blanks are stepped over.
_CHUNK_COUNT = 1 << 14


class Boundary(Enum):
    """Which message a time stands for (RocketMQ `BoundaryType`)."""

    LOWER = "lower"  # the first message stored at that time or later
    UPPER = "upper"  # the last message stored at that time or earlier


class ConsumeQueue:
    """One queue of one topic. Construct it with its files, then `load` it.

    Args:
        key: topic and number.
        queue: its files.
        pending: takes what is appended.
        names: makes its directory, where the queue itself must write.

    Attributes:
        key: topic and number.
        is_begun: it has files, or will have.
        min_offset: the first message that the log still holds; `max_offset` when there is none.
        max_offset: behind the last unit.
        max_physical_offset: behind the last message that has a unit; 0 when there is none.
    """

    __slots__ = (
        "_parts",
        "_pending",
        "_queue",
        "is_begun",
        "key",
        "max_offset",
        "max_physical_offset",
        "min_offset",
    )

    def __init__(self, key: QueueKey, queue: MappedFileQueue, pending: PendingUnits, names: Files) -> None:
        assert queue.file_size % UNIT_SIZE == 0, queue.file_size
        self.key = key
        self.is_begun = False
        self.min_offset = 0
        self.max_offset = 0
        self.max_physical_offset = 0
        self._queue = queue
        self._pending = pending
        self._parts = UnitParts(key, queue, pending, names)

    @property
    def files(self) -> MappedFileQueue:
        """The files."""
        return self._queue

    @property
    def begin_offset(self) -> int:
        """The first offset that the files have room for; what stands before `min_offset` is not in the log any more."""
        return self._parts.begin_offset

    # ----------------------------------------------------------------------------------------------------- loading

    def load(self) -> list[str]:
        """Open the files and find the first and the last unit, as a queue that was closed in order has them.

        After a crash `truncate` must follow, which looks at every unit that may be wrong.

        Returns:
            What was repaired, one sentence each.

        Raises:
            store.errors.ForeignFile, WrongFileSize, MissingFile: see `MappedFileQueue.load`.
            store.errors.CorruptData: units are missing in the middle; a queue can be built again from the log.
        """
        notes = self._queue.load()
        self.is_begun = bool(self._queue.mapped_files)
        self.max_offset = self._parts.begin_offset = self._queue.begin_offset // UNIT_SIZE
        files = self._queue.mapped_files
        for number, file in reversed(list(enumerate(files))):
            count = used_count(file)
            if count:
                self.max_offset = file.begin_offset // UNIT_SIZE + count
                check_full(files[:number])
                break
        self._find_last()
        self.min_offset = self._next_message(self.begin_offset)
        return notes

    def _find_last(self) -> None:
        last = self._message_before(self.max_offset)
        self.max_physical_offset = 0
        if last is not None:
            physical_offset, size, _ = self._parts.unit(last)
            self.max_physical_offset = physical_offset + size

    # ----------------------------------------------------------------------------------------------------- reading

    def units(self, begin: int, count_max: int) -> Units:
        """Return the units from `begin` on as columns, blanks included; fewer at the queue's end, none outside of it.

        They are copies: they stay right whatever becomes of the queue.
        """
        parts = [decode_units(view, position, count) for view, position, count in self._ranges(begin, count_max)]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return Units(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))
        return Units(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def unit_tuples(self, begin: int, count_max: int) -> list[UnitTuple]:
        """Return the units from `begin` on as (physical offset, size, tags code); the cheap way for a few of them.

        Blanks are included: their size is `BLANK_SIZE`.
        """
        found: list[UnitTuple] = []
        for view, position, count in self._ranges(begin, count_max):
            found += UNIT.iter_unpack(view[position : position + count * UNIT_SIZE])
        return found

    def unit_bytes(self, begin: int, count_max: int) -> bytes:
        """Return the units from `begin` on as they stand in the files."""
        ranges = self._ranges(begin, count_max)
        return b"".join(view[position : position + count * UNIT_SIZE] for view, position, count in ranges)

    def place_of(self, queue_offset: int) -> tuple[str, int]:
        """Return file and position of a unit, for people."""
        offset = queue_offset * UNIT_SIZE
        position = offset % self._queue.file_size
        return f"{self._queue.directory}/{name_of(offset - position)}", position

    def _ranges(self, begin: int, count_max: int) -> Iterator[tuple[memoryview, int, int]]:
        return self._parts.ranges(begin, min(begin + count_max, self.max_offset))

    def _next_message(self, queue_offset: int) -> int:
        """Return the first offset from `queue_offset` on that is not blank; `max_offset` if there is none."""
        while queue_offset < self.max_offset and self._parts.unit(queue_offset)[1] == BLANK_SIZE:
            is_blank = self.units(queue_offset, _CHUNK_COUNT).is_blank
            if not is_blank.all():
                return queue_offset + int(is_blank.argmin())
            queue_offset += len(is_blank)
        return queue_offset

    def _message_before(self, queue_offset: int) -> int | None:
        """Return the last offset before `queue_offset` that is not blank."""
        while queue_offset > self.begin_offset:
            if self._parts.unit(queue_offset - 1)[1] != BLANK_SIZE:
                return queue_offset - 1
            begin = max(self.begin_offset, queue_offset - _CHUNK_COUNT)
            real = np.flatnonzero(~self.units(begin, queue_offset - begin).is_blank)
            if len(real):
                return begin + int(real[-1])
            queue_offset = begin
        return None

    # -------------------------------------------------------------------------------------------------- appending

    def append(self, units: bytes | memoryview, max_physical_offset: int) -> None:
        """Put units behind the last one; files are to hold them later.

        Args:
            units: at least one.
            max_physical_offset: behind the last message among them.
        """
        self.is_begun = True
        self._pending.add(self.key, self.max_offset, units)
        self.max_offset += len(units) // UNIT_SIZE
        self.max_physical_offset = max_physical_offset

    def begin_at(self, queue_offset: int) -> None:
        """Let a queue without files begin at `queue_offset`: the room before it in the file becomes blank.

        Raises:
            store.errors.DiskFull: as `append`.
        """
        assert not self.is_begun, self.key
        self.is_begun = True
        units_a_file = self._queue.file_size // UNIT_SIZE
        self._parts.begin_offset = self.max_offset = self.min_offset = queue_offset - queue_offset % units_a_file
        # Also where nothing becomes blank there is to be a file: it says how far the queue has come.
        self._pending.add(self.key, self.max_offset, b"")
        self.fill_gap(queue_offset)

    def fill_gap(self, queue_offset: int) -> None:
        """Make blank what lies between the last unit and `queue_offset`."""
        if self.min_offset == self.max_offset:
            self.min_offset = queue_offset
        while self.max_offset < queue_offset:
            count = min(_CHUNK_COUNT, queue_offset - self.max_offset)
            tail_bytes = self._pending.add(self.key, self.max_offset, BLANK * count)
            self.max_offset += count
            if tail_bytes >= _BLANKS_PENDING_BYTES_MAX:
                self._parts.settle(self.max_offset)

    def overwrite(self, queue_offset: int, unit: bytes) -> None:
        """Put another unit in the place of one that is wrong."""
        assert self.begin_offset <= queue_offset < self.max_offset, (queue_offset, self.max_offset)
        self._parts.settle(self.max_offset)
        self._queue.write(queue_offset * UNIT_SIZE, unit)
        self._find_last()

    # ---------------------------------------------------------------------------------------------------- cutting

    def cut(self, queue_offset: int, *, is_durable: bool = True) -> None:
        """Give up, durably, the units from `queue_offset` on.

        A queue that began at 0 and is left without units is left without files, too; any other one keeps its first
        file, which says how far the queue had come.

        Args:
            queue_offset: of the first unit to give up.
            is_durable: False: the caller syncs what `files` then says is dirty.
        """
        assert queue_offset >= self.begin_offset, (queue_offset, self.begin_offset)
        if queue_offset == 0:
            self.remove_all()
            return
        self._parts.settle(self.max_offset)
        holder = self._queue.find(queue_offset * UNIT_SIZE)
        data_end = 0 if holder is None else holder.find_data_end(queue_offset * UNIT_SIZE)
        self._queue.truncate(queue_offset * UNIT_SIZE, data_end, is_durable=is_durable)
        if holder is not None and not is_durable:
            # Also where nothing was left to overwrite: zeros that a process before has written may not be durable.
            self._queue.mark_dirty(holder)
        self.max_offset = queue_offset
        self.min_offset = min(self.min_offset, queue_offset)
        self._find_last()

    def remove_all(self) -> None:
        """Remove all files; the queue is then as new."""
        self._pending.drop(self.key, self._queue.directory)
        self._queue.attach(self.begin_offset * UNIT_SIZE, (self.max_offset + 1) * UNIT_SIZE)
        self._queue.remove_all()
        self.is_begun = False
        self._parts.begin_offset = self.min_offset = self.max_offset = self.max_physical_offset = 0

    def truncate(self, physical_offset: int, is_message: IsMessage | None = None, *, is_durable: bool = True) -> None:
        """Keep, for certain, the units of messages that begin below `physical_offset`; everything else becomes zero.

        It asks only that the units of messages below `physical_offset` are all there; behind them may stand whatever a
        crash made of what was not synced.

        Args:
            physical_offset: where dispatching will go on.
            is_message: called with (queue, queue offset, physical offset, size): whether that message stands there.
                The last unit that is kept may be the torn half of a lost one; without this it goes unseen.
            is_durable: see `cut`.
        """
        self._parts.settle(self.max_offset)
        if not self._queue.mapped_files:
            return
        end = self._sound_end(physical_offset)
        self.max_offset = end
        last = self._message_before(end)
        if is_message is not None and last is not None and not is_message(self.key, last, *self._parts.unit(last)[:2]):
            last = self._message_before(last)
        # Blanks behind the last message belong to one that is given up; those before the first one stay, for they say
        # how far the queue had come.
        self.cut(end if last is None else last + 1, is_durable=is_durable)

    def is_last_unit(self, is_message: IsMessage) -> bool:
        """Return whether the log has the message of the last unit (`truncate` says how it is asked)."""
        last = self._message_before(self.max_offset)
        return last is None or is_message(self.key, last, *self._parts.unit(last)[:2])

    def _sound_end(self, physical_offset: int) -> int:
        """Return the offset behind the units that are sound and point below `physical_offset`."""
        files = self._queue.mapped_files
        for file in reversed(files):
            begin = file.begin_offset // UNIT_SIZE
            first, size, _ = UNIT.unpack_from(file.view(), 0)
            if file is files[0] or (0 <= first < physical_offset and 0 < size < BLANK_SIZE):
                data_end = file.find_data_end(file.begin_offset)
                units = decode_units(file.view(), 0, -(-(data_end - file.begin_offset) // UNIT_SIZE))
                is_above = units.physical_offsets >= physical_offset
                below = int(is_above.argmax()) if is_above.any() else len(is_above)
                return begin + min(below, units.sound_count())
        return self.begin_offset

    def expire(self, log_begin: int) -> None:
        """Delete files of which no message is in the log any more, and set `min_offset` to the first that is.

        The last file stays, so that `max_offset` is not forgotten.
        """
        if (self.max_offset - self.begin_offset) * UNIT_SIZE > self._queue.file_size:
            tails = self._pending.tails_of(self.key)
            files_end = tails[0].begin_offset if tails else self.max_offset
            self._queue.attach(self.begin_offset * UNIT_SIZE, files_end * UNIT_SIZE)
        files = self._queue.mapped_files
        expired_end = self.begin_offset * UNIT_SIZE
        for file in files[:-1]:
            last = self._message_before(file.end_offset // UNIT_SIZE)
            if last is not None and self._parts.unit(last)[0] >= log_begin:
                break
            expired_end = file.end_offset
        # All at once: `_message_before` must not look behind a file that is gone.
        self._queue.remove_before(expired_end)
        if expired_end > self.begin_offset * UNIT_SIZE:
            self._parts.begin_offset = expired_end // UNIT_SIZE
        self.min_offset = self.first_offset_from(log_begin)

    def first_offset_from(self, log_begin: int) -> int:
        """Return the first offset whose message begins at or behind `log_begin`, blanks aside."""
        return self._search(lambda physical_offset, _: physical_offset >= log_begin, self.begin_offset)

    def _search(self, is_behind: Callable[[int, int], bool], begin: int) -> int:
        """Return the first offset from `begin` on whose (physical offset, size) `is_behind`; `max_offset` if none.

        `is_behind` must be false up to some message and true from there on. A blank counts as the message behind it.
        """
        low, high = self._next_message(begin), self.max_offset
        while low < high:
            middle = (low + high) // 2
            at = self._next_message(middle)
            if at >= high or is_behind(*self._parts.unit(at)[:2]):
                high = middle
            else:
                low = at + 1
        return self._next_message(low)

    # ------------------------------------------------------------------------------------------------------ times

    def offset_by_time(self, timestamp: int, boundary: Boundary, store_timestamp_of: StoreTimestampOf) -> int:
        """Return the queue offset that a time stands for.

        Args:
            timestamp: milliseconds since 1970.
            boundary: LOWER: the first message that is not older, `max_offset` if all are older. UPPER: the last one
                that is not newer, `min_offset` if all are newer.
            store_timestamp_of: called with (physical offset, size) of a message.

        Source: RocketMQ `ConsumeQueue.getOffsetInQueueByTime`.
        """
        if boundary is Boundary.LOWER:
            return self._search(lambda *place: store_timestamp_of(*place) >= timestamp, self.min_offset)
        newer = self._search(lambda *place: store_timestamp_of(*place) > timestamp, self.min_offset)
        older = self._message_before(newer)
        return self.min_offset if older is None else max(older, self.min_offset)
