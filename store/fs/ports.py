"""The file system as the stores see it: the ports `Files`, `File` and `DirectoryLock`.

`store.fs.linux.files` implements them on the operating system. Nothing outside it opens, maps, locks or syncs a file,
so that a simulator can replace the disk.

What is assumed of the file system: a synced byte stays; of an unsynced write any sectors may be lost, also in the
middle; a rename is atomic; a name is durable once its directory is synced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# What a replaced file needs at most unless its owner says otherwise: one block.
SMALL_FILE_SIZE_BYTES = 4096
# The bytes of a file's begin, and of the end of its data, that `glance` reads.
GLANCE_SIZE_BYTES = 4096


class FileGlance(NamedTuple):
    """What one look at a file shows.

    Attributes:
        name: in its directory.
        size: bytes; -1: it is no file.
        ranges: see `File.data_ranges`, from 0 on.
        head: its first bytes.
        tail: the last bytes before the end of its last range.
    """

    name: str
    size: int
    ranges: Sequence[tuple[int, int]] = ()
    head: bytes = b""
    tail: bytes = b""


class File(Protocol):
    """One file of fixed size: written at positions, read through a map.

    All methods belong to the thread that owns the store, but `sync`, which any thread may call.
    """

    @property
    def path(self) -> str:
        """Where the file is."""
        ...

    @property
    def size(self) -> int:
        """Bytes; fixed while the file is open."""
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
        """Give the range real disk blocks, so that writing it cannot meet a full disk; its content stays.

        Raises:
            DiskFull: nothing was changed.
        """
        ...

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """Return the ranges [begin, end) after `position`, ascending, outside of which all bytes are zero.

        They may be larger than need be, also everything. Reading outside of them can make later answers larger.
        """
        ...

    def advise_random(self) -> None:
        """Disable read-ahead: little is read, at scattered positions, and holes must not be read."""
        ...

    def sync(self) -> None:
        """Make everything written so far durable. Any thread may call it; on a closed file it does nothing.

        A file is closed only when it was synced or removed, so that nothing is lost by that.

        Raises:
            StorageFailed: the node must stop and never sync this file again.
        """
        ...

    def close(self) -> None:
        """Close the file, after a `sync` under way. Closing twice is allowed."""
        ...

    def discard(self) -> None:
        """Close a file that was removed; the system frees a large one in the background, because that takes time."""
        ...


class DirectoryLock(Protocol):
    """The right to write into a directory, held by one process at a time."""

    def release(self) -> None:
        """Give the right back; twice is allowed."""
        ...


class QueueFiles(Protocol):
    """What a queue of files needs of a file system: the part of `Files` that `store.fs.file_pool` gives, too."""

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
        """Remove a file; its name may come back after a crash until the directory is synced."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in the directory durable."""
        ...

    def sync_all(self, files: Sequence[File], directories: Sequence[str]) -> None:
        """Sync files and directories, in no particular order; any thread may call it."""
        ...


class Files(Protocol):
    """A file system. Every method that is not stated to raise otherwise raises `StorageFailed`."""

    def make_directory(self, path: str, *, is_durable: bool = True) -> None:
        """Create `path` and its missing parents, durably; one that exists is fine.

        The name of one that exists becomes durable, too: a process that was killed may have made it and no more.

        Args:
            path: where.
            is_durable: False: the caller syncs the directories above those that were missing.
        """
        ...

    def list_directory(self, path: str) -> list[str]:
        """Return the names in `path`, sorted; none when there is no such directory."""
        ...

    def list_entries(self, path: str) -> list[tuple[str, bool]]:
        """Return the names in `path`, sorted, each with whether it is a directory; none without such a directory."""
        ...

    def glance(self, directories: Sequence[str], *, is_cache_trusted: bool) -> Iterator[Sequence[FileGlance]]:
        """Look at all files of many directories, and yield what each directory has, in the order of their names.

        Nothing stays open and nothing is mapped, and several directories are looked at together: a thousand take some
        ten milliseconds.

        Args:
            directories: paths; one that does not exist has no files.
            is_cache_trusted: False: what the system keeps in memory of the files, and has not to write any more, is
                read from the disk again, as `open` does.
        """
        ...

    def exists(self, path: str) -> bool:
        """Return whether there is a file or directory of this name."""
        ...

    def is_directory(self, path: str) -> bool:
        """Return whether there is a directory of this name."""
        ...

    def create(self, path: str, size: int, *, is_sparse: bool = False) -> File:
        """Create a file of `size` zero bytes with real disk blocks, and sync it; its name is not yet durable.

        Args:
            path: where.
            size: bytes.
            is_sparse: give it no blocks and do not sync it: before its first sync a crash may leave it empty, and
                `File.allocate` must go before each write that is not to meet a full disk.

        Raises:
            DiskFull: no file remains.
            StorageFailed: also when the file exists already.
        """
        ...

    def create_from(self, path: str, chunks: Iterable[bytes]) -> None:
        """Create a file that holds `chunks`, one after the other, and sync it; its name is not yet durable.

        Raises:
            DiskFull: no file remains.
            StorageFailed: also when the file exists already.
        """
        ...

    def open(self, path: str, *, is_cache_trusted: bool = False) -> File:
        """Open an existing file for reading and writing.

        Args:
            path: where.
            is_cache_trusted: this process had the file open before, or has looked at it, and every sync of it since
                then has succeeded. False: what the system keeps in memory of the file, and has not to write any more,
                is read from the disk again, for another process may have been refused it by the disk.
        """
        ...

    def read_bytes(self, path: str) -> bytes | None:
        """Return the content of a small file; None when there is no such file."""
        ...

    def prepare_replace(self, path: str, size: int = SMALL_FILE_SIZE_BYTES) -> None:
        """Set the room aside that `replace` of `path` needs, so that it also works on a full disk.

        A file that is always replaced by contents of the same `size` needs it only when it is opened.

        Raises:
            DiskFull: `replace` will then need room, too.
        """
        ...

    def replace(self, path: str, content: bytes) -> None:
        """Replace the content of a small file, atomically and durably: after a crash it is the old or the new.

        Raises:
            DiskFull: only without `prepare_replace`, or when the content is longer than what was prepared and the
                last one; the old content is kept.
        """
        ...

    def rename(self, path: str, new_path: str) -> None:
        """Give a file another name in the same directory, or a directory another path, atomically.

        Durable once the directory that holds the new name is synced. No other directory may have the new path, and no
        file of the one that is renamed may be created, written or removed by its old path until then.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file; its name may come back after a crash until the directory is synced."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; it may come back after a crash until the directory above it is synced."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in the directory durable."""
        ...

    def sync_all(self, files: Sequence[File], directories: Sequence[str]) -> None:
        """Sync files and directories, in no particular order; any thread may call it.

        Several at a time, for a file system makes them durable together: a thousand take a fraction of a second.

        Raises:
            StorageFailed: one of them could not be synced; all others have ended.
        """
        ...

    def sync_tree(self, path: str) -> None:
        """Make durable all that is in and below the directory `path`: contents and names, by any process.

        For thousands of files: it may also wait for what other programs have written to the same file system.

        Raises:
            StorageFailed: something of it may not be durable; the node must stop.
        """
        ...

    def modified_time(self, path: str) -> float:
        """Return when the file was last written: seconds since 1970 by the wall clock."""
        ...

    def disk_used_ratio(self, path: str) -> float:
        """Return the used share of the file system of `path`: used / (used + what this process may still use)."""
        ...

    def lock_first_byte(self, path: str, content: bytes) -> DirectoryLock:
        """Lock the first byte of the lock file `path`, as Java's `FileLock` does, for Java programs to see.

        Args:
            path: the lock file.
            content: what a file that is not there yet is made with.

        Raises:
            DirectoryLocked: another process holds it.
        """
        ...

    def lock(self, path: str) -> DirectoryLock:
        """Take the lock file `path` and write this process's id into it; the lock ends with the process.

        Raises:
            DirectoryLocked: another process holds it.
        """
        ...
