"""All consume queues of a store; a batch of the log is appended queue by queue.

Directories are `consumequeue/<topic>/<queue id>/`. Invalid names of topics or queues, in the file system or in the log,
are never opened or created.

Source: RocketMQ `ConsumeQueueStore`, `FlushConsumeQueueService`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crc32c import crc32c

from store.fs.descriptors import queue_files_max
from store.fs.flush_tickets import DerivedFlushProgress, Dispatched
from store.fs.mapped.file_pool import FilePool
from store.fs.mapped.mapped_file_queue import MappedFileQueue
from store.fs.sync_tickets import flush_all
from store.model.message import QUEUE_ID_MAX, QueueKey
from store.model.topics import is_storable_topic
from store.queues.consume_queue import ConsumeQueue, IsMessage
from store.queues.intact import are_intact
from store.queues.loading import OnDamage, QueueLoading
from store.queues.out_of_order_units import OutOfOrderUnit, place
from store.queues.pending_units import PENDING_BYTES_MAX, PendingUnits
from store.queues.rows import Rows, rows_by_queue
from store.queues.unit import UNIT_SIZE
from store.queues.unit_writer import UnitsTicket, UnitWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from store.fs.ports import Files
    from store.model.dispatch_batch import DispatchBatch

DIRECTORY = "consumequeue"
FILE_SIZE_BYTES = 300_000 * UNIT_SIZE
_PAGE_SIZE_BYTES = 4096
# The n-th part of the open files is for writing.
_WRITING_PART = 4


class ConsumeQueues:
    """The queues of one store. Construct it, then call `load`.

    Args:
        files: the file system.
        root: the store's directory.
        file_size: bytes of each file, rounded up to whole units.
        open_files_max: files kept open at a time; the others are opened on use. None: derived from the limit of
            descriptors.
    """

    __slots__ = (
        "_directory",
        "_dispatched",
        "_file_size",
        "_files",
        "_pending",
        "_pool",
        "_progress",
        "_queues",
        "_writer",
    )

    def __init__(
        self, files: Files, root: str, file_size: int = FILE_SIZE_BYTES, *, open_files_max: int | None = None
    ) -> None:
        self._files = files
        self._directory = f"{root}/{DIRECTORY}"
        self._file_size = -(-file_size // UNIT_SIZE) * UNIT_SIZE
        count_max = open_files_max or queue_files_max()
        self._pending = PendingUnits()
        self._writer = UnitWriter(files, self._directory, self._file_size, self._pending, count_max // _WRITING_PART)
        self._pending.when_dropped = self._writer.forget
        self._pool = FilePool(files, count_max)
        # A queue is removed only by `remove_all` and `close`: a queue without files may still have an end above 0.
        self._queues: dict[QueueKey, ConsumeQueue] = {}
        # At least `flushed`. Both decrease when queues are truncated.
        self._dispatched = Dispatched()
        self._progress = DerivedFlushProgress()

    # ----------------------------------------------------------------------------------------------------- queues

    def load(self, on_damage: OnDamage | None = None, *, is_truncated_next: bool = False) -> list[str]:
        """Open all queues of a cleanly closed store; after a crash `truncate` must follow.

        Args:
            is_truncated_next: `truncate` will follow, and data that is only in the page cache is not trusted.
            on_damage: called with a queue before its invalid files are removed; that queue is then empty, and must be
                rebuilt from the log. None: the error is raised instead.

        Returns:
            One sentence for each repair and each foreign file.

        Raises:
            store.errors.ForeignFile, WrongFileSize, MissingFile, CorruptData: see `ConsumeQueue.load`.
        """
        assert not self._queues
        loading = QueueLoading(
            self._files,
            self._pool,
            self._directory,
            self._file_size,
            self._add,
            on_damage,
            is_truncated_next=is_truncated_next,
        )
        return loading.run()

    def get(self, key: QueueKey) -> ConsumeQueue | None:
        """Return a queue, if there is one."""
        return self._queues.get(key)

    def __iter__(self) -> Iterator[QueueKey]:
        """Iterate over the queues, in no particular order."""
        return iter(self._queues)

    def __len__(self) -> int:
        """Return the number of queues."""
        return len(self._queues)

    @property
    def max_physical_offset(self) -> int:
        """The offset after the last message that has a unit in any queue; 0 if there is none."""
        return max((queue.max_physical_offset for queue in self._queues.values()), default=0)

    def _add(self, key: QueueKey) -> ConsumeQueue:
        files = MappedFileQueue(self._pool, self.path(key), self._file_size, is_sparse=True)
        queue = self._queues[key] = ConsumeQueue(key, files, self._pending, self._files)
        return queue

    def path(self, key: QueueKey) -> str:
        """Return the directory of a queue, whether it exists or not."""
        return f"{self._directory}/{key.topic}/{key.queue_id}"

    def digest(self) -> int:
        """Return a checksum over the ends of all queues with units; replaced or truncated files change it."""
        queues = self._queues.items()
        # A queue that ends above 0 without files (`ConsumeQueue.begin_later`) will not exist after loading.
        ends = sorted((key, queue.max_offset) for key, queue in queues if queue.is_begun and queue.max_offset)
        return crc32c("".join(f"{key.topic}/{key.queue_id} {end}\n" for key, end in ends).encode())

    def is_last_unit(self, is_message: IsMessage) -> bool:
        """Return whether the unit with the highest physical offset points to its message; True if there is no unit."""
        last = max(self._queues.values(), key=lambda queue: queue.max_physical_offset, default=None)
        return last is None or last.is_last_unit(is_message)

    # -------------------------------------------------------------------------------------------------- appending

    def append(self, batch: DispatchBatch) -> Sequence[OutOfOrderUnit]:
        """Add the units of a range of the log, in memory; existing units are kept.

        A flush writes and syncs the units; without flushes, this call writes them from time to time.

        Returns:
            Messages whose queue offset is not the next one, with the action (`store.queues.out_of_order_units` has the
            rules), and messages of queues that cannot exist.

        Raises:
            store.errors.DiskFull: some queues may have received their units; call it again with the same batch.
            store.errors.StorageFailed: the node must stop.
        """
        if self.is_full:
            self.flush()
        found: list[OutOfOrderUnit] = []
        for key, rows, is_regular in rows_by_queue(batch):
            found += self._append_group(key, rows, is_regular=is_regular)
        self._dispatched = self._dispatched.after(batch.next_offset, batch.last_store_timestamp)
        return found

    def _append_group(self, key: QueueKey, rows: Rows, *, is_regular: bool) -> list[OutOfOrderUnit]:
        """Append the messages of one queue."""
        queue = self._queues.get(key) or self._make(key)
        if queue is None:
            offsets = int(rows.queue_offsets[0]), int(rows.physical_offsets[0])
            return [OutOfOrderUnit(key, *offsets, "a topic and a queue that can be", "left out: no such queue")]
        if (
            is_regular
            and rows.queue_offsets[0] == queue.max_offset
            and rows.physical_offsets[0] >= queue.max_physical_offset
        ):
            queue.append(rows.units, int(rows.ends[-1]))
            return []
        return place(queue, rows)

    def _make(self, key: QueueKey) -> ConsumeQueue | None:
        """Create a queue; None if its name is not permitted."""
        if not is_storable_topic(key.topic) or not 0 <= key.queue_id <= QUEUE_ID_MAX:
            return None
        return self._add(key)

    @property
    def pending_bytes(self) -> int:
        """The number of bytes of unwritten units."""
        return self._pending.size_bytes

    @property
    def pending_count(self) -> int:
        """The number of queues with unwritten units."""
        return self._pending.filling_count

    @property
    def is_full(self) -> bool:
        """Whether units must be written before more are added."""
        return self._pending.size_bytes >= PENDING_BYTES_MAX

    def next_offsets(self) -> dict[QueueKey, int]:
        """Return the offset after the last unit of each queue."""
        return {key: queue.max_offset for key, queue in self._queues.items()}

    def drop_superseded_in_steps(self, next_offsets: Mapping[QueueKey, int], log_begin: int) -> Iterator[None]:
        """Remove the files of queues that end before the offset given for them, and point to expired messages only.

        One queue per step, which may take milliseconds.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        for key, next_offset in next_offsets.items():
            queue = self._queues.get(key)
            if queue is not None and queue.max_offset < next_offset and queue.max_physical_offset <= log_begin:
                queue.remove_all()
                yield

    def extend_in_steps(self, next_offsets: Mapping[QueueKey, int], log_begin: int) -> Iterator[None]:
        """Raise the end of each queue to the offset given for it: the messages in between have expired.

        A queue that has messages in the log gets blank units; any other queue has this end in memory only, until its
        next message: the caller must pass the same offsets again after each start. One queue per step. Between steps
        the caller must check `is_full`, and flush first.

        Args:
            next_offsets: by queue.
            log_begin: messages before are expired.

        Raises:
            store.errors.DiskFull: some queues may have their new end; call it again with the same arguments.
            store.errors.StorageFailed: the node must stop.
        """
        for key, next_offset in next_offsets.items():
            queue = self._queues.get(key) or (self._make(key) if next_offset else None)
            if queue is None or queue.max_offset >= next_offset:
                continue
            if queue.max_physical_offset <= log_begin:
                # None of its units points into the log.
                queue.begin_later(next_offset)
            else:
                queue.fill_gap(next_offset)
            yield

    # ---------------------------------------------------------------------------------------------------- cutting

    def truncate(self, physical_offset: int, is_message: IsMessage | None = None) -> None:
        """Keep, for certain, the units of messages that begin below `physical_offset`; see `ConsumeQueue.truncate`.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        loaded = [(queue, queue.newest) for queue in self._queues.values()]
        known = [(queue, newest.data) for queue, newest in loaded if newest is not None]
        is_right = are_intact([units for _, units in known], physical_offset)
        intact = {queue.key for (queue, _), is_intact in zip(known, is_right.tolist(), strict=True) if is_intact}
        with self._pool.synced_later():
            for queue in self._queues.values():
                if not (queue.key in intact and queue.keep_all(is_message)):
                    queue.truncate(physical_offset, is_message, is_durable=False)
            # Synced together, because there may be thousands; including unchanged files of an earlier process, which
            # count as durable from now on.
            self._files.sync_tree(self._directory)
        for queue in self._queues.values():
            queue.files.take_dirty()
        self._dispatched = min(self._dispatched, Dispatched(physical_offset))
        self._progress.truncate(self._dispatched)

    def remove_unused(self) -> None:
        """Remove the files that `truncate` has left to queues without units, durably."""
        for queue in self._queues.values():
            queue.remove_unused()

    def expire(self, log_begin: int) -> None:
        """Delete the part of the queues before the log's start: files without remaining messages; set `min_offset`."""
        for _ in self.expire_in_steps(log_begin):
            continue

    def expire_in_steps(self, log_begin: int) -> Iterator[None]:
        """Delete the part of the queues before the log's start, one queue per step."""
        for queue in list(self._queues.values()):
            queue.expire(log_begin)
            yield

    def remove_all(self) -> None:
        """Remove the files of all queues, durably; their directories are kept."""
        for queue in self._queues.values():
            queue.remove_all()
        self._queues.clear()
        self._pending.written_directly.clear()
        self._dispatched = Dispatched()
        self._progress.truncate(self._dispatched)

    # --------------------------------------------------------------------------------------------------- flushing

    @property
    def flushed(self) -> Dispatched:
        """Messages of the log up to this offset have durable units."""
        return self._progress.flushed

    @property
    def dispatched(self) -> Dispatched:
        """Messages of the log up to this offset were appended since `load`."""
        return self._dispatched

    def begin_flush(self, pages_min: int = 0) -> UnitsTicket | None:
        """Return a ticket for the units added since the last one; None if there are none, or a ticket is open.

        Args:
            pages_min: skip queues with fewer new pages; then `flushed` does not advance.
        """
        pending = self._pending
        if pending.is_writing:
            return None
        tails = pending.begin_writing(pages_min * _PAGE_SIZE_BYTES)
        written_directly, pending.written_directly = pending.written_directly, set()
        if not tails and not written_directly and (not pending.is_empty or self._dispatched == self.flushed):
            pending.end_writing(is_written=True)
            return None
        files, directories = [], []
        for key in written_directly:
            queue = self._queues[key].files
            files += queue.take_dirty()
            if queue.take_new_name():
                directories.append(queue.directory)
        dispatched = self._dispatched if pending.is_empty else None
        return self._progress.begin(UnitsTicket(dispatched, self._pool, files, directories, self._writer, tails))

    def end_flush(self, ticket: UnitsTicket) -> None:
        """Record that a ticket was synced.

        Raises:
            store.errors.DiskFull: not all units fitted; none is lost, and a later ticket covers them again.
        """
        self._pending.end_writing(is_written=ticket.no_space is None)
        if self._pending.is_disturbed or ticket.no_space is not None:
            ticket.dispatched = None
        self._progress.end(ticket)
        if ticket.no_space is not None:
            raise ticket.no_space

    def flush(self) -> None:
        """Make everything durable, in this thread.

        Raises:
            store.errors.DiskFull: not all units fitted; none is lost, try again.
            store.errors.StorageFailed: the node must stop.
        """
        flush_all(self)

    def close(self) -> None:
        """Close all files; unflushed units are dropped."""
        for queue in self._queues.values():
            queue.files.close()
        self._queues.clear()
        self._writer.close()
