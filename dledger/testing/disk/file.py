"""An open file, and a held lock, of one simulated process; see `dledger.testing.disk.files`."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from dledger.testing.disk.disk import SECTOR_SIZE_BYTES
from dledger.testing.faults import SimulatedCrash
from store.errors import StorageFailed

if TYPE_CHECKING:
    from dledger.testing.disk.files import SimFiles
    from dledger.testing.disk.inode import Inode


class SimFile:
    """An open file: `store.fs.ports.File`."""

    __slots__ = ("_files", "_inode", "_view", "path", "size")

    def __init__(self, files: SimFiles, path: str, inode: Inode) -> None:
        self.path = path
        self.size = len(inode.cache)
        self._files = files
        self._inode = inode
        self._view = memoryview(inode.cache).toreadonly()

    def write(self, data: bytes | memoryview, position: int) -> None:
        """Write into the page cache; a process that dies here leaves any prefix that ends with a sector."""
        content = bytes(data)
        files = self._files
        if files.crash_point.reach():
            reached = position + files.random.randint(0, len(content))
            if reached < position + len(content):
                reached -= reached % SECTOR_SIZE_BYTES
            self._inode.write(content[: max(0, reached - position)], position)
            raise SimulatedCrash
        if files.is_write_refused():
            reached = position + files.random.randint(0, len(content))
            self._inode.write(content[: max(0, reached - reached % SECTOR_SIZE_BYTES - position)], position)
            raise StorageFailed(self.path, "write", io_error())
        self._inode.write(content, position)
        if files.clock is not None:
            self._inode.modified_us = files.clock.wall_us()

    def read(self, position: int, size: int) -> bytes:
        """Read from the page cache; fewer bytes where the file ends."""
        self._files.refuse_read(self.path)
        return self._view[position : position + size].tobytes()

    def view(self) -> memoryview:
        """Return the whole file, read-only; it shows later writes."""
        return self._view

    def allocate(self, position: int, size: int) -> None:
        """Do nothing: `SimFiles.create` allocates every byte."""
        assert 0 <= position <= position + size <= self.size, (self.path, position, size, self.size)

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """Return one range: from the sector of the first byte other than zero to that of the last one."""
        content = bytes(self._view[position:])
        begin = position + len(content) - len(content.lstrip(b"\0"))
        end = position + len(content.rstrip(b"\0"))
        if begin == self.size:
            return []
        first = max(position, begin - begin % SECTOR_SIZE_BYTES)
        return [(first, min(self.size, end + -end % SECTOR_SIZE_BYTES))]

    def advise_random(self) -> None:
        """Do nothing."""

    def sync(self) -> None:
        """Make the writes before this call durable."""
        files, inode = self._files, self._inode
        is_dying = files.crash_point.reach()
        if files.open_sync is not None and not is_dying:
            files.open_sync.append((self.path, inode, inode.written_count))
        elif not is_dying or files.random.random() < 0.5:
            files.sync(self.path, inode, inode.written_count)
        if is_dying:
            raise SimulatedCrash

    def close(self) -> None:
        """Close the file; no write becomes durable by it."""

    def discard(self) -> None:
        """Close a removed file."""


class SimLock:
    """A held directory lock: `store.fs.ports.DirectoryLock`."""

    __slots__ = ("_files", "_path")

    def __init__(self, files: SimFiles, path: str) -> None:
        self._files = files
        self._path = path

    def release(self) -> None:
        """Release the lock, so that another process can open the directory."""
        self._files.locked.pop(self._path, None)


def io_error() -> OSError:
    """Return the EIO error of a failing disk."""
    return OSError(errno.EIO, "input/output error")
