"""Finds the process that has a store open, without changing or locking anything.

Nodes of this program lock the whole lock file (flock), RocketMQ locks the first byte of its lock file (a record lock).
The kernel releases both when the process ends.
"""

from __future__ import annotations

import fcntl
import os
import struct
from typing import IO, TYPE_CHECKING

from store.errors import StorageFailed
from store.fs.linux.regular_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterable

UNKNOWN_HOLDER = "another process"

# l_type, l_whence, l_start, l_len, l_pid, as in fcntl(2) on Linux
_RECORD_LOCK = struct.Struct("@hhqqi")


def find_holder(paths: Iterable[str]) -> str | None:
    """Return the process that has locked one of the files: its id, or "another process"; None: no lock is held.

    A shared lock is held for the duration of one system call.

    Raises:
        store.errors.StorageFailed: a lock file exists and cannot be read.
    """
    for path in paths:
        try:
            with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as stream:
                holder = _record_lock_holder(stream) or _whole_lock_holder(stream)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageFailed(path, "open", error) from error
        if holder:
            return holder
    return None


def _record_lock_holder(stream: IO[bytes]) -> str | None:
    asked = _RECORD_LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    kind, _, _, _, process_id = _RECORD_LOCK.unpack(fcntl.fcntl(stream, fcntl.F_GETLK, asked)[: _RECORD_LOCK.size])
    if kind == fcntl.F_UNLCK:
        return None
    return f"process {process_id}" if process_id > 0 else UNKNOWN_HOLDER


def _whole_lock_holder(stream: IO[bytes]) -> str | None:
    try:
        fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        process_id = stream.read(32).decode("ascii", "replace").strip()
        return f"process {process_id}" if process_id.isdigit() else UNKNOWN_HOLDER
    fcntl.flock(stream, fcntl.LOCK_UN)
    return None
