"""What reading files on the operating system needs, whether or not they may be written, too: one map each, and names.

`store.os_files` adds writing, `store.read_only_files` refuses it.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from pathlib import Path

from store.descriptors import with_descriptor
from store.errors import StorageFailed
from store.file_map import map_file


class OsFileMap:
    """The reading half of `store.files.File`: a shared read-only map, in one page cache with what is written.

    The file is mapped when it is first looked at: what is only written and synced needs no map.

    Args:
        path: of the file.
        descriptor: of the file, open; it stays the caller's, who closes it behind `_map_now` or `_let_go_of_map`.
    """

    __slots__ = ("_descriptor", "_is_random", "_map", "_view", "path", "size")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.size = os.fstat(descriptor).st_size
        self._descriptor = descriptor
        self._is_random = False
        self._map: mmap.mmap | bytes = b""
        self._view: memoryview | None = None

    def read(self, position: int, size: int) -> bytes:
        """See `File.read`."""
        return bytes(self.view()[position : position + size])

    def view(self) -> memoryview:
        """See `File.view`.

        Raises:
            StorageFailed: the file cannot be mapped.
        """
        view = self._view
        return self._map_now() if view is None else view

    def _map_now(self) -> memoryview:
        # An empty file cannot be mapped; whoever opens it refuses or removes it, but must be able to open it.
        if self.size:
            try:
                self._map = mapped = map_file(self._descriptor, self.size)
            except OSError as error:
                raise StorageFailed(self.path, "map", error) from error
            if self._is_random:
                mapped.madvise(mmap.MADV_RANDOM)
        self._view = memoryview(self._map)
        return self._view

    def advise_random(self) -> None:
        """See `File.advise_random`."""
        self._is_random = True
        if isinstance(self._map, mmap.mmap):
            self._map.madvise(mmap.MADV_RANDOM)

    def _let_go_of_map(self) -> None:
        """Slices of the view may live on elsewhere: the map goes when the last of them does."""
        self._view = memoryview(b"")
        self._map = b""


class OsReading:
    """The reading half of `store.files.Files`; it has no state."""

    __slots__ = ()

    def list_directory(self, path: str) -> list[str]:
        """See `Files.list_directory`."""
        try:
            with with_descriptor(path, "list", lambda: os.scandir(path)) as entries:
                return sorted(entry.name for entry in entries)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageFailed(path, "list", error) from error

    def exists(self, path: str) -> bool:
        """See `Files.exists`."""
        return Path(path).exists()

    def is_directory(self, path: str) -> bool:
        """See `Files.is_directory`."""
        return Path(path).is_dir()

    def read_bytes(self, path: str) -> bytes | None:
        """See `Files.read_bytes`."""
        try:
            return with_descriptor(path, "read", lambda: read_regular(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageFailed(path, "read", error) from error

    def modified_time(self, path: str) -> float:
        """See `Files.modified_time`."""
        try:
            return Path(path).stat().st_mtime
        except OSError as error:
            raise StorageFailed(path, "stat", error) from error


def open_regular(path: str, flags: int, mode: int = 0o644) -> int:
    """Return a descriptor of a regular file that no child process inherits.

    A FIFO in place of a file would block its reader for ever, so nothing else is opened.

    Raises:
        OSError: there is no such file, it cannot be opened, or it is something else.
    """
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, mode)
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "it is no regular file", path)


def read_regular(path: str) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: as `open_regular`.
    """
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as stream:
        return stream.read()


def data_ranges(descriptor: int, position: int, size: int) -> list[tuple[int, int]]:
    """Return what `File.data_ranges` tells of an open file of `size` bytes."""
    ranges: list[tuple[int, int]] = []
    end = position
    try:
        while end < size:
            begin = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, begin, os.SEEK_HOLE)
            ranges.append((begin, end))
    except OSError as error:
        if error.errno != errno.ENXIO:  # not the end of the data, but a file system that cannot tell
            return [(position, size)]
    return ranges
