"""The ports of `store.fs.ports` on the operating system (Linux: flock, fdatasync, posix_fallocate, SEEK_DATA)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from store.errors import DirectoryLocked, DiskFull, ForeignFile, StorageFailed
from store.fs.descriptors import with_descriptor
from store.fs.linux.groups import sync_group, write_group
from store.fs.linux.modes import directory_mode_in, file_mode_in
from store.fs.linux.reading import OsFileMap, OsReading
from store.fs.linux.regular_files import data_ranges, open_regular
from store.fs.linux.tree_sync import sync_path, sync_tree
from store.fs.ports import SMALL_FILE_SIZE_BYTES, File

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from store.fs.ports import FileWrite

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
# Freeing a removed file of 1 GiB takes 0.3 s: too long for a thread that sends heartbeats.
_DISCARDS = ThreadPoolExecutor(1, "discard")
# Parallel syncs share a journal commit; sequential ones would each wait for their own.
_SYNC_THREADS_MAX = 4
# For fewer files threads cost more than they save.
_SYNCED_ALONE_MAX = 2
_IS_LOCKED = frozenset({errno.EACCES, errno.EAGAIN})
# `struct flock` of 64-bit Linux: `l_type`, `l_whence`, `l_start`, `l_len`, `l_pid`.
_FLOCK = struct.Struct("hhqqi4x")


class OsFile(OsFileMap):
    """`File` on the operating system: pwrite to write, a shared read-only map to read (one page cache, so coherent)."""

    __slots__ = ("_is_open", "_sync_lock")

    def __init__(self, path: str, descriptor: int) -> None:
        super().__init__(path, descriptor)
        self._is_open = True
        self._sync_lock = threading.Lock()

    def write(self, data: bytes | memoryview, position: int) -> None:
        """Write all of `data` at `position` by `pwrite`, into the page cache; it must end within the file."""
        size = len(data)
        assert 0 <= position <= self.size - size, (self.path, position, size, self.size)
        try:
            done = os.pwrite(self._descriptor, data, position)
            while done < size:
                done += os.pwrite(self._descriptor, memoryview(data)[done:], position + done)
        except OSError as error:
            raise StorageFailed(self.path, f"write of {size} bytes at {position}", error) from error

    def allocate(self, position: int, size: int) -> None:
        """Allocate disk blocks for the range by `posix_fallocate`; its content is kept."""
        assert 0 <= position <= self.size - size, (self.path, position, size, self.size)
        try:
            os.posix_fallocate(self._descriptor, position, size)
        except OSError as error:
            raise _no_space_or_failed(self.path, size, "allocate", error) from error

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """Return the ranges [begin, end) after `position`, ascending, outside of which all bytes are zero."""
        return data_ranges(self._descriptor, position, self.size)

    def sync(self) -> None:
        """Make everything written so far durable by `fdatasync`; any thread may call it, even on a closed file."""
        # The lock prevents that `close` in the owner's thread frees the descriptor's number for another file.
        with self._sync_lock:
            if not self._is_open:
                return
            try:
                os.fdatasync(self._descriptor)
            except OSError as error:
                raise StorageFailed(self.path, "sync", error) from error

    def hold(self) -> int | None:
        """Prevent `close` until `let_go`; return the descriptor, None if the file is closed already."""
        self._sync_lock.acquire()
        return self._descriptor if self._is_open else None

    def let_go(self) -> None:
        """Permit `close` again."""
        self._sync_lock.release()

    def close(self) -> None:
        """Close descriptor and map after a running `sync` has ended; closing twice is allowed."""
        if self._end():
            os.close(self._descriptor)
        self._release_map()

    def discard(self) -> None:
        """Release a removed file in another thread: freeing its blocks, with the last reference, is slow."""
        is_last, mapped = self._end(), self._map
        self._release_map()
        if is_last:
            _DISCARDS.submit(_close_and_unmap, self._descriptor, mapped)

    def _end(self) -> bool:
        """Prevent later syncs; return whether the descriptor must still be closed."""
        with self._sync_lock:
            was_open, self._is_open = self._is_open, False
        return was_open


class OsDirectoryLock:
    """`DirectoryLock` by flock: the kernel releases it when the process ends for any reason."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Release the lock; repeated calls are allowed. The lock file is kept to avoid a race."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class OsFiles(OsReading):
    """`Files` on the operating system; it has no state."""

    __slots__ = ()

    def make_directory(self, path: str, *, is_durable: bool = True) -> None:
        """Create `path` and its missing parents, durably; the name of an existing directory also becomes durable."""
        directory = Path(path).absolute()
        if directory.is_dir():
            if is_durable:
                self._sync_name(directory)
            return
        self.make_directory(str(directory.parent), is_durable=is_durable)
        try:
            # Another process may create it concurrently.
            directory.mkdir(directory_mode_in(str(directory.parent)), exist_ok=True)
        except OSError as error:
            raise StorageFailed(path, "make directory", error) from error
        if is_durable:
            self.sync_directory(str(directory.parent))

    def _sync_name(self, directory: Path) -> None:
        """Make the name of an existing directory durable: its creator may have been killed before the sync."""
        parent = directory.parent
        try:
            if directory.stat().st_dev == parent.stat().st_dev:
                self.sync_directory(str(parent))
        except OSError as error:
            raise StorageFailed(str(parent), "look at", error) from error
        except StorageFailed as error:
            # The parent may be a directory that this program may not read.
            if not isinstance(error.__cause__, PermissionError):
                raise

    def create(self, path: str, size: int, *, is_sparse: bool = False) -> OsFile:
        """Create a file of `size` zero bytes: with blocks and synced, or sparse and not synced."""
        descriptor = _open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, "create")
        try:
            if is_sparse:
                os.ftruncate(descriptor, size)
            else:
                os.posix_fallocate(descriptor, 0, size)
                os.fsync(descriptor)
            return OsFile(path, descriptor)
        except OSError as error:
            os.close(descriptor)
            self.remove(path)
            raise _no_space_or_failed(path, size, "create", error) from error

    def create_from(self, path: str, chunks: Iterable[bytes]) -> None:
        """Create a file with these chunks and sync it; its name is not durable yet. On failure no file remains."""
        descriptor = _open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, "create")
        size = 0
        try:
            for chunk in chunks:
                _write_all(descriptor, chunk)
                size += len(chunk)
            os.fsync(descriptor)
        except OSError as error:
            self.remove(path)
            raise _no_space_or_failed(path, size, "create", error) from error
        except BaseException:  # the iterator `chunks` failed: no partial file may remain
            self.remove(path)
            raise
        finally:
            os.close(descriptor)

    def open(self, path: str, *, is_cache_trusted: bool = False) -> OsFile:
        """Open an existing file for reading and writing; its clean pages are dropped from the page cache."""
        descriptor = _open(path, os.O_RDWR, "open")
        try:
            # After a failed sync Linux marks the pages that it could not write as clean. A process that reads them and
            # syncs without an error would rely on data that is not on the disk, so clean pages are read again.
            if not is_cache_trusted:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            return OsFile(path, descriptor)
        except OSError as error:
            os.close(descriptor)
            raise StorageFailed(path, "open", error) from error

    def write_existing(self, writes: Sequence[FileWrite]) -> list[File | None]:
        """Open, allocate and write existing files; return them open, None for a missing one."""
        return write_group(self, writes, OsFile)

    def prepare_replace(self, path: str, size: int = SMALL_FILE_SIZE_BYTES) -> None:
        """Create the spare file of `size` bytes, with which `replace` of `path` also works on a full disk."""
        _prepare_spare(path + ".spare", size)
        if not Path(path).exists():
            # The first replace has no old file to keep as the next spare, so an extra one is created.
            _prepare_spare(path + ".kept", size)

    def replace(self, path: str, content: bytes) -> None:
        """Replace the content of a small file, atomically and durably: after a crash it is the old or the new.

        The content is written into the spare file, which is renamed to `path`; the previous file becomes the next spare
        (kept by a second link in between). So no further block or name is needed.
        """
        spare = path + ".spare"
        descriptor = _open_spare(spare)
        try:
            _write_all(descriptor, content)
            os.ftruncate(descriptor, len(content))
            os.fsync(descriptor)
        except OSError as error:
            raise _no_space_or_failed(spare, len(content), "write", error) from error
        finally:
            os.close(descriptor)
        target, kept = Path(path), Path(path + ".kept")
        try:
            if target.exists():
                kept.unlink(missing_ok=True)  # left by a crash
                kept.hardlink_to(target)
            Path(spare).rename(target)
            with contextlib.suppress(FileNotFoundError):
                kept.rename(spare)
        except OSError as error:
            raise StorageFailed(path, "replace", error) from error
        self.sync_directory(str(target.parent))

    def rename(self, path: str, new_path: str) -> None:
        """Rename a file or a directory, atomically; durable after a sync of the directory of the new name."""
        try:
            Path(path).rename(new_path)
        except OSError as error:
            raise StorageFailed(path, f"rename to {new_path}", error) from error

    def remove(self, path: str) -> None:
        """Remove a file; its name may come back after a crash until the directory is synced."""
        try:
            Path(path).unlink()
        except OSError as error:
            raise StorageFailed(path, "remove", error) from error

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; it may reappear after a crash until its parent is synced."""
        try:
            Path(path).rmdir()
        except OSError as error:
            raise StorageFailed(path, "remove directory", error) from error

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in the directory durable."""
        sync_path(path or ".", os.O_RDONLY | os.O_DIRECTORY)

    def sync_all(self, files: Sequence[File], directories: Sequence[str]) -> None:
        """Sync files and directories, more than two in parallel threads; all have ended when it returns or raises."""
        own = [file for file in files if isinstance(file, OsFile)]
        if len(own) == len(files) > _SYNCED_ALONE_MAX and not directories and sync_group(own, _SYNC_THREADS_MAX):
            return
        works: list[Callable[[], None]] = [file.sync for file in files]
        works += [partial(self.sync_directory, path) for path in directories]
        if len(works) <= _SYNCED_ALONE_MAX:
            for work in works:
                work()
            return
        # New threads each time: they are cheap compared with the syncs, and none is lost by a fork.
        with ThreadPoolExecutor(min(_SYNC_THREADS_MAX, len(works)), "sync") as threads:
            syncing = [threads.submit(work) for work in works]
        for sync in syncing:
            sync.result()

    def sync_tree(self, path: str) -> None:
        """Make durable all contents and names in and below the directory `path`, written by any process."""
        sync_tree(path)

    def disk_used_ratio(self, path: str) -> float:
        """Return used / (used + usable by this process), from 0 to 1; space reserved for root is not counted."""
        try:
            status = os.statvfs(path)
        except OSError as error:
            raise StorageFailed(path, "statvfs", error) from error
        used = status.f_blocks - status.f_bfree
        usable = used + status.f_bavail
        return used / usable if usable else 0.0

    def lock(self, path: str) -> OsDirectoryLock:
        """Take the lock file `path` by `flock` and write this process's id into it; it ends with the process."""
        descriptor = _open(path, os.O_RDWR | os.O_CREAT, "create")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise DirectoryLocked(path, holder or "unknown") from None
        except OSError as error:
            os.close(descriptor)
            raise StorageFailed(path, "lock", error) from error
        # Informational: a disk too full for the number must not prevent the start.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return OsDirectoryLock(descriptor)

    def lock_first_byte(self, path: str, content: bytes) -> OsDirectoryLock:
        """Lock the first byte of the lock file `path`, as Java's `FileLock` does, for Java programs to see.

        Java uses a POSIX record lock. An open file description lock, as used here, conflicts with it; it also conflicts
        with another store of this process, and closing another descriptor does not release it.
        """
        descriptor = _open(path, os.O_RDWR | os.O_CREAT, "open")
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
            if not os.fstat(descriptor).st_size:
                _write_all(descriptor, content)
        except OSError as error:
            os.close(descriptor)
            if error.errno in _IS_LOCKED:
                raise DirectoryLocked(path, "unknown") from None
            raise _no_space_or_failed(path, len(content), "lock", error) from error
        return OsDirectoryLock(descriptor)


def _close_and_unmap(descriptor: int, mapped: mmap.mmap | bytes) -> None:
    """Close and unmap a file; the map is freed with the last slice of its view that is in use."""
    os.close(descriptor)
    if isinstance(mapped, mmap.mmap):
        with contextlib.suppress(BufferError):
            mapped.close()


def _prepare_spare(spare: str, size: int) -> None:
    descriptor = _open_spare(spare)
    try:
        # One block is enough for any small file, so a used spare is equivalent to a new one.
        if -(-os.fstat(descriptor).st_size // SMALL_FILE_SIZE_BYTES) < -(-size // SMALL_FILE_SIZE_BYTES):
            # Written, not only allocated, because converting an allocated block to a written one may need space.
            _write_all(descriptor, bytes(size))
            os.fsync(descriptor)
    except OSError as error:
        raise _no_space_or_failed(spare, size, "write", error) from error
    finally:
        os.close(descriptor)


def _open_spare(spare: str) -> int:
    """Return a descriptor of the spare file, which must have no other link."""
    try:
        descriptor = _open(spare, os.O_WRONLY | os.O_CREAT, "create")
    except StorageFailed as error:
        # It is the file that had the name before, which an operator may have made read-only.
        if not isinstance(error.__cause__, PermissionError):
            raise
    else:
        if os.fstat(descriptor).st_nlink == 1:
            return descriptor
        # After a crash it may be linked to the file in use, which must never be written in place.
        os.close(descriptor)
    try:
        Path(spare).unlink(missing_ok=True)
    except OSError as error:
        raise StorageFailed(spare, "remove", error) from error
    return _open(spare, os.O_WRONLY | os.O_CREAT, "create")


def _write_all(descriptor: int, content: bytes) -> None:
    """Write `content` at the descriptor's position, which is the start of a file just opened."""
    done = os.write(descriptor, content)
    while done < len(content):
        done += os.write(descriptor, memoryview(content)[done:])


def _open(path: str, flags: int, operation: str) -> int:
    """Return a descriptor that no child process inherits."""
    try:
        if flags & os.O_DIRECTORY:
            return with_descriptor(path, operation, lambda: os.open(path, flags | os.O_CLOEXEC))
        # Asked for only where a file may be created: other calls have no use for it.
        mode = file_mode_in(str(Path(path).parent)) if flags & os.O_CREAT else 0
        return with_descriptor(path, operation, lambda: open_regular(path, flags, mode))
    except IsADirectoryError as error:
        raise ForeignFile(path, "a file, found a directory") from error
    except OSError as error:
        raise _no_space_or_failed(path, 0, operation, error) from error


def _no_space_or_failed(path: str, needed_bytes: int, operation: str, error: OSError) -> DiskFull | StorageFailed:
    if error.errno in _NO_SPACE:
        return DiskFull(path, needed_bytes)
    return StorageFailed(path, operation, error)
