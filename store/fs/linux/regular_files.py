"""Regular files of the operating system: open, read, and find their data ranges."""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

# Files that are read as a whole are small: term, identity, checkpoint. The largest are the offsets of a RocketMQ store,
# about 100 MB for two million. Reading a sparse file of 1 TiB would exhaust the memory of the process.
READ_SIZE_BYTES_MAX: Final = 256 << 20


def open_regular(path: str, flags: int, mode: int = 0o600) -> int:
    """Return a descriptor of a regular file that no child process inherits.

    A FIFO would block its reader forever, so only regular files are opened.

    Raises:
        OSError: there is no such file, it cannot be opened, or it is not a regular file.
    """
    return open_with_status(path, flags, mode)[0]


def open_with_status(path: str, flags: int, mode: int = 0o600) -> tuple[int, os.stat_result]:
    """Return a descriptor of a regular file that no child process inherits, and the file's status.

    Raises:
        OSError: as `open_regular`.
    """
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, mode)
    status = os.fstat(descriptor)
    kind = status.st_mode
    if stat.S_ISREG(kind):
        return descriptor, status
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "it is not a regular file", path)


def read_regular(path: str) -> bytes:
    """Return the content of a regular file of at most `READ_SIZE_BYTES_MAX`.

    Raises:
        OSError: as `open_regular`; EFBIG: it is larger.
    """
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > READ_SIZE_BYTES_MAX:
            fault = f"it has {size} bytes, expected at most {READ_SIZE_BYTES_MAX}; move it away"
            raise OSError(errno.EFBIG, fault, path)
        return stream.read()


def data_ranges(descriptor: int, position: int, size: int) -> list[tuple[int, int]]:
    """Return the ranges `[begin, end)` of an open file of `size` bytes that have blocks, from `position` on, in order.

    On a file system without this information the whole file counts as data.
    """
    ranges: list[tuple[int, int]] = []
    end = position
    try:
        while end < size:
            begin = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, begin, os.SEEK_HOLE)
            ranges.append((begin, end))
    except OSError as error:
        if error.errno != errno.ENXIO:  # not the end of the data, but a file system without this information
            return [(position, size)]
    return ranges
