"""Files of a log of lines: the newest grows to a size, older ones have numbers, the oldest is deleted.

`NAME.jsonl` is written, `NAME.1.jsonl` is the one before it, and so on. All have mode 0600. A line is whole, or it is
missing: a partial record of a full disk is removed, and one of a crash is ended by a line feed at the next start.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cluster.audit.chain import LINE_SIZE_BYTES_MAX
from store.fs.linux.regular_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_MODE: Final = 0o600
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW


class RotatedFile:
    """The files of one series. One thread uses it.

    Args:
        directory: of the files; it exists.
        name: of the newest file, without `.jsonl`.
        size_bytes_max: of each file.
        files_max: with the newest one; at least two.
        rotated: called after each rotation with the last line of the file that it deleted; empty: it deleted none, or
            the line cannot be read.

    Raises:
        OSError: the newest file cannot be opened.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        size_bytes_max: int,
        files_max: int,
        rotated: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        self.path = directory / f"{name}.jsonl"
        self._older = [directory / f"{name}.{number}.jsonl" for number in range(1, files_max)]
        self._size_bytes_max = size_bytes_max
        self._rotated = rotated
        self._descriptor = -1
        self._size_bytes = 0
        self._open()

    def append(self, line: bytes) -> None:
        """Write one line, of at most the size of a file.

        Raises:
            OSError: it is not written.
        """
        if self._size_bytes and self._size_bytes + len(line) > self._size_bytes_max:
            self._rotate()
        elif self._descriptor < 0:
            self._open()
        try:
            written = os.write(self._descriptor, line)
            if written < len(line):
                # The rest shows the reason, as an error.
                written += os.write(self._descriptor, line[written:])
        except OSError:
            os.ftruncate(self._descriptor, self._size_bytes)
            raise
        self._size_bytes += written

    def last_line(self) -> bytes:
        """Return the last line of all files, without its line feed; empty: there is none.

        Raises:
            OSError: a file cannot be read.
        """
        for path in (self.path, *self._older):
            if path.exists() and path.stat().st_size:
                return _last_line_of(path)
        return b""

    def first_line(self) -> bytes:
        """Return the first line of all files; empty: there is none.

        Raises:
            OSError: a file cannot be read.
        """
        for path in (*reversed(self._older), self.path):
            if path.exists() and path.stat().st_size:
                with path.open("rb") as file:
                    return file.readline(LINE_SIZE_BYTES_MAX)
        return b""

    def sync(self) -> None:
        """Make all lines durable.

        Raises:
            OSError: they may be lost when the machine fails.
        """
        if self._descriptor >= 0:
            os.fdatasync(self._descriptor)  # noqa: TID251  (no file of the store)

    def close(self) -> None:
        """Close the file; twice is allowed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        descriptor = open_regular(str(self.path), _FLAGS, _MODE)
        try:
            # An old one, or the mask of the process.
            os.fchmod(descriptor, _MODE)
            size_bytes = os.fstat(descriptor).st_size
            if size_bytes and os.pread(descriptor, 1, size_bytes - 1) != b"\n":
                size_bytes += os.write(descriptor, b"\n")
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor, self._size_bytes = descriptor, size_bytes

    def _rotate(self) -> None:
        self.close()
        paths = [self.path, *self._older]
        deleted = b""
        if paths[-2].exists():
            # Absent, or not readable: it is replaced in any case.
            with suppress(OSError):
                deleted = _last_line_of(paths[-1])
        for newer, older in zip(reversed(paths[:-1]), reversed(paths[1:]), strict=True):
            if newer.exists():
                newer.replace(older)
        # Before the file is opened: if that fails, the next line must not move the older files once more.
        self._size_bytes = 0
        self._rotated(deleted)
        self._open()


def _last_line_of(path: Path) -> bytes:
    """Return the last line of a file, without its line feed.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        file.seek(-min(path.stat().st_size, LINE_SIZE_BYTES_MAX), os.SEEK_END)
        return file.read().removesuffix(b"\n").rpartition(b"\n")[2]
