"""Makes a whole directory tree durable: the implementation of `Files.sync_tree`.

Syncing thousands of files is slow even if they were synced before: for each of them the disk flushes its own cache.
Linux makes a whole file system durable with one call. Since Linux 5.8 that call reports failed writes; on older kernels
each file and each directory is synced separately.
"""

from __future__ import annotations

import ctypes
import os
import re
from typing import Final, NoReturn

from store.errors import StorageFailed
from store.fs.descriptors import with_descriptor

_REPORTS_ERRORS_SINCE: Final = (5, 8)


def sync_tree(path: str) -> None:
    """Make durable all contents and names below `path`: by `syncfs` from Linux 5.8 on, which reports errors."""
    if tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= _REPORTS_ERRORS_SINCE:
        _sync_file_system(path)
    else:
        sync_one_by_one(path)


def sync_one_by_one(path: str) -> None:
    """Make all contents and names below `path` durable, with one sync for each file and directory."""
    for directory, _, names in os.walk(path, onerror=_raise_unlisted):
        for name in names:
            sync_path(f"{directory}/{name}", os.O_RDWR)
        sync_path(directory, os.O_RDONLY | os.O_DIRECTORY)


def _sync_file_system(path: str) -> None:
    descriptor = _open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if _syncfs(descriptor):
            number = ctypes.get_errno()
            raise StorageFailed(path, "sync", OSError(number, os.strerror(number)))
    finally:
        os.close(descriptor)


def sync_path(path: str, flags: int) -> None:
    """Open a file or a directory and sync it.

    Raises:
        StorageFailed: the node must stop.
    """
    descriptor = _open(path, flags)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise StorageFailed(path, "sync", error) from error
    finally:
        os.close(descriptor)


def _open(path: str, flags: int) -> int:
    try:
        return with_descriptor(path, "open", lambda: os.open(path, flags | os.O_CLOEXEC))
    except OSError as error:
        raise StorageFailed(path, "open", error) from error


def _raise_unlisted(error: OSError) -> NoReturn:
    raise StorageFailed(str(error.filename), "list", error) from error


_syncfs = ctypes.CDLL(None, use_errno=True).syncfs
