"""Reads files and directories; shared by writable and read-only access.

`store.fs.linux.files` adds writing, `store.fs.read_only_files` refuses it.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING

from store.errors import StorageFailed
from store.fs.descriptors import with_descriptor
from store.fs.linux.directory_scan import scan_directories
from store.fs.linux.file_map import map_file
from store.fs.linux.regular_files import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store.fs.ports import FileSummary


class OsFileMap:
    """The read methods of `store.fs.ports.File`: a shared read-only map of the page cache, which shows all writes.

    The file is mapped at its first read, because a file that is only written and synced needs no map.

    Args:
        path: of the file.
        descriptor: of the open file, owned by the caller, which closes it after `_map_now` or `_release_map`.
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
        """Return a copy of `size` bytes from `position`; fewer where the file ends."""
        return bytes(self.view()[position : position + size])

    def view(self) -> memoryview:
        """Return the whole file, read-only and live: it shows every later write, until `close`.

        Raises:
            StorageFailed: the file cannot be mapped.
        """
        view = self._view
        return self._map_now() if view is None else view

    def _map_now(self) -> memoryview:
        # An empty file cannot be mapped; callers refuse or remove it, but must be able to open it.
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
        """Disable readahead, because reads are small and random."""
        self._is_random = True
        if isinstance(self._map, mmap.mmap):
            self._map.madvise(mmap.MADV_RANDOM)

    def _release_map(self) -> None:
        """Release the map, which is freed with the last slice of the view that is in use."""
        self._view = memoryview(b"")
        self._map = b""


class OsReading:
    """The read methods of `store.fs.ports.Files`; it has no state."""

    __slots__ = ()

    def list_directory(self, path: str) -> list[str]:
        """Return the names in `path`, sorted; none when there is no such directory."""
        try:
            with with_descriptor(path, "list", lambda: os.scandir(path)) as entries:
                return sorted(entry.name for entry in entries)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageFailed(path, "list", error) from error

    def list_entries(self, path: str) -> list[tuple[str, bool]]:
        """Return the names in `path`, sorted, each with whether it is a directory; none without such a directory."""
        try:
            with with_descriptor(path, "list", lambda: os.scandir(path)) as entries:
                return sorted((entry.name, entry.is_dir()) for entry in entries)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageFailed(path, "list", error) from error

    def scan_directories(
        self, directories: Sequence[str], *, is_cache_trusted: bool
    ) -> Iterator[Sequence[FileSummary]]:
        """Yield the files of each directory, without keeping any open; see `store.fs.linux.directory_scan`."""
        return scan_directories(directories, is_cache_trusted=is_cache_trusted)

    def exists(self, path: str) -> bool:
        """Return whether there is a file or directory of this name."""
        return Path(path).exists()

    def is_directory(self, path: str) -> bool:
        """Return whether there is a directory of this name."""
        return Path(path).is_dir()

    def read_bytes(self, path: str) -> bytes | None:
        """Return the content of a small file; None when there is no such file."""
        try:
            return with_descriptor(path, "read", lambda: read_regular(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageFailed(path, "read", error) from error

    def modified_time(self, path: str) -> float:
        """Return the time of the last write: seconds since 1970 by the wall clock."""
        try:
            return Path(path).stat().st_mtime
        except OSError as error:
            raise StorageFailed(path, "stat", error) from error
