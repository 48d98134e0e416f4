"""The ports of the file system: `Files`, `File` and `DirectoryLock`.

`store.fs.linux.files` implements them on the operating system. No other code opens, maps, locks or syncs a file, so
that a simulator can replace the disk.

Assumptions about the file system: synced bytes persist; any sectors of an unsynced write may be lost; a rename is
atomic; a name is durable once its directory is synced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# The default size reserved for a file that is replaced: one block.
SMALL_FILE_SIZE_BYTES = 4096
# Bytes at a file's start, and at the end of its data, that `scan_directories` reads.
SUMMARY_SIZE_BYTES = 4096


class FileSummary(NamedTuple):
    """The metadata of a file, and its first and last bytes.

    Attributes:
        name: in its directory.
        size: in bytes; -1: it is not a file.
        ranges: see `File.data_ranges`, from 0 on.
        head: its first bytes.
        tail: the last bytes before the end of its last range.
    """

    name: str
    size: int
    ranges: Sequence[tuple[int, int]] = ()
    head: bytes = b""
    tail: bytes = b""


class FileWrite(NamedTuple):
    """What is written to an existing file.

    Attributes:
        path: of the file.
        position: of the first byte.
        data: must end within the file.
        allocated_size: blocks are allocated for this many bytes from `position` on, at least those of `data`.
    """

    path: str
    position: int
    data: bytes | memoryview
    allocated_size: int


class File(Protocol):
    """One file of fixed size: written by position, read through a map.

    All methods are for the thread that owns the store, except `sync`, which any thread may call.
    """

    @property
    def path(self) -> str:
        """The path of the file."""
        ...

    @property
    def size(self) -> int:
        """Size in bytes; fixed while the file is open."""
        ...

    def write(self, data: bytes | memoryview, position: int) -> None:
        """Write all of `data` at `position`, into the page cache; it must end within the file.

        Raises:
            StorageFailed: the node must stop.
        """
        ...

    def read(self, position: int, size: int) -> bytes:
        """Return a copy of `size` bytes from `position`; fewer where the file ends."""
        ...

    def view(self) -> memoryview:
        """Return the whole file, read-only and live: it shows every later write, until `close`."""
        ...

    def allocate(self, position: int, size: int) -> None:
        """Allocate disk blocks for the range, so that writing it cannot fail on a full disk; its content is kept.

        Raises:
            DiskFull: nothing was changed.
        """
        ...

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """Return the ranges [begin, end) after `position`, ascending, outside of which all bytes are zero.

        They may be larger than necessary, even the whole file. Reading outside of them can enlarge later results.
        """
        ...

    def advise_random(self) -> None:
        """Disable readahead: reads are small and scattered, and holes must not be read."""
        ...

    def sync(self) -> None:
        """Make everything written so far durable. Any thread may call it; on a closed file it does nothing.

        A file is closed only after it was synced or removed, so that no data is lost.

        Raises:
            StorageFailed: the node must stop and never sync this file again.
        """
        ...

    def close(self) -> None:
        """Close the file, after a running `sync`. Closing twice is allowed."""
        ...

    def discard(self) -> None:
        """Close a file that was removed; the system frees a large one in the background, because that takes time."""
        ...


class DirectoryLock(Protocol):
    """A lock on a directory; only the process that holds it may write there."""

    def release(self) -> None:
        """Release the lock; repeated calls are allowed."""
        ...


class QueueFiles(Protocol):
    """The part of `Files` that a queue of files needs; `store.fs.mapped.file_pool` implements it, too."""

    def exists(self, path: str) -> bool:
        """Return whether there is a file or directory of this name."""
        ...

    def list_directory(self, path: str) -> list[str]:
        """Return the names in `path`, sorted; none when there is no such directory."""
        ...

    def create(self, path: str, size: int, *, is_sparse: bool = False) -> File:
        """Create a file of `size` zero bytes, with disk blocks or sparse, as `Files.create` does."""
        ...

    def open(self, path: str, *, is_cache_trusted: bool = False) -> File:
        """Open an existing file for reading and writing."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; its name may reappear after a crash until the directory is synced."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in the directory durable."""
        ...

    def sync_all(self, files: Sequence[File], directories: Sequence[str]) -> None:
        """Sync files and directories, in no particular order; any thread may call it."""
        ...


class Files(Protocol):
    """A file system. Every method may raise `StorageFailed`, in addition to the errors that it documents."""

    def make_directory(self, path: str, *, is_durable: bool = True) -> None:
        """Create `path` and its missing parents, durably; it may exist already.

        The name of an existing directory becomes durable, too: its creator may have been killed before the sync.

        Args:
            path: its path.
            is_durable: False: the caller syncs the parents of those that were missing.
        """
        ...

    def list_directory(self, path: str) -> list[str]:
        """Return the names in `path`, sorted; none when there is no such directory."""
        ...

    def list_entries(self, path: str) -> list[tuple[str, bool]]:
        """Return the names in `path`, sorted, each with whether it is a directory; none without such a directory."""
        ...

    def scan_directories(
        self, directories: Sequence[str], *, is_cache_trusted: bool
    ) -> Iterator[Sequence[FileSummary]]:
        """Read the metadata of all files of many directories; yield the files of each directory, sorted by name.

        No file stays open or is mapped, and several directories are read together: a thousand take about
        ten milliseconds.

        Args:
            directories: paths; one that does not exist has no files.
            is_cache_trusted: False: clean pages of the files are dropped from the page cache, and
                read from the disk again, as by `open`.
        """
        ...

    def exists(self, path: str) -> bool:
        """Return whether there is a file or directory of this name."""
        ...

    def is_directory(self, path: str) -> bool:
        """Return whether there is a directory of this name."""
        ...

    def create(self, path: str, size: int, *, is_sparse: bool = False) -> File:
        """Create a file of `size` zero bytes with disk blocks, and sync it; its name is not durable yet.

        Args:
            path: its path.
            size: bytes.
            is_sparse: allocate no blocks and do not sync it: before its first sync a crash may leave it empty, and
                `File.allocate` must precede each write that must not fail on a full disk.

        Raises:
            DiskFull: no file remains.
            StorageFailed: also when the file exists already.
        """
        ...

    def create_from(self, path: str, chunks: Iterable[bytes]) -> None:
        """Create a file with the given chunks, in order, and sync it; its name is not durable yet.

        Raises:
            DiskFull: no file remains.
            StorageFailed: also when the file exists already.
        """
        ...

    def open(self, path: str, *, is_cache_trusted: bool = False) -> File:
        """Open an existing file for reading and writing.

        Args:
            path: its path.
            is_cache_trusted: this process had the file open, or has read its metadata, and every sync of it since then
                has succeeded. False: clean pages of the file are dropped from the page cache, and read from the disk
                again, because writing them may have failed in another process.
        """
        ...

    def write_existing(self, writes: Sequence[FileWrite]) -> Sequence[File | None]:
        """Open files as `open` does, trusting the cache, allocate and write; return them open, None for a missing one.

        One call for many small files, because each call for one costs time. The caller syncs and closes them.

        Raises:
            OutOfDescriptors: too many at a time for the descriptors that are left.
            DiskFull, StorageFailed: the write of one file failed.
            In each case all are closed, and any part may be written: the caller writes all of it again, or stops.
        """
        ...

    def read_bytes(self, path: str) -> bytes | None:
        """Return the content of a small file; None when there is no such file."""
        ...

    def prepare_replace(self, path: str, size: int = SMALL_FILE_SIZE_BYTES) -> None:
        """Reserve the space that `replace` of `path` needs, so that it also works on a full disk.

        If all contents have the same `size`, one call is enough, when the file is opened.

        Raises:
            DiskFull: `replace` will then need space, too.
        """
        ...

    def replace(self, path: str, content: bytes) -> None:
        """Replace the content of a small file, atomically and durably: after a crash it is the old or the new.

        Raises:
            DiskFull: only without `prepare_replace`, or if the content is longer than the reserved size and the
                previous content; the old content is kept.
        """
        ...

    def rename(self, path: str, new_path: str) -> None:
        """Give a file another name in the same directory, or a directory another path, atomically.

        Durable once the directory of the new name is synced. The new path must not exist as another directory, and
        until then no file of the renamed directory may be created, written or removed by its old path.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file; its name may reappear after a crash until the directory is synced."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; it may reappear after a crash until its parent is synced."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in the directory durable."""
        ...

    def sync_all(self, files: Sequence[File], directories: Sequence[str]) -> None:
        """Sync files and directories, in no particular order; any thread may call it.

        They are synced in parallel, because a file system makes them durable together: a thousand take a fraction of a
        second.

        Raises:
            StorageFailed: a sync failed; all other syncs have ended.
        """
        ...

    def sync_tree(self, path: str) -> None:
        """Make everything in and below the directory `path` durable: contents and names, written by any process.

        For thousands of files: it may also wait for writes of other programs to the same file system.

        Raises:
            StorageFailed: a part of it may not be durable; the node must stop.
        """
        ...

    def modified_time(self, path: str) -> float:
        """Return the time of the last write: seconds since 1970 by the wall clock."""
        ...

    def disk_used_ratio(self, path: str) -> float:
        """Return the used share of the file system of `path`: used / (used + available to this process)."""
        ...

    def lock_first_byte(self, path: str, content: bytes) -> DirectoryLock:
        """Lock the first byte of the lock file `path`, as Java's `FileLock` does, for Java programs to see.

        Args:
            path: the lock file.
            content: of the file, if it is created.

        Raises:
            DirectoryLocked: another process holds the lock.
        """
        ...

    def lock(self, path: str) -> DirectoryLock:
        """Lock the file `path` and write this process's id into it; the lock ends with the process.

        Raises:
            DirectoryLocked: another process holds the lock.
        """
        ...
