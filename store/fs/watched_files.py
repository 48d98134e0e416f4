"""A file system that calls a function once, before the first change.

An opened store records durably that it is open, before it changes anything: a crash in between must not look like a
clean exit. A start that refuses the store makes no change, so it must not leave that record. The checks of a store are
in many modules; with this wrapper no change can precede the record, and no refusal has to remove it.

Reading, locking, syncing and `prepare_replace` do not change the content of a store: they are passed on.

Not here: the function (`store.maintenance.directory`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from store.errors import DiskFull
from store.fs.forwarding import ForwardingFile, ForwardingFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from store.fs.ports import File, Files, FileWrite


class FirstChange:
    """Tracks the first change, and calls a function before it.

    Args:
        before: called once, before the first change; if it raises, the change is not made, and it is called again
            before the next one.

    Attributes:
        is_announced: `before` has returned.
        is_made: a change was made, or may have been.
    """

    def __init__(self, before: Callable[[], None]) -> None:
        self._before = before
        self.is_announced = False
        self.is_made = False

    def announce(self) -> None:
        """Call `before`, unless it was called already."""
        if not self.is_announced:
            self._before()
            self.is_announced = True

    @contextmanager
    def change(self) -> Iterator[None]:
        """Enclose one change."""
        self.announce()
        try:
            yield
        except DiskFull:  # by its contract, no change was made
            raise
        except BaseException:
            self.is_made = True
            raise
        self.is_made = True


class WatchedFile(ForwardingFile):
    """A `File` that was opened before the first change."""

    __slots__ = ("_first",)

    def __init__(self, file: File, first: FirstChange) -> None:
        super().__init__(file)
        self._first = first

    def write(self, data: bytes | memoryview, position: int) -> None:
        """Write all of `data` at `position`, into the page cache."""
        if not self._first.is_made:
            self._first.announce()
            self._first.is_made = True
        self._file.write(data, position)

    def allocate(self, position: int, size: int) -> None:
        """Allocate disk blocks for the range."""
        with self._first.change():
            self._file.allocate(position, size)


class WatchedFiles(ForwardingFiles):
    """`Files` that forwards to another file system and passes each change through `first`.

    Args:
        files: the file system.
        first: announces the first change, and records that there was one.
    """

    def __init__(self, files: Files, first: FirstChange) -> None:
        super().__init__(files)
        self._first = first

    def make_directory(self, path: str, *, is_durable: bool = True) -> None:
        """Create a directory and its missing parents; an existing one is not a change."""
        if self._files.is_directory(path):
            self._files.make_directory(path, is_durable=is_durable)
            return
        with self._first.change():
            self._files.make_directory(path, is_durable=is_durable)

    def create(self, path: str, size: int, *, is_sparse: bool = False) -> File:
        """Create a file of `size` zero bytes."""
        with self._first.change():
            return self._files.create(path, size, is_sparse=is_sparse)

    def create_from(self, path: str, chunks: Iterable[bytes]) -> None:
        """Create a file with `chunks`, and sync it."""
        with self._first.change():
            self._files.create_from(path, chunks)

    def open(self, path: str, *, is_cache_trusted: bool = False) -> File:
        """Open an existing file for reading and writing."""
        file = self._files.open(path, is_cache_trusted=is_cache_trusted)
        return file if self._first.is_made else WatchedFile(file, self._first)

    def write_existing(self, writes: Sequence[FileWrite]) -> Sequence[File | None]:
        """Open, allocate and write existing files."""
        self._first.announce()
        self._first.is_made = True
        return self._files.write_existing(writes)

    def replace(self, path: str, content: bytes) -> None:
        """Replace the content of a small file, atomically and durably."""
        with self._first.change():
            self._files.replace(path, content)

    def rename(self, path: str, new_path: str) -> None:
        """Rename a file."""
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
