"""Reads the metadata of the files of many directories: the implementation of `Files.glance`.

A store has thousands of queues, whose files are mostly holes. Opening, mapping and searching each takes a millisecond;
this module reads the few bytes that show the end of a queue with about ten system calls.

While the pages are in the page cache one thread reads, because several would compete for Python's lock. If it waits for
the disk, or if all pages must be read from the disk, the pages of the following files are requested in advance. If it
still waits, the rest is read in several threads, because a disk serves parallel requests in little more time than one.
"""

from __future__ import annotations

import os
import resource
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

from store.errors import StorageFailed
from store.fs.descriptors import with_descriptor
from store.fs.linux.regular_files import data_ranges, open_with_status
from store.fs.ports import GLANCE_SIZE_BYTES, FileGlance

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# More threads would compete for Python's lock without using the disk better.
_THREADS: Final = 4
# Directories per task of a thread, and directories whose results are in memory at a time.
_PART: Final = 64
_AT_A_TIME: Final = 1024
# Context switches per part above which a thread is waiting for the disk, not only sometimes for a lock.
_WAITS_MAX: Final = 32


def glances(directories: Sequence[str], *, is_cache_trusted: bool) -> Iterator[Sequence[FileGlance]]:
    """Yield the files of each directory (size, data ranges, first and last bytes), in the order of the directories.

    Raises:
        StorageFailed: a file cannot be opened or read.
    """
    look = partial(_look_at_some, is_cache_trusted=is_cache_trusted)
    is_read_ahead = not is_cache_trusted
    for first in range(0, len(directories), _AT_A_TIME):
        end = min(first + _AT_A_TIME, len(directories))
        parts = [directories[at : min(at + _PART, end)] for at in range(first, end, _PART)]
        is_alone = True
        while parts and is_alone:
            waits, blocks = _waits(), _blocks_read()
            found = look(parts.pop(0), is_read_ahead=is_read_ahead)
            if _waits() - waits > _WAITS_MAX:
                # If it also waited for directories, requesting pages in advance is not enough.
                is_alone = not is_read_ahead
                is_read_ahead = True
            elif _blocks_read() == blocks:
                is_read_ahead = not is_cache_trusted
            yield from found
        if parts:
            with ThreadPoolExecutor(_THREADS, "glance") as threads:
                for found in threads.map(partial(look, is_read_ahead=True), parts):
                    yield from found


def _waits() -> int:
    """Return the number of voluntary context switches (sleeps) of this thread."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def _blocks_read() -> int:
    """Return the number of blocks read from disks for this thread, readahead included."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock


def _look_at_some(directories: Sequence[str], *, is_cache_trusted: bool, is_read_ahead: bool) -> list[list[FileGlance]]:
    names = [_names(directory) for directory in directories]
    if is_read_ahead:
        for directory, names_there in zip(directories, names, strict=True):
            for name in names_there:
                _read_ahead(f"{directory}/{name}", is_cache_trusted=is_cache_trusted)
    return [
        [_glance(f"{directory}/{name}", name) for name in names_there]
        for directory, names_there in zip(directories, names, strict=True)
    ]


def _names(directory: str) -> list[str]:
    """Return the names in a directory, sorted; nothing if there is no such directory."""
    try:
        return sorted(with_descriptor(directory, "list", partial(os.listdir, directory)))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageFailed(directory, "list", error) from error


def _open(path: str) -> tuple[int, int]:
    """Return descriptor and size of a file; both -1 for a directory."""
    try:
        descriptor, status = with_descriptor(path, "open", partial(open_with_status, path, os.O_RDWR))
    except IsADirectoryError:
        return -1, -1
    except OSError as error:
        raise StorageFailed(path, "open", error) from error
    return descriptor, status.st_size


def _read_ahead(path: str, *, is_cache_trusted: bool) -> None:
    """Request the pages of a file that `_glance` needs, after dropping untrusted ones."""
    descriptor, size = _open(path)
    if descriptor < 0:
        return
    try:
        if not is_cache_trusted:
            # See `OsFiles.open`.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        ranges = data_ranges(descriptor, 0, size)
        if ranges:
            os.posix_fadvise(descriptor, 0, GLANCE_SIZE_BYTES, os.POSIX_FADV_WILLNEED)
        if ranges and ranges[-1][1] > GLANCE_SIZE_BYTES:
            position = ranges[-1][1] - GLANCE_SIZE_BYTES
            os.posix_fadvise(descriptor, position, GLANCE_SIZE_BYTES, os.POSIX_FADV_WILLNEED)
    except OSError as error:
        raise StorageFailed(path, "read", error) from error
    finally:
        os.close(descriptor)


def _glance(path: str, name: str) -> FileGlance:
    descriptor, size = _open(path)
    if descriptor < 0:
        return FileGlance(name, -1)
    try:
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
