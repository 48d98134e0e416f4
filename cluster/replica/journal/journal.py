"""The journal on the event loop: places commands, and lets all that wait share one sync.

A command gets its place when it is appended, so that the space is known before the state is changed. One batch is
written at a time, in the storage thread; commands that arrive meanwhile are in the next one. The next segment is
created when half of the current one is used. Not here: the state, and its snapshots (`cluster.replica.local_state`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.replica.journal.format import OVERHEAD_SIZE, SEGMENT_HEADER_SIZE, JournalCommand, batch_size, encode_batch
from store.errors import DiskFull, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.replica.journal.segments import OpenedJournal, Segment, SegmentFiles
    from store.fs.storage_thread import Worker

# With those that the three kept snapshots need: six in ordinary use; the others are for a full disk without snapshots.
SEGMENTS_MAX: Final = 12


class _Batch(NamedTuple):
    """Commands for one segment that are not written yet."""

    segment: Segment
    changes: list[JournalCommand]


class Journal:
    """The journal of an open state.

    Args:
        files: its files.
        opened: the journal.
        worker: runs the work on files.
        written: called on the loop after each batch, and with the error after which the process must stop.

    Attributes:
        last_index: index of the last command that was appended.
        durable_index: index of the last command that is durable.
    """

    def __init__(
        self,
        files: SegmentFiles,
        opened: OpenedJournal,
        worker: Worker,
        written: Callable[[StoreError | None], None],
    ) -> None:
        self.last_index = self.durable_index = opened.last_index
        self._files = files
        self._worker = worker
        self._written = written
        self._active = opened.segments.popleft()
        # The segment of the batch that was written last: open until a later one is written.
        self._last_written = self._active
        # Empty segments after the active one: at most one, unless a crash left another.
        self._next = opened.segments
        self._old = opened.old
        # Upper bound of the position after all commands that were placed in the active segment.
        self._placed = self._active.position
        self._batches: deque[_Batch] = deque()
        # Callers by the index that they wait for, ascending.
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._is_writing = False
        # The running creation of a segment; its result is the error.
        self._creating: asyncio.Future[StoreError | None] | None = None
        # Where the next segment is created; later after each failure.
        self._create_at = self._files.size_bytes // 2
        self._failure: StoreError | None = None

    # ------------------------------------------------------------------------------------------------------ space

    @property
    def command_size_max(self) -> int:
        """The size of the largest command that fits into an empty segment, in bytes."""
        return self._files.size_bytes - SEGMENT_HEADER_SIZE - OVERHEAD_SIZE

    @property
    def segment_size(self) -> int:
        """The size of a new segment in bytes."""
        return self._files.size_bytes

    @property
    def is_at_limit(self) -> bool:
        """Whether no further segment may be created before old ones are deleted."""
        return len(self._old) + 1 + len(self._next) >= SEGMENTS_MAX

    def has_space(self, size: int) -> bool:
        """Return whether a command of `size` bytes, at most `command_size_max`, has a place: it cannot fail then."""
        return self._placed + OVERHEAD_SIZE + size <= self._active.size_bytes or bool(self._next)

    async def make_space(self) -> StoreError | None:
        """Create the next segment; return the error. The journal must not be at its limit.

        Another caller may take the space first.
        """
        return await asyncio.shield(self._create())

    def _create(self) -> asyncio.Future[StoreError | None]:
        if self._creating is not None:
            return self._creating
        assert not self.is_at_limit
        creating = self._creating = asyncio.get_running_loop().create_future()
        last = self._next[-1] if self._next else self._active
        number, next_index = last.number + 1, self.last_index + 1

        def finished(error: Exception | None) -> None:
            self._creating = None
            assert error is None or isinstance(error, StoreError), error
            if error is None:
                self._next.append(created[0])
            elif isinstance(error, DiskFull):
                self._create_at = self._placed + self._files.size_bytes // 8
            else:
                self._fail(error)
            creating.set_result(error)

        created: list[Segment] = []
        self._worker.run(lambda: created.append(self._files.create(number, next_index)), finished)
        return creating

    # ----------------------------------------------------------------------------------------------------- writing

    def append(self, effects_offset: int, body: bytes) -> None:
        """Append a command that has space.

        Args:
            effects_offset: log offset up to which effects were applied before it.
            body: the encoded command.
        """
        needed = OVERHEAD_SIZE + len(body)
        if self._placed + needed > self._active.size_bytes:
            self._begin_next_segment()
        self._placed += needed
        self.last_index += 1
        self._active.last_index = self.last_index
        if not self._batches or self._batches[-1].segment is not self._active:
            self._batches.append(_Batch(self._active, []))
        self._batches[-1].changes.append(JournalCommand(self.last_index, effects_offset, body))
        if self._placed >= self._create_at and not self._next and not self.is_at_limit:
            self._create()
        self._write_next()

    def _begin_next_segment(self) -> None:
        self._old.append((self._active.number, self._active.last_index))
        self._active = self._next.popleft()
        self._placed = self._active.position
        self._create_at = self._files.size_bytes // 2

    def durable(self, index: int) -> asyncio.Future[None]:
        """Return a future that ends when the commands up to `index`, the last one, are durable.

        Its exception, if any, is that of `written`: whether they are durable is not known.
        """
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((index, waiting))
        self._end_waiting()
        return waiting

    def _write_next(self) -> None:
        if self._is_writing or not self._batches or self._failure is not None:
            return
        self._is_writing = True
        segment, changes = self._batches.popleft()
        before, self._last_written = self._last_written, segment
        position = segment.position
        segment.position += batch_size(changes)

        def write() -> None:
            segment.file.write(encode_batch(changes), position)
            segment.file.sync()
            if before is not segment:
                before.file.close()

        def finished(error: Exception | None) -> None:
            self._is_writing = False
            assert error is None or isinstance(error, StoreError), error
            if error is not None:
                self._fail(error)
                return
            self.durable_index = changes[-1].number
            self._end_waiting()
            self._written(None)
            self._write_next()

        self._worker.run(write, finished)

    def _fail(self, error: StoreError) -> None:
        if self._failure is None:
            self._failure = error
            self._end_waiting()
            self._written(error)

    def _end_waiting(self) -> None:
        while self._waiting and (self._failure is not None or self._waiting[0][0] <= self.durable_index):
            waiting = self._waiting.popleft()[1]
            if waiting.done():
                continue
            if self._failure is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(self._failure)

    # ---------------------------------------------------------------------------------------------------- deleting

    def forget(self, index: int) -> None:
        """Delete segments with commands up to `index` only; a durable snapshot must contain these."""
        numbers = []
        # The last one with durable commands is kept: the commands must reach up to the newest snapshot.
        while self._old and self._old[0][1] <= index and self._old[0][1] < self.durable_index:
            numbers.append(self._old.popleft()[0])
        if numbers:
            self._worker.run(lambda: self._files.remove(numbers), self._removed)

    def _removed(self, error: Exception | None) -> None:
        if error is not None:
            assert isinstance(error, StoreError), error
            self._fail(error)

    def close(self) -> None:
        """Close the files; nothing may be running."""
        for segment in (self._last_written, self._active, *self._next):
            segment.file.close()
