"""A file system that calls a function once, before the first change is made through it.

A store that is opened says so durably before it changes anything: a crash in between must not look like an exit in
order. A start that refuses the store changes nothing, so it must not leave that note. Where opening decides that the
store is good is spread over many modules; here no change can come before the note, and no refusal need take it back.

Reading, locking, syncing and `prepare_replace` change nothing that a store holds.

Not here: what the function does (`store.maintenance.directory`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from store.errors import DiskFull
from store.fs.ports import SMALL_FILE_SIZE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from store.fs.ports import DirectoryLock, File, FileGlance, Files


class FirstChange:
    """Whether anything was changed, and what must be done before.

    Args:
        before: called once, before the first change; if it raises, the change is not made, and it is called again
            before the next one.

    Attributes:
        is_announced: `before` was called, and returned.
        is_made: something was, or may have been, changed.
    """

    def __init__(self, before: Callable[[], None]) -> None:
        self._before = before
        self.is_announced = False
        self.is_made = False

    def announce(self) -> None:
        """Do what must be done before a change, unless that was done."""
        if not self.is_announced:
            self._before()
            self.is_announced = True

    @contextmanager
    def change(self) -> Iterator[None]:
        """Surround one change."""
        self.announce()
        try:
            yield
        except DiskFull:  # by its contract, nothing was changed
            raise
        except BaseException:
            self.is_made = True
            raise
        self.is_made = True


class WatchedFile:
    """A `File` that was opened before the first change."""

    __slots__ = ("_file", "_first", "path", "size")

    def __init__(self, file: File, first: FirstChange) -> None:
        self._file = file
        self._first = first
        # Both are fixed while the file is open.
        self.path = file.path
        self.size = file.size

    def write(self, data: bytes | memoryview, position: int) -> None:
        """Write all of `data` at `position`, into the page cache."""
        if not self._first.is_made:
            self._first.announce()
            self._first.is_made = True
        self._file.write(data, position)

    def read(self, position: int, size: int) -> bytes:
        """Return a copy of `size` bytes from `position`."""
        return self._file.read(position, size)

    def view(self) -> memoryview:
        """Return the whole file, read-only and live."""
        return self._file.view()

    def allocate(self, position: int, size: int) -> None:
        """Give the range real disk blocks."""
        with self._first.change():
            self._file.allocate(position, size)

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """Return the ranges after `position` outside of which all bytes are zero."""
        return self._file.data_ranges(position)

    def advise_random(self) -> None:
        """Say that little is read, here and there."""
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


class WatchedFiles:
    """`Files` with another file system's files; each change goes through `first`.

    Args:
        files: the file system.
        first: see there.
    """

    def __init__(self, files: Files, first: FirstChange) -> None:
        self._files = files
        self._first = first

    def make_directory(self, path: str, *, is_durable: bool = True) -> None:
        """Create a directory and its missing parents; one that exists is no change."""
        if self._files.is_directory(path):
            self._files.make_directory(path, is_durable=is_durable)
            return
        with self._first.change():
            self._files.make_directory(path, is_durable=is_durable)

    def list_directory(self, path: str) -> list[str]:
        """Return the names in `path`, sorted."""
        return self._files.list_directory(path)

    def list_entries(self, path: str) -> list[tuple[str, bool]]:
        """Return the names in `path`, sorted, each with whether it is a directory."""
        return self._files.list_entries(path)

    def glance(self, directories: Sequence[str], *, is_cache_trusted: bool) -> Iterator[Sequence[FileGlance]]:
        """Look at all files of many directories."""
        return self._files.glance(directories, is_cache_trusted=is_cache_trusted)

    def exists(self, path: str) -> bool:
        """Return whether there is a file or directory of this name."""
        return self._files.exists(path)

    def is_directory(self, path: str) -> bool:
        """Return whether there is a directory of this name."""
        return self._files.is_directory(path)

    def create(self, path: str, size: int, *, is_sparse: bool = False) -> File:
        """Create a file of `size` zero bytes."""
        with self._first.change():
            return self._files.create(path, size, is_sparse=is_sparse)

    def create_from(self, path: str, chunks: Iterable[bytes]) -> None:
        """Create a file that holds `chunks`, and sync it."""
        with self._first.change():
            self._files.create_from(path, chunks)

    def open(self, path: str, *, is_cache_trusted: bool = False) -> File:
        """Open an existing file for reading and writing."""
        file = self._files.open(path, is_cache_trusted=is_cache_trusted)
        return file if self._first.is_made else WatchedFile(file, self._first)

    def read_bytes(self, path: str) -> bytes | None:
        """Return the content of a small file."""
        return self._files.read_bytes(path)

    def prepare_replace(self, path: str, size: int = SMALL_FILE_SIZE_BYTES) -> None:
        """Set the room aside that `replace` of `path` needs."""
        self._files.prepare_replace(path, size)

    def replace(self, path: str, content: bytes) -> None:
        """Replace the content of a small file, atomically and durably."""
        with self._first.change():
            self._files.replace(path, content)

    def rename(self, path: str, new_path: str) -> None:
        """Give a file another name."""
        with self._first.change():
            self._files.rename(path, new_path)

    def remove(self, path: str) -> None:
        """Remove a file."""
        with self._first.change():
            self._files.remove(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        with self._first.change():
            self._files.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in the directory durable."""
        self._files.sync_directory(path)

    def sync_all(self, files: Sequence[File], directories: Sequence[str]) -> None:
        """Sync files and directories, in no particular order."""
        self._files.sync_all(files, directories)

    def sync_tree(self, path: str) -> None:
        """Make durable all that is in and below a directory."""
        self._files.sync_tree(path)

    def modified_time(self, path: str) -> float:
        """Return when the file was last written."""
        return self._files.modified_time(path)

    def disk_used_ratio(self, path: str) -> float:
        """Return how full the file system is that holds `path`."""
        return self._files.disk_used_ratio(path)

    def lock_first_byte(self, path: str, content: bytes) -> DirectoryLock:
        """Lock the first byte of a lock file."""
        return self._files.lock_first_byte(path, content)

    def lock(self, path: str) -> DirectoryLock:
        """Take a lock file."""
        return self._files.lock(path)
