"""Reads the metadata of the files of many directories: the implementation of `Files.scan_directories`.

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
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from store.errors import StorageFailed
from store.fs.descriptors import with_descriptor
from store.fs.linux.regular_files import data_ranges, open_with_status
from store.fs.ports import SUMMARY_SIZE_BYTES, FileSummary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Ranges = Sequence[tuple[int, int]]

# More threads would compete for Python's lock without using the disk better.
_THREADS: Final = 4
# Files of one thread that are open at a time while their pages are read in advance.
_OPEN_MAX: Final = 32
# Directories per task of a thread, and directories whose results are in memory at a time.
_PART: Final = 64
_AT_A_TIME: Final = 1024
# Context switches per part above which a thread is waiting for the disk, not only sometimes for a lock.
_WAITS_MAX: Final = 32


def scan_directories(directories: Sequence[str], *, is_cache_trusted: bool) -> Iterator[Sequence[FileSummary]]:
    """Yield the files of each directory (size, data ranges, first and last bytes), in the order of the directories.

    Raises:
        StorageFailed: a file cannot be opened or read.
    """
    scan = partial(_scan_some, is_cache_trusted=is_cache_trusted)
    is_read_ahead = not is_cache_trusted
    for first in range(0, len(directories), _AT_A_TIME):
        end = min(first + _AT_A_TIME, len(directories))
        parts = [directories[at : min(at + _PART, end)] for at in range(first, end, _PART)]
        is_alone = True
        while parts and is_alone:
            waits, blocks = _waits(), _blocks_read()
            found = scan(parts.pop(0), is_read_ahead=is_read_ahead)
            if _waits() - waits > _WAITS_MAX:
                # If it also waited for directories, requesting pages in advance is not enough.
                is_alone = not is_read_ahead
                is_read_ahead = True
            elif _blocks_read() == blocks:
                is_read_ahead = not is_cache_trusted
            yield from found
        if parts:
            with ThreadPoolExecutor(_THREADS, "scan_directories") as threads:
                for found in threads.map(partial(scan, is_read_ahead=True), parts):
                    yield from found


def _waits() -> int:
    """Return the number of voluntary context switches (sleeps) of this thread."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def _blocks_read() -> int:
    """Return the number of blocks read from disks for this thread, readahead included."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock


def _scan_some(directories: Sequence[str], *, is_cache_trusted: bool, is_read_ahead: bool) -> list[list[FileSummary]]:
    names = [_names(directory) for directory in directories]
    if is_read_ahead:
        paths = [f"{directory}/{name}" for directory, there in zip(directories, names, strict=True) for name in there]
        found = chain.from_iterable(
            _summaries_with_read_ahead(paths[at : at + _OPEN_MAX], is_cache_trusted=is_cache_trusted)
            for at in range(0, len(paths), _OPEN_MAX)
        )
        return [list(islice(found, len(there))) for there in names]
    return [
        [_summary(f"{directory}/{name}", name) for name in names_there]
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


def _summary(path: str, name: str) -> FileSummary:
    """Return the metadata of one file."""
    descriptor, size = _open(path)
    if descriptor < 0:
        return FileSummary(name, -1)
    try:
        return _read(descriptor, name, size, data_ranges(descriptor, 0, size))
    except OSError as error:
        raise StorageFailed(path, "read", error) from error
    finally:
        os.close(descriptor)


def _summaries_with_read_ahead(paths: Sequence[str], *, is_cache_trusted: bool) -> list[FileSummary]:
    """Return the metadata of a few files, after requesting the pages of all of them."""
    opened: list[tuple[int, int, Ranges]] = []
    found: list[FileSummary] = []
    at = 0
    try:
        for at in range(len(paths)):
            descriptor, size = _open(paths[at])
            opened.append((descriptor, size, ()))
            if descriptor >= 0:
                opened[at] = descriptor, size, _request(descriptor, size, is_cache_trusted=is_cache_trusted)
        for at, (descriptor, size, ranges) in enumerate(opened):
            found.append(_read(descriptor, paths[at].rpartition("/")[2], size, ranges))
    except OSError as error:
        raise StorageFailed(paths[at], "read", error) from error
    finally:
        for descriptor, _, _ in opened:
            if descriptor >= 0:
                os.close(descriptor)
    return found


def _request(descriptor: int, size: int, *, is_cache_trusted: bool) -> Ranges:
    """Request the pages of a file that `_read` needs, after dropping untrusted ones; return its ranges."""
    if not is_cache_trusted:
        # See `OsFiles.open`.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    ranges = data_ranges(descriptor, 0, size)
    if ranges:
        os.posix_fadvise(descriptor, 0, SUMMARY_SIZE_BYTES, os.POSIX_FADV_WILLNEED)
    if ranges and ranges[-1][1] > SUMMARY_SIZE_BYTES:
        position = ranges[-1][1] - SUMMARY_SIZE_BYTES
        os.posix_fadvise(descriptor, position, SUMMARY_SIZE_BYTES, os.POSIX_FADV_WILLNEED)
    return ranges


def _read(descriptor: int, name: str, size: int, ranges: Ranges) -> FileSummary:
    """Return the metadata of an open file, with the first and the last bytes of its data."""
    if not ranges:
        return FileSummary(name, size)
    data_end = ranges[-1][1]
    head = tail = os.pread(descriptor, min(SUMMARY_SIZE_BYTES, data_end), 0)
    if data_end > SUMMARY_SIZE_BYTES:
        tail = os.pread(descriptor, SUMMARY_SIZE_BYTES, data_end - SUMMARY_SIZE_BYTES)
    return FileSummary(name, size, ranges, head, tail)
