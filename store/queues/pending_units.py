"""Units of consume queues in memory: dispatch adds them here, and another thread writes and syncs them to files.

So dispatch does not access the disk, whatever the number of queues. Units of a queue are in up to three places, in this
order: its files, the tail being written, and the tail being filled. All of them can be rebuilt from the log, and a
start after a crash uses synced data only, so a crash costs little work.

All methods are for the owner's thread; only `store.queues.unit_writer` uses the tails being written in another thread.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from store.queues.unit import BLANK, UNIT, UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from store.model.message import QueueKey

# From this many bytes of units (838,860 messages) on, they are flushed before the interval ends,
FLUSH_ABOVE_BYTES = 16 << 20
# and above this number no more are added before some are written.
PENDING_BYTES_MAX = 64 << 20
_BLANKS_COUNT = 1 << 14
_BLANKS = memoryview(BLANK * _BLANKS_COUNT)


class UnitTail:
    """Units at the end of a queue.

    Attributes:
        begin_offset: the queue offset of the first one.
        blank_count: the number of blank ones at its start, at most a file of them; they take no memory.
        data: the bytes of the others; if empty, a file is still created, because its name preserves the end of the
            queue.
        is_taken: the owner writes it itself; read and set with `lock` of `PendingUnits`.
    """

    __slots__ = ("begin_offset", "blank_count", "data", "is_taken")

    def __init__(self, begin_offset: int, blank_count: int = 0) -> None:
        self.begin_offset = begin_offset
        self.blank_count = blank_count
        self.data = bytearray()
        self.is_taken = False

    @property
    def end_offset(self) -> int:
        """The queue offset after the last one."""
        return self.data_offset + len(self.data) // UNIT_SIZE

    @property
    def data_offset(self) -> int:
        """The queue offset of the first unit of `data`."""
        return self.begin_offset + self.blank_count

    def unit(self, queue_offset: int) -> tuple[int, int, int]:
        """Return one of its units."""
        row = queue_offset - self.data_offset
        unit: tuple[int, int, int] = UNIT.unpack_from(*((_BLANKS, 0) if row < 0 else (self.data, row * UNIT_SIZE)))
        return unit

    def parts(self, begin: int, end: int) -> Iterator[tuple[int, memoryview]]:
        """Yield (queue offset, bytes) of its units of `[begin, end)`, in order.

        While a view of `data` exists, no unit can be added.
        """
        begin, end = max(begin, self.begin_offset), min(end, self.end_offset)
        while begin < min(end, self.data_offset):
            count = min(end, self.data_offset, begin + _BLANKS_COUNT) - begin
            yield begin, _BLANKS[: count * UNIT_SIZE]
            begin += count
        if begin < end:
            first, last = ((offset - self.data_offset) * UNIT_SIZE for offset in (begin, end))
            yield begin, memoryview(self.data)[first:last]


class PendingUnits:
    """The tails of all queues of a store.

    Attributes:
        lock: held while the tail of one queue is written, or taken.
        size_bytes: of the tails being filled.
        is_disturbed: the owner took a tail from those being written.
        written_directly: queues whose files the owner has written directly and not synced yet.
        when_dropped: called with the directory of a queue whose files are removed.
    """

    __slots__ = ("_filling", "_writing", "is_disturbed", "lock", "size_bytes", "when_dropped", "written_directly")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.size_bytes = 0
        self.is_disturbed = False
        self.written_directly: set[QueueKey] = set()
        self.when_dropped: Callable[[str], None] = _no_listener
        # One tail for each queue with new units since the last flush began. It begins where the queue's tail in
        # `_writing` ends, or else where its files end. Changed by the owner's thread only.
        self._filling: dict[QueueKey, UnitTail] = {}
        # The tails of the running flush; None without one. Their data must not grow, because the writer's thread reads
        # it.
        self._writing: dict[QueueKey, UnitTail] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no tail is being filled."""
        return not self._filling

    @property
    def filling_count(self) -> int:
        """The number of queues with a tail being filled."""
        return len(self._filling)

    @property
    def is_writing(self) -> bool:
        """Whether tails are being written."""
        return self._writing is not None

    def tails_of(self, key: QueueKey) -> Sequence[UnitTail]:
        """Return the tails of a queue, in order: none, one or two."""
        filling = self._filling.get(key)
        writing = None if self._writing is None else self._writing.get(key)
        if writing is None or writing.is_taken:
            return () if filling is None else (filling,)
        return (writing,) if filling is None else (writing, filling)

    def begin(self, key: QueueKey, queue_offset: int, blank_count: int) -> None:
        """Begin an empty queue with `blank_count` blanks; a file is created even for 0."""
        assert not self.tails_of(key), key
        self._filling[key] = UnitTail(queue_offset, blank_count)

    def add(self, key: QueueKey, queue_offset: int, units: bytes | memoryview) -> None:
        """Add units after the last one of a queue, which is before `queue_offset`."""
        tail = self._filling.get(key)
        if tail is None:
            tail = self._filling[key] = UnitTail(queue_offset)
        assert tail.end_offset == queue_offset, (key, tail.begin_offset, len(tail.data), queue_offset)
        tail.data += units
        self.size_bytes += len(units)

    def begin_writing(self, size_bytes_min: int = 0) -> dict[QueueKey, UnitTail]:
        """Return the tails of at least this size; later units go into new tails. `end_writing` must follow."""
        assert self._writing is None
        if size_bytes_min:
            chosen = {key: tail for key, tail in self._filling.items() if len(tail.data) >= size_bytes_min}
            for key, tail in chosen.items():
                del self._filling[key]
                self.size_bytes -= len(tail.data)
        else:
            chosen, self._filling, self.size_bytes = self._filling, {}, 0
        self._writing = chosen
        self.is_disturbed = False
        return chosen

    def end_writing(self, *, is_written: bool) -> None:
        """End a flush. If the disk was full, the files may lack some units, which are kept as pending."""
        writing, self._writing = self._writing, None
        if is_written or writing is None:
            return
        for key, tail in writing.items():
            if tail.is_taken:
                continue
            later = self._filling.get(key)
            self.size_bytes += len(tail.data)
            # Copied even without new units, because the exception of the full disk may hold a view of the bytes, which
            # then cannot grow.
            tail.data = tail.data + (b"" if later is None else later.data)
            self._filling[key] = tail

    def take(self, key: QueueKey) -> Sequence[UnitTail]:
        """Return and remove the tails of a queue, which the owner then writes or drops itself."""
        tails = self.tails_of(key)
        if not tails:
            return ()
        self.written_directly.add(key)
        with self.lock:
            for tail in tails:
                tail.is_taken = True
        filling = self._filling.pop(key, None)
        if filling is not None:
            self.size_bytes -= len(filling.data)
        self.is_disturbed = self.is_disturbed or tails[0] is not filling
        return tails

    def drop(self, key: QueueKey, directory: str) -> None:
        """Drop the tails of a queue before its files are removed from a directory."""
        self.take(key)
        self.when_dropped(directory)


def _no_listener(_directory: str) -> None:
    """Do nothing."""
