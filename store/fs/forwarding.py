"""Wrappers of a file and of a file system that forward every call: bases for wrappers that override some methods.

The ports (`store.fs.ports`) document each method and its errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.fs.ports import SMALL_FILE_SIZE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from store.fs.ports import DirectoryLock, File, Files, FileSummary, FileWrite


class ForwardingFile:
    """`File` that forwards every call to another one.

    Attributes:
        path: of the file.
        size: in bytes; constant, like the path, while the file is open.
    """

    __slots__ = ("_file", "path", "size")

    def __init__(self, file: File) -> None:
        self._file = file
        self.path = file.path
        self.size = file.size

    def write(self, data: bytes | memoryview, position: int) -> None:
        """Write all of `data` at `position`, into the page cache."""
        self._file.write(data, position)

    def read(self, position: int, size: int) -> bytes:
        """Return a copy of `size` bytes from `position`."""
        return self._file.read(position, size)

    def view(self) -> memoryview:
        """Return the whole file, read-only and live."""
        return self._file.view()

    def allocate(self, position: int, size: int) -> None:
        """Allocate disk blocks for the range."""
        self._file.allocate(position, size)

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """Return the ranges after `position` outside of which all bytes are zero."""
        return self._file.data_ranges(position)

    def advise_random(self) -> None:
        """Advise the system of random reads."""
        self._file.advise_random()

    def sync(self) -> None:
        """Make everything written so far durable."""
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def discard(self) -> None:
        """Close a file that was removed."""
        self._file.discard()


class ForwardingFiles:
    """`Files` that forwards every call to another file system."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def make_directory(self, path: str, *, is_durable: bool = True) -> None:
        """Create a directory and its missing parents."""
        self._files.make_directory(path, is_durable=is_durable)

    def list_directory(self, path: str) -> list[str]:
        """Return the names in `path`, sorted."""
        return self._files.list_directory(path)

    def list_entries(self, path: str) -> list[tuple[str, bool]]:
        """Return the names in `path`, sorted, each with whether it is a directory."""
        return self._files.list_entries(path)

    def scan_directories(
        self, directories: Sequence[str], *, is_cache_trusted: bool
    ) -> Iterator[Sequence[FileSummary]]:
        """Read the metadata of all files of many directories."""
        return self._files.scan_directories(directories, is_cache_trusted=is_cache_trusted)

    def exists(self, path: str) -> bool:
        """Return whether there is a file or directory of this name."""
        return self._files.exists(path)

    def is_directory(self, path: str) -> bool:
        """Return whether there is a directory of this name."""
        return self._files.is_directory(path)

    def create(self, path: str, size: int, *, is_sparse: bool = False) -> File:
        """Create a file of `size` zero bytes."""
        return self._files.create(path, size, is_sparse=is_sparse)

    def create_from(self, path: str, chunks: Iterable[bytes]) -> None:
        """Create a file with `chunks`, and sync it."""
        self._files.create_from(path, chunks)

    def open(self, path: str, *, is_cache_trusted: bool = False) -> File:
        """Open an existing file for reading and writing."""
        return self._files.open(path, is_cache_trusted=is_cache_trusted)

    def write_existing(self, writes: Sequence[FileWrite]) -> Sequence[File | None]:
        """Open, allocate and write existing files."""
        return self._files.write_existing(writes)

    def read_bytes(self, path: str) -> bytes | None:
        """Return the content of a small file."""
        return self._files.read_bytes(path)

    def prepare_replace(self, path: str, size: int = SMALL_FILE_SIZE_BYTES) -> None:
        """Reserve the space that `replace` of `path` needs."""
        self._files.prepare_replace(path, size)

    def replace(self, path: str, content: bytes) -> None:
        """Replace the content of a small file, atomically and durably."""
        self._files.replace(path, content)

    def rename(self, path: str, new_path: str) -> None:
        """Rename a file."""
        self._files.rename(path, new_path)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._files.remove(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        self._files.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in the directory durable."""
        self._files.sync_directory(path)

    def sync_all(self, files: Sequence[File], directories: Sequence[str]) -> None:
        """Sync files and directories, in no particular order."""
        self._files.sync_all(files, directories)

    def sync_tree(self, path: str) -> None:
        """Make everything in and below a directory durable."""
        self._files.sync_tree(path)

    def modified_time(self, path: str) -> float:
        """Return the time of the last write to the file."""
        return self._files.modified_time(path)

    def disk_used_ratio(self, path: str) -> float:
        """Return the used share of the file system of `path`."""
        return self._files.disk_used_ratio(path)

    def lock_first_byte(self, path: str, content: bytes) -> DirectoryLock:
        """Lock the first byte of a lock file."""
        return self._files.lock_first_byte(path, content)

    def lock(self, path: str) -> DirectoryLock:
        """Take a lock file."""
        return self._files.lock(path)
