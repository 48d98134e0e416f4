"""A file system that calls a function once, before the first change is made through it.

A store that is opened says so durably before it changes anything: a crash in between must not look like an exit in
order. A start that refuses the store changes nothing, so it must not leave that note. Where opening decides that the
store is good is spread over many modules; here no change can come before the note, and no refusal need take it back.

Reading, locking, syncing and `prepare_replace` change nothing that a store holds: they are passed on as they are.

Not here: what the function does (`store.maintenance.directory`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from store.errors import DiskFull
from store.fs.forwarding import ForwardingFile, ForwardingFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from store.fs.ports import File, Files


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
        """Give the range real disk blocks."""
        with self._first.change():
            self._file.allocate(position, size)


class WatchedFiles(ForwardingFiles):
    """`Files` with another file system's files; each change goes through `first`.

    Args:
        files: the file system.
        first: announces the first change, and records that there was one.
    """

    def __init__(self, files: Files, first: FirstChange) -> None:
        super().__init__(files)
        self._first = first

    def make_directory(self, path: str, *, is_durable: bool = True) -> None:
        """Create a directory and its missing parents; one that exists is no change."""
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
        """Create a file that holds `chunks`, and sync it."""
        with self._first.change():
            self._files.create_from(path, chunks)

    def open(self, path: str, *, is_cache_trusted: bool = False) -> File:
        """Open an existing file for reading and writing."""
        file = self._files.open(path, is_cache_trusted=is_cache_trusted)
        return file if self._first.is_made else WatchedFile(file, self._first)

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
