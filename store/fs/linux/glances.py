"""Looks at the files of many directories, several at a time: what `Files.glance` is on the operating system.

A store has thousands of queues, whose files are nearly all holes. To open, map and search each by itself costs a
millisecond; the few bytes that say where a queue ends are read here with some ten calls of the system.
Directories are looked at in several threads, because a disk answers several questions in hardly more time than one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from store.errors import StorageFailed
from store.fs.descriptors import with_descriptor
from store.fs.linux.regular_files import data_ranges, open_regular
from store.fs.ports import GLANCE_SIZE_BYTES, FileGlance

# More contend for Python's lock and not for the disk.
_THREADS: Final = 4
# Directories that one thread looks at before it is handed others, and directories whose files are in memory at a time.
_PART: Final = 64
_AT_A_TIME: Final = 1024
# Fewer are not worth the way to another thread.
_ALONE_MAX: Final = 64


def glances(directories: Sequence[str], *, is_cache_trusted: bool) -> Iterator[Sequence[FileGlance]]:
    """Yield what each directory holds (size, data ranges, first and last bytes of its files), in their order.

    Raises:
        StorageFailed: a file cannot be opened or read.
    """
    look = partial(_look_at_some, is_cache_trusted=is_cache_trusted)
    if len(directories) <= _ALONE_MAX:
        yield from look(directories)
        return
    with ThreadPoolExecutor(_THREADS, "glance") as threads:
        for first in range(0, len(directories), _AT_A_TIME):
            end = min(first + _AT_A_TIME, len(directories))
            parts = [directories[at : min(at + _PART, end)] for at in range(first, end, _PART)]
            for found in threads.map(look, parts):
                yield from found


def _look_at_some(directories: Sequence[str], *, is_cache_trusted: bool) -> list[list[FileGlance]]:
    return [_look_at(directory, is_cache_trusted=is_cache_trusted) for directory in directories]


def _look_at(directory: str, *, is_cache_trusted: bool) -> list[FileGlance]:
    """Return what the files of one directory show."""
    try:
        with with_descriptor(directory, "list", lambda: os.scandir(directory)) as entries:
            names = sorted(entry.name for entry in entries)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageFailed(directory, "list", error) from error
    return [_glance(directory, name, is_cache_trusted=is_cache_trusted) for name in names]


def _glance(directory: str, name: str, *, is_cache_trusted: bool) -> FileGlance:
    path = f"{directory}/{name}"
    try:
        descriptor = with_descriptor(path, "open", lambda: open_regular(path, os.O_RDWR))
    except IsADirectoryError:
        return FileGlance(name, -1)
    except OSError as error:
        raise StorageFailed(path, "open", error) from error
    try:
        if not is_cache_trusted:
            # See `OsFiles.open`.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        size = os.fstat(descriptor).st_size
        ranges = data_ranges(descriptor, 0, size)
        if not ranges:
            return FileGlance(name, size)
        data_end = ranges[-1][1]
        head = os.pread(descriptor, min(GLANCE_SIZE_BYTES, data_end), 0)
        tail = head
        if data_end > GLANCE_SIZE_BYTES:
            tail = os.pread(descriptor, GLANCE_SIZE_BYTES, data_end - GLANCE_SIZE_BYTES)
        return FileGlance(name, size, ranges, head, tail)
    except OSError as error:
        raise StorageFailed(path, "read", error) from error
    finally:
        os.close(descriptor)
