"""Groups of files, opened and written or synced by one call of the native module, without Python's lock.

A flush of thousands of small files spends most of its processor time between system calls, in Python, and keeps the
event loop from running for that time. Where the native module is missing, and for every file that it does not handle,
Python does the same: `store.fs.writing_in_turn`, `OsFile.sync`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Protocol

from dledger import native
from store.errors import StorageFailed
from store.fs.writing_in_turn import close_all, write_in_turn, write_one

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.fs.ports import File, Files, FileWrite

# Files that are locked and synced together: closing one of them waits for all.
_SYNCED_TOGETHER_MAX: Final = 32


class SyncableFile(Protocol):
    """A file that cannot be closed while it is held."""

    path: str

    def hold(self) -> int | None:
        """Prevent `close` until `let_go`; return the descriptor, None if the file is closed already."""
        ...

    def let_go(self) -> None:
        """Permit `close` again."""
        ...


def write_group(files: Files, writes: Sequence[FileWrite], file_of: Callable[[str, int], File]) -> list[File | None]:
    """Do what `Files.write_existing` documents.

    Args:
        files: the file system.
        writes: by path.
        file_of: returns the file of a path and its open descriptor.
    """
    opened: list[File | None] = []
    try:
        while len(opened) < len(writes):
            kernels = native.kernels
            rest = writes[len(opened) :]
            found = None if kernels is None else kernels.write_files(rest)
            if found is None:
                return opened + write_in_turn(files, rest)
            for write, descriptor in zip(rest, found, strict=False):
                opened.append(None if descriptor is None else file_of(write.path, descriptor))
            if len(found) < len(rest):
                # The one that could not be written: Python writes it, or raises its error.
                opened.append(write_one(files, rest[len(found)]))
    except BaseException:
        close_all(opened)
        raise
    return opened


def sync_group(files: Sequence[SyncableFile], threads_max: int) -> bool:
    """Sync open files in parallel threads of the native module; return whether it is in use.

    Raises:
        StorageFailed: of the first file whose sync failed; all other syncs have ended.
    """
    kernels = native.kernels
    if kernels is None:
        return False
    failed: StorageFailed | None = None
    for begin in range(0, len(files), _SYNCED_TOGETHER_MAX):
        part = files[begin : begin + _SYNCED_TOGETHER_MAX]
        # In one order for all threads, so that no two of them wait for each other.
        held = [(file.hold(), file) for file in sorted(part, key=id)]
        try:
            syncing = [(descriptor, file) for descriptor, file in held if descriptor is not None]
            failures = kernels.sync_files(tuple(descriptor for descriptor, _ in syncing), threads_max)
        finally:
            for _, file in held:
                file.let_go()
        if failures is None:  # on other systems, and then for the first part already
            return False
        for number, code in failures:
            if failed is None:
                failed = StorageFailed(syncing[number][1].path, "sync", OSError(code, os.strerror(code)))
    if failed is not None:
        raise failed
    return True
