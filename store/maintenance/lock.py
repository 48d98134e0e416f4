"""The files `lock` and `abort`: the process that has a store open, and whether the last exit was clean.

`lock` has the four bytes "lock"; the process that has the store open holds a lock on the first of them. RocketMQ uses
the same lock, so the Java program and this one never have a store open at the same time.

`abort` exists while a store is open, and contains the process id as text; if it exists at a start, the store was not
closed cleanly.

Source: RocketMQ `DefaultMessageStore` (`start`, `createTempFile`, `isTempFileExist`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.errors import DirectoryLocked

if TYPE_CHECKING:
    from store.fs.ports import DirectoryLock, Files

LOCK_NAME = "lock"
ABORT_NAME = "abort"
_LOCK_CONTENT = b"lock"
# The suffix of the temporary name of `abort`.
_NEW_SUFFIX = ".new"


def lock_store(files: Files, root: str) -> DirectoryLock:
    """Lock a store for this process.

    Raises:
        store.errors.DirectoryLocked: another process has it open.
    """
    path = f"{root}/{LOCK_NAME}"
    try:
        return files.lock_first_byte(path, _LOCK_CONTENT)
    except DirectoryLocked:
        raise DirectoryLocked(path, _holder(files, root)) from None


def _holder(files: Files, root: str) -> str:
    """Return the process that has the store open, according to `abort`, which RocketMQ 4 leaves empty."""
    content = note_in(files, root) or b""
    return content.decode("ascii", "replace").strip() or "unknown"


def note_in(files: Files, root: str) -> bytes | None:
    """Return the content of `abort`; None: the last process closed the store cleanly, or it is new."""
    return files.read_bytes(f"{root}/{ABORT_NAME}")


def mark_open(files: Files, root: str, note: bytes) -> None:
    """Write `abort`, durably.

    An existing file is replaced in one step, so that no crash makes the store look closed cleanly.

    Args:
        files: the file system.
        root: the store's directory.
        note: the id of the process, as text.

    Raises:
        store.errors.DiskFull: there is no space for the file.
    """
    path = f"{root}/{ABORT_NAME}"
    if files.exists(path + _NEW_SUFFIX):  # left by a crash
        files.remove(path + _NEW_SUFFIX)
    files.create_from(path + _NEW_SUFFIX, [note])
    files.rename(path + _NEW_SUFFIX, path)
    files.sync_directory(root)


def mark_closed(files: Files, root: str) -> None:
    """Remove `abort`, durably: the whole store is synced and consistent."""
    path = f"{root}/{ABORT_NAME}"
    if files.exists(path):
        files.remove(path)
        files.sync_directory(root)
