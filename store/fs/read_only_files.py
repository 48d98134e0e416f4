"""A read-only implementation of the file ports: for stores in use, copies, and files without write permission."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from store.errors import StorageFailed
from store.fs.linux.reading import OsFileMap, OsReading
from store.fs.linux.regular_files import data_ranges, open_regular
from store.fs.ports import SMALL_FILE_SIZE_BYTES, File, Files, FileWrite

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Files that are mapped at a time; a map has no descriptor.
_OPEN_FILES_MAX = 256


class ReadOnlyFile(OsFileMap):
    """`store.fs.ports.File` for reading only."""

    __slots__ = ()

    def __init__(self, path: str) -> None:
        descriptor = open_regular(path, os.O_RDONLY)
        try:
            super().__init__(path, descriptor)
            self._map_now()
        finally:
            os.close(descriptor)

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """Return the ranges [begin, end) after `position`, ascending, outside of which all bytes are zero."""
        with Path(self.path).open("rb") as stream:
            return data_ranges(stream.fileno(), position, self.size)

    def read(self, position: int, size: int) -> bytes:
        """Return a copy of `size` bytes from `position`, by a read call, without the map."""
        try:
            with Path(self.path).open("rb") as stream:
                stream.seek(position)
                return stream.read(size)
        except OSError as error:
            raise StorageFailed(self.path, "read", error) from error

    def close(self) -> None:
        """Release the map; closing twice is allowed."""
        self._release_map()

    def discard(self) -> NoReturn:
        """Raise: the file system is read-only."""
        raise AssertionError(f"{self.path} is open for reading and must not be removed")

    def write(self, data: bytes | memoryview, position: int) -> NoReturn:
        """Raise: the file system is read-only."""
        raise AssertionError(f"{self.path} is open for reading: no write of {len(data)} bytes at {position}")

    def allocate(self, position: int, size: int) -> NoReturn:
        """Raise: the file system is read-only."""
        raise AssertionError(f"{self.path} is open for reading: no space for {size} bytes at {position}")

    def sync(self) -> None:
        """Do nothing, because there are no writes."""


class ReadOnlyFiles(OsReading):
    """`store.fs.ports.Files` for reading only: a call of any other method is a bug of the caller."""

    __slots__ = ()

    def size_of(self, path: str) -> int:
        """Return the size of a file.

        Raises:
            StorageFailed: there is no such file.
        """
        try:
            return Path(path).stat().st_size
        except OSError as error:
            raise StorageFailed(path, "stat", error) from error

    def is_taken(self, path: str) -> bool:
        """Return whether a name is in use, even by a broken link."""
        return self.exists(path) or Path(path).is_symlink()

    def open(self, path: str, *, is_cache_trusted: bool = False) -> ReadOnlyFile:  # noqa: ARG002
        """Open an existing file for reading and map it."""
        try:
            return ReadOnlyFile(path)
        except OSError as error:
            raise StorageFailed(path, "open", error) from error

    def make_directory(self, path: str, *, is_durable: bool = True) -> NoReturn:  # noqa: ARG002
        """Raise: the file system is read-only."""
        raise AssertionError(f"read-only: no directory {path}")

    def create(self, path: str, size: int, *, is_sparse: bool = False) -> NoReturn:
        """Raise: the file system is read-only."""
        raise AssertionError(f"read-only: no file {path} of {size} bytes (sparse: {is_sparse})")

    def create_from(self, path: str, chunks: Iterable[bytes]) -> NoReturn:
        """Raise: the file system is read-only."""
        raise AssertionError(f"read-only: no file {path} of {chunks}")

    def write_existing(self, writes: Sequence[FileWrite]) -> NoReturn:
        """Raise: the file system is read-only."""
        raise AssertionError(f"read-only: {[write.path for write in writes]} are not written")

    def prepare_replace(self, path: str, size: int = SMALL_FILE_SIZE_BYTES) -> NoReturn:
        """Raise: the file system is read-only."""
        raise AssertionError(f"read-only: no space of {size} bytes for {path}")

    def replace(self, path: str, content: bytes) -> NoReturn:
        """Raise: the file system is read-only."""
        raise AssertionError(f"read-only: {path} is not replaced by {len(content)} bytes")

    def rename(self, path: str, new_path: str) -> NoReturn:
        """Raise: the file system is read-only."""
        raise AssertionError(f"read-only: {path} does not become {new_path}")

    def remove(self, path: str) -> NoReturn:
        """Raise: the file system is read-only."""
        raise AssertionError(f"read-only: {path} stays")

    def remove_directory(self, path: str) -> NoReturn:
        """Raise: the file system is read-only."""
        raise AssertionError(f"read-only: {path} stays")

    def sync_directory(self, path: str) -> NoReturn:
        """Raise: the file system is read-only."""
        raise AssertionError(f"read-only: nothing to sync in {path}")

    def sync_all(self, files: Sequence[File], directories: Sequence[str]) -> NoReturn:
        """Raise: the file system is read-only."""
        raise AssertionError(f"read-only: nothing to sync in {len(files)} files of {directories}")

    def sync_tree(self, path: str) -> NoReturn:
        """Raise: the file system is read-only."""
        raise AssertionError(f"read-only: nothing to sync below {path}")

    def disk_used_ratio(self, path: str) -> NoReturn:
        """Raise: the file system is read-only."""
        raise AssertionError(f"read-only: the disk usage of {path} is not needed")

    def lock_first_byte(self, path: str, content: bytes) -> NoReturn:
        """Raise: the file system is read-only."""
        raise AssertionError(f"read-only: {path} is not locked with {content!r}")

    def lock(self, path: str) -> NoReturn:
        """Raise: the file system is read-only."""
        raise AssertionError(f"read-only: {path} is not locked")


class OpenFiles:
    """An LRU cache of files that are open for reading, so that a store of any size can be scanned.

    Args:
        files: opens them.
        count_max: number of open files; above it, the least recently used one is closed.
    """

    __slots__ = ("_count_max", "_files", "_open")

    def __init__(self, files: Files, count_max: int = _OPEN_FILES_MAX) -> None:
        self._files = files
        self._count_max = count_max
        self._open: OrderedDict[str, File] = OrderedDict()

    def get(self, path: str) -> File:
        """Return the open file of this name.

        Raises:
            store.errors.StorageFailed: it cannot be opened.
        """
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        while len(self._open) >= self._count_max:
            self._open.popitem(last=False)[1].close()
        file = self._open[path] = self._files.open(path)
        return file

    def close(self, path: str) -> None:
        """Release one file, if it is open; views of it stay valid."""
        file = self._open.pop(path, None)
        if file is not None:
            file.close()

    def close_all(self) -> None:
        """Release all files."""
        while self._open:
            self._open.popitem()[1].close()
