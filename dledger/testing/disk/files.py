"""The file-system port of one simulated process: `store.fs.ports.Files` on a `SimDisk`.

Every operation that changes the disk passes a `CrashPoint`, so that the process can die before, during or after any of
them. Operations after its death (in a `finally`, a destructor) do not reach the disk.
"""

from __future__ import annotations

import errno
import posixpath
from typing import TYPE_CHECKING

from dledger.testing.disk.crash_point import CrashPoint
from dledger.testing.disk.disk import Directory, SimDisk
from dledger.testing.disk.file import SimFile, SimLock, io_error
from dledger.testing.disk.inode import Inode
from dledger.testing.faults import Fault, SimulatedCrash
from store.errors import DirectoryLocked, DiskFull, StorageFailed
from store.fs.ports import SMALL_FILE_SIZE_BYTES, SUMMARY_SIZE_BYTES, File, FileSummary, FileWrite
from store.fs.writing_in_turn import write_in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from random import Random

    from dledger.testing.clock import SimClock
    from dledger.testing.faults import FaultCounts

# (path, file, writes it had when the sync began): the part that a sync in progress makes durable when it ends.
SyncedWrites = list[tuple[str, Inode, int]]


class SimFiles:
    """The disk operations of one process: `store.fs.ports.Files`.

    Attributes:
        crash_point: where this process dies.
        random: decides how much of the last operation takes effect.
        open_sync: while not None, `SimFile.sync` only records here what it covers: the simulated syncer lets time pass
            before it becomes durable.
        locked: directories locked by this process.
        clock: of the machine, for the modification times of files; None: there are none.
        after_sync: called after a file was synced, to let simulated time pass; None: a sync takes no time.
    """

    def __init__(self, disk: SimDisk, random: Random, counts: FaultCounts, clock: SimClock | None = None) -> None:
        self.clock = clock
        self.crash_point = CrashPoint()
        self.random = random
        self.open_sync: SyncedWrites | None = None
        self.after_sync: Callable[[], None] | None = None
        self.locked: dict[str, None] = {}
        self._disk = disk
        self._counts = counts

    def is_write_refused(self) -> bool:
        """Count a write; return whether it fails."""
        if not self._disk.write_fault.strikes():
            return False
        self._counts.add(Fault.WRITE_ERROR)
        return True

    def refuse_read(self, path: str) -> None:
        """Count a read.

        Raises:
            StorageFailed: the read fails.
        """
        if self._disk.read_fault.strikes():
            self._counts.add(Fault.READ_ERROR)
            raise StorageFailed(path, "read", io_error())

    def sync(self, path: str, inode: Inode, written_count: int) -> None:
        """Make the first `written_count` writes of a file durable.

        Raises:
            StorageFailed: the sync failed; any part of the writes may be durable.
        """
        if self._disk.sync_fault.strikes():
            self._counts.add(Fault.SYNC_ERROR)
            self._disk.fail_sync(inode, written_count)
            raise StorageFailed(path, "sync", io_error())
        inode.make_durable(written_count)
        if self.after_sync is not None:
            self.after_sync()

    def make_directory(self, path: str, *, is_durable: bool = True) -> None:
        """Create `path` and its missing parents; the sync of the last name is a separate operation and crash point."""
        is_dying = self.crash_point.reach()
        disk, missing = self._disk, [path]
        while (missing[-1] or "/") != "/" and missing[-1] not in disk.directories:
            missing.append(posixpath.dirname(missing[-1]))
        existing = missing.pop()
        if is_durable and not is_dying:
            disk.made.pop(existing, None)
        for made in reversed(missing):
            disk.directories[made] = Directory()
            if made == path or not is_durable:
                disk.made[made] = None
        if is_dying or (missing and is_durable and self.crash_point.reach()):
            raise SimulatedCrash
        if is_durable:
            disk.made.pop(path, None)

    def list_directory(self, path: str) -> list[str]:
        """Return the names in `path`, sorted; none when there is no such directory."""
        directory = self._disk.directories.get(path)
        if directory is None:
            return []
        start = path.rstrip("/") + "/"
        below = [other[len(start) :] for other in self._disk.directories if other.startswith(start) and other != start]
        return sorted([*directory.cached, *(name for name in below if "/" not in name)])

    def list_entries(self, path: str) -> list[tuple[str, bool]]:
        """Return the names in `path`, sorted, each with whether it is a directory."""
        return [(name, self.is_directory(posixpath.join(path, name))) for name in self.list_directory(path)]

    def scan_directories(
        self, directories: Sequence[str], *, is_cache_trusted: bool
    ) -> Iterator[Sequence[FileSummary]]:
        """Return the properties of the files of directories, in order."""
        for directory in directories:
            yield [
                self._summary(posixpath.join(directory, name), name, is_cache_trusted=is_cache_trusted)
                for name in self.list_directory(directory)
            ]

    def _summary(self, path: str, name: str, *, is_cache_trusted: bool) -> FileSummary:
        if self.is_directory(path):
            return FileSummary(name, -1)
        inode = self._existing(path)
        if not is_cache_trusted:
            inode.drop_clean_pages()
        ranges = SimFile(self, path, inode).data_ranges(0)
        data_end = ranges[-1][1] if ranges else 0
        tail = bytes(inode.cache[max(data_end - SUMMARY_SIZE_BYTES, 0) : data_end])
        return FileSummary(
            name, len(inode.cache), ranges, bytes(inode.cache[: min(SUMMARY_SIZE_BYTES, data_end)]), tail
        )

    def exists(self, path: str) -> bool:
        """Return whether a file or directory of this path exists."""
        return path in self._disk.directories or self._disk.lookup(path) is not None

    def is_directory(self, path: str) -> bool:
        """Return whether a directory of this path exists."""
        return path in self._disk.directories

    def create(self, path: str, size: int, *, is_sparse: bool = False) -> SimFile:
        """Create a file of `size` zero bytes; a process that dies here may leave an empty one.

        A sparse file also allocates its space, but a power cut before its first sync may leave it empty.

        Raises:
            StorageFailed: the file exists, or the operation failed.
            DiskFull: no space; no file remains.
        """
        directory, name = self._parent(path)
        if name in directory.cached:
            raise StorageFailed(path, "create", FileExistsError(errno.EEXIST, "file exists"))
        if self.crash_point.reach():
            self._die_creating(directory, name, size)
        if self.is_write_refused():
            raise StorageFailed(path, "create", io_error())
        if not self._disk.has_space(size):
            self._counts.add(Fault.DISK_FULL)
            raise DiskFull(path, size)
        inode = Inode(size, is_size_durable=not is_sparse)
        if self.clock is not None:
            inode.modified_us = self.clock.wall_us()
        directory.change(name, inode)
        return SimFile(self, path, inode)

    def _die_creating(self, directory: Directory, name: str, size: int) -> None:
        """Die before the file exists, while it is empty, or when it has its size."""
        reached = self.random.randint(0, 2)
        if reached:
            directory.change(name, Inode(size if reached == 2 else 0))
        raise SimulatedCrash

    def create_from(self, path: str, chunks: Iterable[bytes]) -> None:
        """Create a file with the content `chunks`; a process that dies here may leave it empty or complete."""
        content = b"".join(chunks)
        inode = self.create(path, len(content))
        inode.write(content, 0)
        inode.sync()

    def open(self, path: str, *, is_cache_trusted: bool = False) -> SimFile:
        """Open a file for reading and writing; clean pages are read again, unless they are trusted."""
        inode = self._existing(path)
        if not is_cache_trusted:
            inode.drop_clean_pages()
        return SimFile(self, path, inode)

    def write_existing(self, writes: Sequence[FileWrite]) -> Sequence[File | None]:
        """Open, allocate and write existing files, one after the other."""
        return write_in_turn(self, writes)

    def read_bytes(self, path: str) -> bytes | None:
        """Return the content of a small file; None when there is no such file."""
        self.refuse_read(path)
        inode = self._disk.lookup(path)
        return None if inode is None else bytes(inode.cache)

    def prepare_replace(self, path: str, size: int = SMALL_FILE_SIZE_BYTES) -> None:
        """Reserve the space for `replace`, once per path.

        Raises:
            DiskFull: there is no space.
        """
        is_dying = self.crash_point.reach()
        self._take_spare_space(path, size)
        if is_dying:
            raise SimulatedCrash

    def replace(self, path: str, content: bytes) -> None:
        """Replace a small file: a process that dies here leaves the old content, or the new one not yet durable.

        Raises:
            DiskFull: no space was reserved and none is free.
            StorageFailed: the operation failed; the old content remains.
        """
        self._take_spare_space(path, max(len(content), SMALL_FILE_SIZE_BYTES))
        if self.crash_point.reach():
            raise SimulatedCrash
        if self.is_write_refused():
            raise StorageFailed(path, "replace", io_error())
        directory, name = self._parent(path)
        inode = Inode(len(content))
        inode.write(content, 0)
        self.sync(path, inode, inode.written_count)
        directory.change(name, inode)
        self.sync_directory(posixpath.dirname(path))

    def _take_spare_space(self, path: str, size: int) -> None:
        if path in self._disk.spares:
            return
        if not self._disk.has_space(size):
            self._counts.add(Fault.DISK_FULL)
            raise DiskFull(path, size)
        self._disk.spares[path] = None

    def rename(self, path: str, new_path: str) -> None:
        """Rename a file within its directory, or a directory, atomically."""
        if not self.is_directory(path):
            self._existing(path)
        directory, name = self._parent(path)
        is_dying = self.crash_point.reach()
        if not is_dying and self.is_write_refused():
            raise StorageFailed(path, "rename", io_error())
        if not is_dying or self.random.random() < 0.5:
            if self.is_directory(path):
                self._disk.move(path, new_path)
            else:
                directory.rename(name, posixpath.basename(new_path))
        if is_dying:
            raise SimulatedCrash

    def remove(self, path: str) -> None:
        """Remove a file's name and its content."""
        self._existing(path)
        directory, name = self._parent(path)
        is_dying = self.crash_point.reach()
        if not is_dying and self.is_write_refused():
            raise StorageFailed(path, "remove", io_error())
        if not is_dying or self.random.random() < 0.5:
            directory.change(name, None)
        if is_dying:
            raise SimulatedCrash

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory, durably."""
        assert not self.list_directory(path), path
        is_dying = self.crash_point.reach()
        if not is_dying or self.random.random() < 0.5:
            self._disk.lose_directory(path)
        if is_dying:
            raise SimulatedCrash

    def sync_directory(self, path: str) -> None:
        """Make the names in `path` durable.

        Raises:
            StorageFailed: the sync failed; the changes wait for the next sync, or for a power cut.
        """
        is_dying = self.crash_point.reach()
        if not is_dying and self._disk.sync_fault.strikes():
            self._counts.add(Fault.SYNC_ERROR)
            raise StorageFailed(path, "sync", io_error())
        if not is_dying or self.random.random() < 0.5:
            self._disk.directories[path].sync()
            self._disk.settle_directories(path)
        if is_dying:
            raise SimulatedCrash

    def sync_all(self, files: Sequence[File], directories: Sequence[str]) -> None:
        """Sync them in order; stop at the first failure."""
        for file in files:
            file.sync()
        for path in directories:
            self.sync_directory(path)

    def sync_tree(self, path: str) -> None:
        """Sync all files and directories below `path`, one after the other."""
        below = [each for each in self._disk.directories if each == path or each.startswith(f"{path}/")]
        for directory in below:
            for name, inode in self._disk.directories[directory].cached.items():
                SimFile(self, posixpath.join(directory, name), inode).sync()
            self.sync_directory(directory)

    def modified_time(self, path: str) -> float:
        """Return the time of a file's last write by the clock of the machine; 0 without one."""
        return self._existing(path).modified_us / 1_000_000

    def disk_used_ratio(self, path: str) -> float:
        """Return the used part of the capacity."""
        assert path in self._disk.directories, path
        return min(1.0, self._disk.others_ratio + self._disk.used_bytes / self._disk.capacity_bytes)

    def lock(self, path: str) -> SimLock:
        """Lock a directory for this process.

        Raises:
            DirectoryLocked: this process has locked it already; the locks of a dead process are free.
        """
        if path in self.locked:
            raise DirectoryLocked(path, "simulated")
        self.locked[path] = None
        return SimLock(self, path)

    def lock_first_byte(self, path: str, content: bytes) -> SimLock:
        """Lock the file `path` for this process.

        Raises:
            DirectoryLocked: this process has locked it already; the locks of a dead process are free.
        """
        if not self.exists(path):
            self.create_from(path, [content])
        return self.lock(path)

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rpartition("/")
        directory = self._disk.directories.get(parent)
        if directory is None:
            raise StorageFailed(path, "open", FileNotFoundError(errno.ENOENT, "no such directory"))
        return directory, name

    def _existing(self, path: str) -> Inode:
        inode = self._disk.lookup(path)
        if inode is None:
            raise StorageFailed(path, "open", FileNotFoundError(errno.ENOENT, "no such file"))
        return inode
