"""The ports of `store.files` on the operating system (Linux: flock, fdatasync, posix_fallocate, SEEK_DATA)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import threading
from pathlib import Path

from store.errors import DirectoryLocked, DiskFull, StorageFailed

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_SPARE_SIZE_BYTES = 4096
_FILE_MODE = 0o644
_DIRECTORY_MODE = 0o755


class OsFile:
    """`File` on the operating system: pwrite to write, a shared read-only map to read (one page cache, so coherent)."""

    __slots__ = ("_descriptor", "_is_open", "_map", "_sync_lock", "_view", "path", "size")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        # An empty file cannot be mapped; the queue refuses it or removes it, but must be able to open it.
        self._map = mmap.mmap(descriptor, self.size, access=mmap.ACCESS_READ) if self.size else b""
        self._view = memoryview(self._map)
        self._is_open = True
        self._sync_lock = threading.Lock()

    def write(self, data: bytes | memoryview, position: int) -> None:
        """See `File.write`."""
        size = len(data)
        assert 0 <= position <= self.size - size, (self.path, position, size, self.size)
        try:
            done = os.pwrite(self._descriptor, data, position)
            while done < size:
                done += os.pwrite(self._descriptor, memoryview(data)[done:], position + done)
        except OSError as error:
            raise StorageFailed(self.path, f"write of {size} bytes at {position}", error) from error

    def read(self, position: int, size: int) -> bytes:
        """See `File.read`."""
        return self._map[position : position + size]

    def view(self) -> memoryview:
        """See `File.view`."""
        return self._view

    def allocate(self, position: int, size: int) -> None:
        """See `File.allocate`."""
        assert 0 <= position <= self.size - size, (self.path, position, size, self.size)
        try:
            os.posix_fallocate(self._descriptor, position, size)
        except OSError as error:
            raise _no_room_or_failed(self.path, size, "allocate", error) from error

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """See `File.data_ranges`."""
        ranges: list[tuple[int, int]] = []
        end = position
        try:
            while end < self.size:
                begin = os.lseek(self._descriptor, end, os.SEEK_DATA)
                end = os.lseek(self._descriptor, begin, os.SEEK_HOLE)
                ranges.append((begin, end))
        except OSError as error:
            if error.errno != errno.ENXIO:  # not the end of the data, but a file system that cannot tell
                return [(position, self.size)]
        return ranges

    def sync(self) -> None:
        """See `File.sync`."""
        # Without the lock, `close` in the owner's thread could hand the descriptor's number to another file.
        with self._sync_lock:
            if not self._is_open:
                return
            try:
                os.fdatasync(self._descriptor)
            except OSError as error:
                raise StorageFailed(self.path, "sync", error) from error

    def close(self) -> None:
        """See `File.close`."""
        with self._sync_lock:
            if not self._is_open:
                return
            self._is_open = False
            os.close(self._descriptor)
        # Slices of the view may live on elsewhere: the map goes when the last of them does.
        self._view = memoryview(b"")
        self._map = b""


class OsDirectoryLock:
    """`DirectoryLock` by flock: the kernel releases it when the process ends, however it ends."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """See `DirectoryLock.release`. The lock file stays: removing it would race with the next holder."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class OsFiles:
    """`Files` on the operating system; it has no state."""

    __slots__ = ()

    def make_directory(self, path: str) -> None:
        """See `Files.make_directory`."""
        directory = Path(path).absolute()
        if directory.is_dir():
            return
        self.make_directory(str(directory.parent))
        try:
            directory.mkdir(_DIRECTORY_MODE)
        except OSError as error:
            raise StorageFailed(path, "make directory", error) from error
        self.sync_directory(str(directory.parent))

    def list_directory(self, path: str) -> list[str]:
        """See `Files.list_directory`."""
        try:
            return sorted(entry.name for entry in Path(path).iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageFailed(path, "list", error) from error

    def exists(self, path: str) -> bool:
        """See `Files.exists`."""
        return Path(path).exists()

    def create(self, path: str, size: int) -> OsFile:
        """See `Files.create`."""
        descriptor = _open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, "create")
        try:
            os.posix_fallocate(descriptor, 0, size)
            os.fsync(descriptor)
            return OsFile(path, descriptor)
        except OSError as error:
            os.close(descriptor)
            self.remove(path)
            raise _no_room_or_failed(path, size, "create", error) from error

    def open(self, path: str) -> OsFile:
        """See `Files.open`."""
        descriptor = _open(path, os.O_RDWR, "open")
        try:
            return OsFile(path, descriptor)
        except OSError as error:
            os.close(descriptor)
            raise StorageFailed(path, "map", error) from error

    def read_bytes(self, path: str) -> bytes | None:
        """See `Files.read_bytes`."""
        try:
            return Path(path).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageFailed(path, "read", error) from error

    def prepare_replace(self, path: str) -> None:
        """See `Files.prepare_replace`."""
        _prepare_spare(path + ".spare")
        if not Path(path).exists():
            # The first replace has no old file to keep as the next spare: this one takes its place.
            _prepare_spare(path + ".kept")

    def replace(self, path: str, content: bytes) -> None:
        """See `Files.replace`.

        The content goes into the spare file, which takes the name in one rename; the file that had the name becomes
        the next spare (kept by a second link meanwhile). So no block and no name is ever needed anew.
        """
        assert len(content) <= _SPARE_SIZE_BYTES, len(content)
        spare = path + ".spare"
        descriptor = _open_spare(spare)
        try:
            os.pwrite(descriptor, content, 0)
            os.ftruncate(descriptor, len(content))
            os.fsync(descriptor)
        except OSError as error:
            raise _no_room_or_failed(spare, len(content), "write", error) from error
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

    def remove(self, path: str) -> None:
        """See `Files.remove`."""
        try:
            Path(path).unlink()
        except OSError as error:
            raise StorageFailed(path, "remove", error) from error

    def sync_directory(self, path: str) -> None:
        """See `Files.sync_directory`."""
        descriptor = _open(path or ".", os.O_RDONLY | os.O_DIRECTORY, "open")
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise StorageFailed(path, "sync", error) from error
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> OsDirectoryLock:
        """See `Files.lock`."""
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
        # Only for people: a disk too full to hold the number is no reason not to start.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return OsDirectoryLock(descriptor)


def _prepare_spare(spare: str) -> None:
    descriptor = _open_spare(spare)
    try:
        if os.fstat(descriptor).st_size == 0:
            # Written, not only allocated: turning an allocated block into a written one may itself need room.
            os.pwrite(descriptor, bytes(_SPARE_SIZE_BYTES), 0)
            os.fsync(descriptor)
    except OSError as error:
        raise _no_room_or_failed(spare, _SPARE_SIZE_BYTES, "write", error) from error
    finally:
        os.close(descriptor)


def _open_spare(spare: str) -> int:
    """Return a descriptor of the spare file, which no other name shares."""
    descriptor = _open(spare, os.O_WRONLY | os.O_CREAT, "create")
    if os.fstat(descriptor).st_nlink == 1:
        return descriptor
    # A crash left it linked to the file in use, which must never be written in place.
    os.close(descriptor)
    Path(spare).unlink()
    return _open(spare, os.O_WRONLY | os.O_CREAT, "create")


def _open(path: str, flags: int, operation: str) -> int:
    """Return a descriptor that no child process inherits."""
    try:
        return os.open(path, flags | os.O_CLOEXEC, _FILE_MODE)
    except OSError as error:
        raise _no_room_or_failed(path, 0, operation, error) from error


def _no_room_or_failed(path: str, needed_bytes: int, operation: str, error: OSError) -> DiskFull | StorageFailed:
    if error.errno in _NO_ROOM:
        return DiskFull(path, needed_bytes)
    return StorageFailed(path, operation, error)
