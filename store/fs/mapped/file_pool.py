"""A pool of files with a bound on open ones: a store has thousands of queues, a process hundreds of descriptors.

A file of the pool is opened when it is used, and the least recently used ones are closed for it. Written files are
synced before, all together, so that closing loses no data; that may take milliseconds, and happens only if more files
than the pool's limit are written between two flushes.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING

from store.errors import OutOfDescriptors
from store.fs.descriptors import RESERVE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from store.fs.ports import File, QueueFiles

_LITTLE_DATA_BYTES = 128 << 10
# The n-th part of the files is closed when the limit is reached.
_RESTING_PART = 8
# The n-th part that is closed when the process has no descriptor left.
_SHORT_PART = 2


class PooledFile:
    """A `File` that is open only while it is used. `view` stays valid when the file is closed and reopened."""

    __slots__ = ("_file", "_pool", "_synced_count", "_written_count", "path", "size")

    def __init__(self, pool: FilePool, path: str, size: int, file: File | None = None) -> None:
        self.path = path
        self.size = size
        self._pool = pool
        self._file = file
        self._written_count = 0
        self._synced_count = 0

    def write(self, data: bytes | memoryview, position: int) -> None:
        """Write all of `data` at `position`, into the page cache; the file is opened if necessary."""
        self._written_count += 1
        self._opened().write(data, position)

    def read(self, position: int, size: int) -> bytes:
        """Return a copy of `size` bytes from `position`; fewer where the file ends."""
        return self._opened().read(position, size)

    def view(self) -> memoryview:
        """Return the whole file, read-only; it stays valid when the pool closes and reopens the file."""
        return self._opened().view()

    def allocate(self, position: int, size: int) -> None:
        """Allocate disk blocks for the range, so that writing it cannot fail on a full disk; its content is kept."""
        self._opened().allocate(position, size)

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """Return the ranges [begin, end) after `position`, ascending, outside of which all bytes are zero."""
        return self._opened().data_ranges(position)

    def advise_random(self) -> None:
        """Disable readahead for the file while it stays open."""
        self._opened().advise_random()

    def sync(self) -> None:
        """Make all writes so far durable. A closed file was synced when the pool closed it."""
        file, written_count = self._file, self._written_count
        if file is not None:
            file.sync()
            self._synced_count = written_count

    def close(self) -> None:
        """Close the file if it is open, and remove it from the pool."""
        file = self._forget()
        if file is not None:
            file.close()

    def discard(self) -> None:
        """Release a file that was removed, like `close`, without waiting for the system to free it."""
        file = self._forget()
        if file is not None:
            file.discard()

    @property
    def has_unsynced(self) -> bool:
        """Whether it may have been written since the last sync."""
        return self._synced_count != self._written_count

    def rest(self) -> None:
        """Close the file until its next use; for the pool only, which has synced it."""
        file = self._file
        assert file is not None, self.path
        self._file = None
        file.close()

    def _opened(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self._pool.reopen(self)
        else:
            self._pool.touch(self)
        return file

    def _forget(self) -> File | None:
        file, self._file = self._file, None
        if file is not None:
            self._pool.forget(self)
        return file


class FilePool:
    """`QueueFiles` that keeps at most `open_files_max` files open at a time."""

    __slots__ = ("_files", "_is_synced_later", "_open", "_open_files_max")

    def __init__(self, files: QueueFiles, open_files_max: int) -> None:
        assert open_files_max > 0, open_files_max
        self._files = files
        self._open_files_max = open_files_max
        self._is_synced_later = False
        # By identity, least recently used first.
        self._open: OrderedDict[int, PooledFile] = OrderedDict()

    def exists(self, path: str) -> bool:
        """Return whether there is a file or directory of this name."""
        return self._files.exists(path)

    def list_directory(self, path: str) -> list[str]:
        """Return the names in `path`, sorted; nothing if there is no such directory."""
        return self._files.list_directory(path)

    def create(self, path: str, size: int, *, is_sparse: bool = False) -> PooledFile:
        """Create a file of `size` bytes, sparse or with blocks; the least recently used file may be closed for it."""
        file = self._with_space(lambda: self._files.create(path, size, is_sparse=is_sparse))
        return self._admit(PooledFile(self, path, size, file))

    def open(self, path: str, *, is_cache_trusted: bool = False) -> PooledFile:
        """Open an existing file for reading and writing; the least recently used file may be closed for it."""
        file = self._with_space(lambda: self._open_file(path, is_cache_trusted=is_cache_trusted))
        return self._admit(PooledFile(self, path, file.size, file))

    def resting(self, path: str, size: int) -> PooledFile:
        """Return a file found by `Files.scan_directories`, with this size; it is opened when it is used."""
        return PooledFile(self, path, size)

    def remove(self, path: str) -> None:
        """Remove a file; its name may reappear after a crash until the directory is synced."""
        self._files.remove(path)

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in the directory durable."""
        self._files.sync_directory(path)

    def sync_all(self, files: Sequence[File], directories: Sequence[str]) -> None:
        """Sync files and directories, in no particular order; any thread may call it."""
        self._files.sync_all(files, directories)

    @contextmanager
    def synced_later(self) -> Iterator[None]:
        """Close files without a sync within this block; the caller syncs the whole directory tree afterwards."""
        self._is_synced_later = True
        try:
            yield
        finally:
            self._is_synced_later = False

    def reopen(self, pooled: PooledFile) -> File:
        """Reopen a closed file, which this process has read and which was synced before it was closed.

        In a `synced_later` block the caller's sync detects failed writes.
        """
        file = self._with_space(lambda: self._open_file(pooled.path, is_cache_trusted=True))
        self._admit(pooled)
        return file

    def _open_file(self, path: str, *, is_cache_trusted: bool) -> File:
        """Open a file; disable readahead if it is mostly a hole, because that would fill memory with zeros."""
        file = self._files.open(path, is_cache_trusted=is_cache_trusted)
        ranges = file.data_ranges(0)
        if not ranges or ranges[-1][1] <= _LITTLE_DATA_BYTES:
            file.advise_random()
        return file

    def touch(self, pooled: PooledFile) -> None:
        """Record that a file is used."""
        self._open.move_to_end(id(pooled))

    def forget(self, pooled: PooledFile) -> None:
        """Record that a file was closed permanently."""
        self._open.pop(id(pooled), None)

    def _admit(self, pooled: PooledFile) -> PooledFile:
        self._open[id(pooled)] = pooled
        return pooled

    def _with_space(self, make: Callable[[], File]) -> File:
        """Return the file that `make` opens; other files are closed first if no descriptor is free."""
        if len(self._open) >= self._open_files_max:
            # Several at once, because many syncs take little longer than one.
            self._close_oldest(len(self._open) - self._open_files_max + max(1, self._open_files_max // _RESTING_PART))
        elif RESERVE.is_short:
            self._close_oldest(-(-len(self._open) // _SHORT_PART))
            RESERVE.fill()
        while True:
            try:
                return make()
            except OutOfDescriptors:
                if not self._open:
                    raise
                self._close_oldest(-(-len(self._open) // _SHORT_PART))

    def _close_oldest(self, count: int) -> None:
        """Close the least recently used files."""
        oldest = [self._open.popitem(last=False)[1] for _ in range(count)]
        if not self._is_synced_later:
            self._files.sync_all([file for file in oldest if file.has_unsynced], ())
        for file in oldest:
            file.rest()
