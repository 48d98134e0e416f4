"""One consume queue: the offsets in the log of the messages of a queue, in order.

The unit of queue offset n is at byte 20 * n of the queue's files; the newest units may not be in files yet
(`store.queues.pending_units`). The queue is derived from the log: after a crash it is truncated to its certain part,
and the rest is dispatched again. Zeros follow the last unit.

Not here: many queues (`store.queues.consume_queues`), and the rules for out-of-order messages
(`store.queues.out_of_order_units`).

Source: RocketMQ `ConsumeQueue`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from store.fs.mapped.mapped_file_queue import MappedFileQueue, name_of
from store.model.message import QueueKey
from store.queues.pending_units import PendingUnits, UnitTail
from store.queues.queue_units import QueueUnits, check_full, used_count
from store.queues.unit import BLANK, BLANK_SIZE, UNIT, UNIT_SIZE, Units, decode_units

if TYPE_CHECKING:
    from store.fs.ports import File, Files
    from store.queues.scanned_queue import ScannedQueue

IsMessage = Callable[[QueueKey, int, int, int], bool]
UnitTuple = tuple[int, int, int]

# Blanks of one queue that are kept in memory; more are written to files at once.
_BLANKS_PENDING_BYTES_MAX = 1 << 20
# Blanks written together; also bounds the units that are read together when blanks are skipped.
_CHUNK_COUNT = 1 << 14
_PAGE_SIZE_BYTES = 4096


class ConsumeQueue:
    """One queue of one topic. Construct it with its files, then `load` it.

    Args:
        key: topic and number.
        queue: its files.
        pending: receives the appended units.
        names: creates its directory, if the queue itself must write.

    Attributes:
        key: topic and number.
        is_begun: it has files, or will have. A queue without files may still end above 0: see `begin_later`.
        min_offset: the first message that is retained in the log; `max_offset` if there is none.
        max_offset: after the last unit.
        max_physical_offset: after the last message that has a unit; 0 when there is none.
    """

    __slots__ = (
        "_first_place",
        "_pending",
        "_queue",
        "_units",
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
        # `begin_offset <= min_offset <= max_offset`. While a full disk leaves a gap unfilled, `min_offset` is above
        # `max_offset`.
        self.min_offset = 0
        self.max_offset = 0
        # Physical offsets of messages ascend along the queue: `search` and `sound_end` rely on it.
        self.max_physical_offset = 0
        # The offset in the log of the message of `min_offset`; -1: unknown.
        self._first_place = -1
        self._queue = queue
        self._pending = pending
        self._units = QueueUnits(key, queue, pending, names)

    @property
    def files(self) -> MappedFileQueue:
        """The files."""
        return self._queue

    @property
    def begin_offset(self) -> int:
        """The first offset in the files; messages before `min_offset` are no longer in the log."""
        return self._units.begin_offset

    # ----------------------------------------------------------------------------------------------------- loading

    def load(self) -> list[str]:
        """Open the files of a cleanly closed queue and find the first and the last unit.

        After a crash `truncate` must follow, which checks all units that may be wrong.

        Returns:
            One sentence for each repair.

        Raises:
            store.errors.ForeignFile, WrongFileSize, MissingFile: see `MappedFileQueue.load`.
            store.errors.CorruptData: units are missing in the middle; a queue can be rebuilt from the log.
        """
        notes = self._queue.load()
        self.is_begun = bool(self._queue.mapped_files)
        self.max_offset = self._units.begin_offset = self._queue.begin_offset // UNIT_SIZE
        files = self._queue.mapped_files
        for number, file in reversed(list(enumerate(files))):
            count = used_count(file)
            if count:
                self.max_offset = file.begin_offset // UNIT_SIZE + count
                check_full(files[:number])
                break
        self._find_last()
        self.min_offset = self._next_message(self.begin_offset)
        self._queue.remove_cut_short()
        return notes

    def load_scanned(self, files: Sequence[File], seen: ScannedQueue, *, is_kept: bool) -> None:
        """Use files that are valid according to their metadata; the result is that of `load`.

        Args:
            files: in order.
            seen: the state of the queue from the metadata.
            is_kept: keep the metadata for a following `truncate`.
        """
        self._queue.use_files(files)
        self.is_begun = bool(files)
        self._units.begin_offset = self.min_offset = seen.begin_offset
        self.max_offset = seen.max_offset
        self.max_physical_offset = seen.max_physical_offset
        self._first_place = seen.first_place
        if is_kept and seen.is_newest_whole:
            self._units.newest = newest = UnitTail(seen.newest_begin)
            newest.data += seen.newest

    def _find_last(self) -> None:
        last = self.message_before(self.max_offset)
        self.max_physical_offset = 0
        if last is not None:
            physical_offset, size, _ = self._units.unit(last)
            self.max_physical_offset = physical_offset + size

    # ----------------------------------------------------------------------------------------------------- reading

    def units(self, begin: int, count_max: int) -> Units:
        """Return the units from `begin` on as columns, blanks included; fewer at the queue's end, none beyond it.

        They are copies and stay valid when the queue changes.
        """
        parts = [decode_units(view, position, count) for view, position, count in self._ranges(begin, count_max)]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return Units(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))
        return Units(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def unit_tuples(self, begin: int, count_max: int) -> list[UnitTuple]:
        """Return the units from `begin` on as (physical offset, size, tags code); faster than `units` for a few units.

        Blanks are included: their size is `BLANK_SIZE`.
        """
        found: list[UnitTuple] = []
        for view, position, count in self._ranges(begin, count_max):
            found += UNIT.iter_unpack(view[position : position + count * UNIT_SIZE])
        return found

    def unit_bytes(self, begin: int, count_max: int) -> bytes:
        """Return the units from `begin` on as they are stored in the files."""
        ranges = self._ranges(begin, count_max)
        return b"".join(view[position : position + count * UNIT_SIZE] for view, position, count in ranges)

    def place_of(self, queue_offset: int) -> tuple[str, int]:
        """Return file and position of a unit, for messages."""
        offset = queue_offset * UNIT_SIZE
        position = offset % self._queue.file_size
        return f"{self._queue.directory}/{name_of(offset - position)}", position

    def _ranges(self, begin: int, count_max: int) -> Iterator[tuple[memoryview, int, int]]:
        return self._units.ranges(begin, min(begin + count_max, self.max_offset))

    def _next_message(self, queue_offset: int) -> int:
        """Return the first offset from `queue_offset` on that is not blank; `max_offset` if there is none."""
        while queue_offset < self.max_offset and self._units.unit(queue_offset)[1] == BLANK_SIZE:
            is_blank = self.units(queue_offset, _CHUNK_COUNT).is_blank
            if not is_blank.all():
                return queue_offset + int(is_blank.argmin())
            queue_offset += len(is_blank)
        return queue_offset

    def message_before(self, queue_offset: int) -> int | None:
        """Return the last offset before `queue_offset` that is not blank."""
        while queue_offset > self.begin_offset:
            if self._units.unit(queue_offset - 1)[1] != BLANK_SIZE:
                return queue_offset - 1
            begin = max(self.begin_offset, queue_offset - _CHUNK_COUNT)
            real = np.flatnonzero(~self.units(begin, queue_offset - begin).is_blank)
            if len(real):
                return begin + int(real[-1])
            queue_offset = begin
        return None

    # -------------------------------------------------------------------------------------------------- appending

    def append(self, units: bytes | memoryview, max_physical_offset: int) -> None:
        """Add units after the last one; they are written to files later.

        Args:
            units: at least one.
            max_physical_offset: after the last message among them.
        """
        if self.max_offset and not self.is_begun:
            self.begin_at(self.max_offset)
        self.is_begun = True
        self._pending.add(self.key, self.max_offset, units)
        self.max_offset += len(units) // UNIT_SIZE
        self.max_physical_offset = max_physical_offset

    def begin_later(self, queue_offset: int) -> None:
        """Set the end of a queue without messages to `queue_offset`, in memory only: its next message begins a file.

        The blanks before it, which RocketMQ needs, take up to 6 MB, and few idle queues receive another message.
        """
        self.remove_all()
        self._units.begin_offset = self.max_offset = self.min_offset = queue_offset

    def begin_at(self, queue_offset: int) -> None:
        """Set the start of a queue without files to `queue_offset`: the units before it in the file become blank."""
        assert not self.is_begun, self.key
        self.is_begun = True
        units_a_file = self._queue.file_size // UNIT_SIZE
        self._units.begin_offset = queue_offset - queue_offset % units_a_file
        self.max_offset = self.min_offset = queue_offset
        if self._queue.mapped_files and self.begin_offset:  # the file of an emptied queue, which begins at 0
            self._queue.remove_all()
        self._pending.begin(self.key, self.begin_offset, queue_offset - self.begin_offset)

    def fill_gap(self, queue_offset: int) -> None:
        """Fill the gap between the last unit and `queue_offset` with blanks.

        Raises:
            store.errors.DiskFull: a part may be filled; call it again.
        """
        if self.min_offset == self.max_offset:
            self.min_offset = queue_offset
        while True:
            # Checked before any are added, because each attempt on a full disk would add more.
            if self._units.pending_bytes() >= _BLANKS_PENDING_BYTES_MAX:
                self._units.write_pending(self.max_offset)
            if self.max_offset >= queue_offset:
                return
            count = min(_CHUNK_COUNT, queue_offset - self.max_offset)
            self._pending.add(self.key, self.max_offset, BLANK * count)
            self.max_offset += count

    def overwrite(self, queue_offset: int, unit: bytes) -> None:
        """Replace a wrong unit."""
        assert self.begin_offset <= queue_offset < self.max_offset, (queue_offset, self.max_offset)
        self._units.write_pending(self.max_offset)
        self._units.newest = None
        self._queue.write(queue_offset * UNIT_SIZE, unit)
        self._first_place = -1
        self._find_last()

    # ---------------------------------------------------------------------------------------------------- cutting

    def truncate_at(self, queue_offset: int, *, is_durable: bool = True) -> None:
        """Remove, durably, the units from `queue_offset` on.

        If no units are left, a queue that began at 0 has no files; any other queue keeps its first file, whose name
        preserves the end of the queue.

        Args:
            queue_offset: of the first unit to remove.
            is_durable: False: the caller syncs the dirty files of `files`, and a queue without units may keep a file
                until `remove_unused`.
        """
        assert queue_offset >= self.begin_offset, (queue_offset, self.begin_offset)
        if queue_offset == 0:
            if is_durable or len(self._queue.mapped_files) != 1:
                self.remove_all()
            else:
                self._empty()
            return
        self._units.write_pending(self.max_offset)
        holder = self._queue.find(queue_offset * UNIT_SIZE)
        data_end = 0 if holder is None else self._units.data_end(holder, queue_offset * UNIT_SIZE)
        self._queue.truncate(queue_offset * UNIT_SIZE, data_end, is_durable=is_durable)
        if holder is not None and not is_durable:
            # Also without data to overwrite, because zeros written by an earlier process may not be durable.
            self._queue.mark_dirty(holder)
        self.max_offset = queue_offset
        if self.min_offset >= queue_offset:
            self.min_offset = queue_offset
            self._first_place = -1
        self._find_last()
        self._units.newest = None

    def _empty(self) -> None:
        """Overwrite all units of the only file. The queue is then empty, except for that file."""
        (file,) = self._queue.mapped_files
        # Whole pages, because for a partial page the system would have to read the rest first.
        data_end = min(-(-self._units.data_end(file, 0) // _PAGE_SIZE_BYTES) * _PAGE_SIZE_BYTES, file.end_offset)
        self._queue.truncate(0, data_end, is_durable=False)
        self._queue.mark_dirty(file)
        self._pending.drop(self.key, self._queue.directory)
        self._reset()

    def remove_unused(self) -> None:
        """Remove, durably, the file of an emptied queue, if no unit was appended since.

        The file is kept because recreating it takes longer than overwriting it, and after a crash thousands of queues
        may be emptied and refilled.
        """
        if not self.is_begun and self._queue.mapped_files:
            self.remove_all()

    def remove_all(self) -> None:
        """Remove all files; the queue is then empty."""
        self._pending.drop(self.key, self._queue.directory)
        self._queue.attach(self.begin_offset * UNIT_SIZE, (self.max_offset + 1) * UNIT_SIZE)
        self._queue.remove_all()
        self._reset()

    def _reset(self) -> None:
        self._units.newest = None
        self._first_place = -1
        self.is_begun = False
        self._units.begin_offset = self.min_offset = self.max_offset = self.max_physical_offset = 0

    def truncate(self, physical_offset: int, is_message: IsMessage | None = None, *, is_durable: bool = True) -> None:
        """Keep exactly the units of messages that begin below `physical_offset`; zero the rest.

        The units of messages below `physical_offset` must be complete; after them may be remains of unsynced units.

        Args:
            physical_offset: at which dispatch will continue.
            is_message: called with (queue, queue offset, physical offset, size): returns whether that message exists;
                needed to detect a torn last unit.
            is_durable: see `truncate_at`.
        """
        self._units.write_pending(self.max_offset)
        if not self._queue.mapped_files:
            return
        end = self._units.sound_end(physical_offset)
        self.max_offset = end
        last = self.message_before(end)
        if is_message is not None and last is not None and not is_message(self.key, last, *self._units.unit(last)[:2]):
            last = self.message_before(last)
        # Blanks after the last message belong to a removed one; those before the first one are kept, because they show
        # the end of the queue.
        self.truncate_at(end if last is None else last + 1, is_durable=is_durable)

    @property
    def newest(self) -> UnitTail | None:
        """All units of the last file from its metadata, while the store is being opened; None: read the files."""
        return self._units.newest

    def keep_all(self, is_message: IsMessage | None) -> bool:
        """Keep all units if all are plausible, as `truncate` would; return False if `truncate` must be called.

        Args:
            is_message: see `truncate`.
        """
        assert self._units.newest is not None, self.key
        last = self.max_offset - 1
        if is_message is not None and not is_message(self.key, last, *self._units.unit(last)[:2]):
            return False
        self._units.newest = None
        return True

    def is_last_unit(self, is_message: IsMessage) -> bool:
        """Return whether the log has the message of the last unit (for `is_message` see `truncate`)."""
        last = self.message_before(self.max_offset)
        return last is None or is_message(self.key, last, *self._units.unit(last)[:2])

    def expire(self, log_begin: int) -> None:
        """Delete files without messages in the log, and set `min_offset` to the first message in it.

        The last file is kept, because it shows `max_offset`.
        """
        in_first_file = (self.min_offset - self.begin_offset) * UNIT_SIZE < self._queue.file_size
        if self._first_place >= log_begin and in_first_file:
            return
        if (self.max_offset - self.begin_offset) * UNIT_SIZE > self._queue.file_size:
            tails = self._pending.tails_of(self.key)
            files_end = tails[0].begin_offset if tails else self.max_offset
            self._queue.attach(self.begin_offset * UNIT_SIZE, files_end * UNIT_SIZE)
        files = self._queue.mapped_files
        expired_end = self.begin_offset * UNIT_SIZE
        for file in files[:-1]:
            last = self.message_before(file.end_offset // UNIT_SIZE)
            if last is not None and not self._is_expired(last, log_begin):
                break
            expired_end = file.end_offset
        # Computed before the deletion, because `_message_before` must not search deleted files.
        self._queue.remove_before(expired_end)
        if expired_end > self.begin_offset * UNIT_SIZE:
            self._units.begin_offset = expired_end // UNIT_SIZE
        self.min_offset = self.first_offset_from(log_begin)
        self._first_place = self._units.unit(self.min_offset)[0] if self.min_offset < self.max_offset else -1

    def first_offset_from(self, log_begin: int) -> int:
        """Return the first offset whose message begins at or after `log_begin`, ignoring blanks."""
        units = self._units
        found = self.search(lambda at: units.unit(at)[0] >= log_begin, self.begin_offset)
        before = self.message_before(found)
        while before is not None and not self._is_expired(before, log_begin):
            # A damaged unit misled the search.
            found = self.search(lambda at: units.unit(at)[0] >= log_begin, self.begin_offset, before)
            before = self.message_before(found)
        return found

    def _is_expired(self, queue_offset: int, log_begin: int) -> bool:
        """Return whether a message begins before `log_begin`, by its unit and by that of the message before it.

        No checksum covers a unit: one changed bit must not hide retained messages.
        """
        before = self.message_before(queue_offset)
        places = [self._units.unit(at)[0] for at in (queue_offset, before) if at is not None]
        return max(places) < log_begin

    def search(self, is_after: Callable[[int], bool], begin: int, end: int | None = None) -> int:
        """Return the first offset from `begin` on that `is_after`; `max_offset` if none.

        With `end`, only offsets below it are searched, and it is returned if there is none.

        `is_after` must be false up to some message and true from there on. A blank counts as the message after it.
        """
        low, high = self._next_message(begin), self.max_offset if end is None else end
        while low < high:
            middle = (low + high) // 2
            at = self._next_message(middle)
            if at >= high or is_after(at):
                high = middle
            else:
                low = at + 1
        return self._next_message(low)
