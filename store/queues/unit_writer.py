"""Writes units of queues to their files and makes them durable: names, blocks, bytes and syncs, in groups.

It runs in a thread that may wait for the disk. The owner's thread reads the same files concurrently, with its own
descriptors and maps. A group of files is created and written first and then synced together, because a file system
makes many files durable in little more time than one. The small tails of a group, in files that exist, are written by
one call (`Files.write_existing`). Recently written files stay open.

Not here: which units are written, and when (`store.queues.consume_queues`, `store.maintenance.paced_flush`).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from store.errors import DiskFull, OutOfDescriptors
from store.fs.flush_tickets import DerivedFilesTicket, Dispatched
from store.fs.mapped.mapped_file import MappedFile, allocated_with
from store.fs.mapped.mapped_file_queue import name_of
from store.fs.ports import FileWrite
from store.queues.unit import UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from store.fs.ports import File, Files, QueueFiles
    from store.model.message import QueueKey
    from store.queues.pending_units import PendingUnits, UnitTail

# Tails written and synced in one step, at most: about 10 ms.
GROUP_TAILS_MAX: Final = 32
# A tail up to this size is written together with others; so the lock is held for at most 1 MiB at a time.
_SMALL_TAIL_BYTES_MAX: Final = 32 << 10


class _Group:
    """Files that are synced together, and small tails that are written together before that."""

    __slots__ = ("files", "small")

    def __init__(self) -> None:
        self.files: dict[str, MappedFile] = {}
        self.small: list[tuple[QueueKey, UnitTail, str, int]] = []  # each with its directory and the start of its file

    @property
    def count(self) -> int:
        """The number of files that are written, or will be."""
        return len(self.files) + len(self.small)


class UnitWriter:
    """Writes the tails of one store's queues. One thread at a time, except `forget`.

    Args:
        files: the file system.
        root: the directory of all queues.
        file_size: bytes of each file.
        pending: its lock prevents the owner from writing the same queue.
        open_files_max: files kept open.
    """

    __slots__ = (
        "_file_size",
        "_files",
        "_open",
        "_open_files_max",
        "_pending",
        "_root",
        "_synced_directories",
        "_unsynced_directories",
    )

    def __init__(self, files: Files, root: str, file_size: int, pending: PendingUnits, open_files_max: int) -> None:
        self._files = files
        self._root = root
        self._file_size = file_size
        self._pending = pending
        self._open_files_max = max(open_files_max, 1)
        # By path, least recently used first. Changed only while `pending.lock` is held; at most `_open_files_max` after
        # each group.
        self._open: OrderedDict[str, MappedFile] = OrderedDict()
        # Directories that this process has synced: a killed process may have left names that are not durable.
        self._synced_directories: set[str] = set()
        # Directories with names that may not be durable; a dictionary keeps their order. Kept when a group fails: the
        # next one finds these names already there.
        self._unsynced_directories: dict[str, None] = {}

    def write(self, tails: Sequence[tuple[QueueKey, UnitTail]]) -> None:
        """Write tails to files, durably, in groups of no more files than may stay open.

        Raises:
            store.errors.DiskFull: some may be written; call it again with the same tails.
            store.errors.StorageFailed: the store must stop.
        """
        group = _Group()
        for key, tail in tails:
            if group.count >= self._open_files_max:
                self._finish(group)
                group = _Group()
            directory = f"{self._root}/{key.topic}/{key.queue_id}"
            begin = self._small_in(directory, tail)
            if begin is None:
                group = self._write_or_close(key, tail, group)
            else:
                group.small.append((key, tail, directory, begin))
        self._finish(group)

    def _small_in(self, directory: str, tail: UnitTail) -> int | None:
        """Return the start of the file of a tail that is written together with others; None: it is written alone."""
        at = tail.begin_offset * UNIT_SIZE
        begin, size = at - at % self._file_size, len(tail.data)
        if tail.blank_count or not 0 < size <= min(_SMALL_TAIL_BYTES_MAX, begin + self._file_size - at):
            return None
        return None if f"{directory}/{name_of(begin)}" in self._open else begin

    def _finish(self, group: _Group) -> None:
        """Write the small tails of a group, and make it durable."""
        missing = self._write_small(group)
        for key, tail in missing:
            group = self._write_or_close(key, tail, group)
        self._sync(group)
        self._close_beyond(self._open_files_max)

    def _write_small(self, group: _Group) -> Sequence[tuple[QueueKey, UnitTail]]:
        """Write the small tails of a group, unless their owner has taken them; return those that are not written."""
        with self._pending.lock:
            small = [each for each in group.small if not each[1].is_taken]
            writes = [self._write_of(tail, directory, begin) for _, tail, directory, begin in small]
            try:
                opened = self._files.write_existing(writes)
            except OutOfDescriptors:
                return [(key, tail) for key, tail, _, _ in small]
            missing: list[tuple[QueueKey, UnitTail]] = []
            for (key, tail, directory, begin), write, file in zip(small, writes, opened, strict=True):
                if file is None:
                    missing.append((key, tail))
                    continue
                mapped = MappedFile(file, begin, is_allocated=False)
                mapped.allocated_end = begin + write.position + write.allocated_size
                self._open[write.path] = mapped
                self._add(write.path, mapped, directory, group)
            return missing

    def _write_of(self, tail: UnitTail, directory: str, begin: int) -> FileWrite:
        position = tail.begin_offset * UNIT_SIZE - begin
        allocated_end = allocated_with(position + len(tail.data), self._file_size)
        return FileWrite(f"{directory}/{name_of(begin)}", position, memoryview(tail.data), allocated_end - position)

    def _write_or_close(self, key: QueueKey, tail: UnitTail, group: _Group) -> _Group:
        """Write one tail and return the group to sync. Without a free descriptor, sync and close all files first."""
        try:
            self._write(key, tail, group)
        except OutOfDescriptors:
            small, group.small = group.small, []
            group = self._sync(group)
            group.small = small
            self._close_beyond(0)
            self._write(key, tail, group)
        return group

    def _sync(self, group: _Group) -> _Group:
        """Make a group durable; return the next one."""
        directories = list(self._unsynced_directories)
        self._files.sync_all([file.file for file in group.files.values()], ())
        try:
            self._files.sync_all((), directories)
        except OutOfDescriptors:
            self._close_beyond(0)
            for directory in directories:
                self._files.sync_directory(directory)
        self._synced_directories.update(directories)
        self._unsynced_directories.clear()
        return _Group()

    def forget(self, directory: str) -> None:
        """Release the files of a queue that are removed; the owner calls it while the queue has no tail."""
        with self._pending.lock:
            for path in [path for path in self._open if path.startswith(f"{directory}/")]:
                self._open.pop(path).file.close()

    def close(self) -> None:
        """Release all files."""
        self._close_beyond(0)

    def _close_beyond(self, count: int) -> None:
        with self._pending.lock:
            while len(self._open) > count:
                self._open.popitem(last=False)[1].file.close()

    def _write(self, key: QueueKey, tail: UnitTail, group: _Group) -> None:
        """Write one tail, unless its owner takes it, and add its files to the group to sync.

        The lock is released before each file, so that the owner does not wait for the sync of the previous one.
        """
        directory = f"{self._root}/{key.topic}/{key.queue_id}"
        at, end = tail.begin_offset * UNIT_SIZE, tail.end_offset * UNIT_SIZE
        # Once also for a tail without units, which creates a file.
        for begin in range(at - at % self._file_size, max(end, at + 1), self._file_size):
            self._sync_before(directory, begin, tail, group)
            with self._pending.lock:
                if tail.is_taken:
                    return
                self._write_units(directory, begin, tail, group)

    def _write_units(self, directory: str, begin: int, tail: UnitTail, group: _Group) -> None:
        """Write the units of a tail that belong into the file at `begin`."""
        file = self._file(directory, begin, group)
        for queue_offset, units in tail.parts(begin // UNIT_SIZE, file.end_offset // UNIT_SIZE):
            at = queue_offset * UNIT_SIZE
            file.allocate(at, at + len(units))
            file.file.write(units, at - begin)

    def _file(self, directory: str, offset: int, group: _Group) -> MappedFile:
        """Return the file that begins at an offset of its queue; it is created if missing."""
        path = f"{directory}/{name_of(offset)}"
        file = self._open.get(path)
        if file is None:
            is_there = self._files.exists(path)
            if is_there:
                # This process has loaded the queues or created the file, and every sync of it since then has succeeded.
                opened = self._files.open(path, is_cache_trusted=True)
            else:
                self._ensure_directory(directory)
                self._unsynced_directories[directory] = None
                opened = self._files.create(path, self._file_size, is_sparse=True)
            file = self._open[path] = MappedFile(opened, offset, is_allocated=False)
        else:
            self._open.move_to_end(path)
        self._add(path, file, directory, group)
        return file

    def _add(self, path: str, file: MappedFile, directory: str, group: _Group) -> None:
        """Add a written file to the group, and note the directories that this process has not synced yet."""
        topic = directory.rpartition("/")[0]
        for above in (directory, topic, self._root, self._root.rpartition("/")[0]):
            if above not in self._synced_directories:
                self._unsynced_directories[above] = None
        group.files[path] = file

    def _ensure_directory(self, directory: str) -> None:
        if not self._files.is_directory(directory):
            topic = directory.rpartition("/")[0]
            # Also the root, which gets the name of a new topic.
            self._unsynced_directories.update(dict.fromkeys((topic, self._root)))
            self._files.make_directory(directory, is_durable=False)

    def _sync_before(self, directory: str, begin: int, tail: UnitTail, group: _Group) -> None:
        """Sync name and size of the previous file before the file at `begin` is created.

        Data that may be wrong after a crash is then only in the last file, or after the durable end, and there is no
        gap.
        """
        if not begin:
            return
        path, before = (f"{directory}/{name_of(offset)}" for offset in (begin, begin - self._file_size))
        with self._pending.lock:
            if tail.is_taken or path in self._open or self._files.exists(path) or not self._files.exists(before):
                return
            file = self._open.pop(before, None)
            last = self._files.open(before) if file is None else file.file
            group.files.pop(before, None)
        last.sync()
        self._files.sync_directory(directory)
        last.close()


class UnitsTicket(DerivedFilesTicket):
    """The units to write and sync so that queues are durable up to `dispatched`.

    Attributes:
        no_space: the error of a full disk; None: there was none.
    """

    __slots__ = ("_tails", "_writer", "_written_count", "no_space")

    def __init__(
        self,
        dispatched: Dispatched | None,
        files: QueueFiles,
        synced_files: Sequence[File],
        directories: Sequence[str],
        writer: UnitWriter,
        tails: Mapping[QueueKey, UnitTail],
    ) -> None:
        super().__init__(dispatched, files, synced_files, directories)
        self.no_space: DiskFull | None = None
        self._writer = writer
        self._tails = list(tails.items())
        self._written_count = 0

    @property
    def left_count(self) -> int:
        """The number of queues with unwritten units."""
        return len(self._tails) - self._written_count

    def step(self, queues_max: int = GROUP_TAILS_MAX) -> bool:
        """Run a part of `sync`, of some queues at most; return whether more is left. One thread at a time.

        Raises:
            store.errors.StorageFailed: the store must stop; the ticket must not be retried.
        """
        begin = self._written_count
        end = begin + queues_max
        try:
            self._writer.write(self._tails[begin:end])
            self._written_count = min(end, len(self._tails))
        except DiskFull as error:
            self._written_count, self.no_space = len(self._tails), error
        if self.left_count:
            return True
        super().sync()
        return False

    def sync(self) -> None:
        """Write units, sync files and names; any thread may call it, once. `no_space` is set if the disk is full.

        Raises:
            store.errors.StorageFailed: the store must stop; the ticket must not be retried.
        """
        while self.step():
            continue
