"""The file port for looking only: works on files of a running node and on those that one may not write."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path
from typing import NoReturn


class ReadOnlyFile:
    """`store.files.File` without the means to change anything."""

    __slots__ = ("_map", "_view", "path", "size")

    def __init__(self, path: str) -> None:
        self.path = path
        with Path(path).open("rb") as stream:
            self.size = os.fstat(stream.fileno()).st_size
            self._map = mmap.mmap(stream.fileno(), self.size, access=mmap.ACCESS_READ) if self.size else b""
        self._view = memoryview(self._map)

    def read(self, position: int, size: int) -> bytes:
        """See `File.read`."""
        return self._map[position : position + size]

    def view(self) -> memoryview:
        """See `File.view`."""
        return self._view

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """See `File.data_ranges`."""
        ranges: list[tuple[int, int]] = []
        end = position
        with Path(self.path).open("rb") as stream:
            try:
                while end < self.size:
                    begin = stream.seek(end, os.SEEK_DATA)
                    end = stream.seek(begin, os.SEEK_HOLE)
                    ranges.append((begin, end))
            except OSError as error:
                if error.errno != errno.ENXIO:  # not the end of the data, but a file system that cannot tell
                    return [(position, self.size)]
        return ranges

    def close(self) -> None:
        """See `File.close`."""
        self._view = memoryview(b"")
        self._map = b""

    def discard(self) -> NoReturn:
        """Refuse."""
        raise AssertionError(f"{self.path} is open for reading and must not be removed")

    def write(self, data: bytes | memoryview, position: int) -> NoReturn:
        """Refuse."""
        raise AssertionError(f"{self.path} is open for reading: no write of {len(data)} bytes at {position}")

    def allocate(self, position: int, size: int) -> NoReturn:
        """Refuse."""
        raise AssertionError(f"{self.path} is open for reading: no room for {size} bytes at {position}")

    def sync(self) -> None:
        """Do nothing: nothing was written."""
