"""Writes existing files one after the other: `Files.write_existing` for any file system, and its reference.

`store.fs.linux.groups` does the same for a group of files in one call of the native module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from store.fs.ports import File, Files, FileWrite


def write_in_turn(files: Files, writes: Sequence[FileWrite]) -> list[File | None]:
    """Open, allocate and write files; return them open, in order, None for a missing one; see `Files.write_existing`.

    Raises:
        DiskFull, StorageFailed: of the first file that failed; all are closed.
    """
    opened: list[File | None] = []
    try:
        for write in writes:
            opened.append(write_one(files, write))  # noqa: PERF401  (those before a failed one are closed)
    except BaseException:
        close_all(opened)
        raise
    return opened


def write_one(files: Files, write: FileWrite) -> File | None:
    """Open, allocate and write one file; return it open, or None if it is missing.

    Raises:
        DiskFull, StorageFailed: the file is closed.
    """
    if not files.exists(write.path):
        return None
    file = files.open(write.path, is_cache_trusted=True)
    try:
        file.allocate(write.position, write.allocated_size)
        file.write(write.data, write.position)
    except BaseException:
        file.close()
        raise
    return file


def close_all(files: Iterable[File | None]) -> None:
    """Close the files of a group that failed."""
    for file in files:
        if file is not None:
            file.close()
