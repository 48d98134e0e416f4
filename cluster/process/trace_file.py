"""The trace file of a node's core: one line of JSON per event (`dledger.driver.trace`), up to a size limit."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from pathlib import Path

SIZE_BYTES_MAX = 1 << 30

logger = logging.getLogger(__name__)


class TraceFile:
    """Appends lines until the file has reached its size limit, which is then logged once.

    Args:
        path: path of the file, which is created if absent; lines of earlier runs are kept.
        size_bytes_max: size limit of the file.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path, size_bytes_max: int = SIZE_BYTES_MAX) -> None:
        self._path = path
        self._size_bytes_max = size_bytes_max
        self._file: TextIO | None = open(path, "a", encoding="utf-8", opener=_open_private)  # noqa: SIM115
        self._size_bytes = path.stat().st_size

    def write(self, line: str) -> None:
        """Append one line; a newline is added."""
        if self._file is None:
            return
        self._size_bytes += len(line) + 1
        if self._size_bytes > self._size_bytes_max:
            logger.warning("trace_ends path=%s size_bytes_max=%d", self._path, self._size_bytes_max)
            self.close()
            return
        self._file.write(f"{line}\n")

    def close(self) -> None:
        """Write the buffered lines and close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _open_private(path: str, flags: int) -> int:
    """Open a file that is made for its owner alone."""
    return os.open(path, flags, 0o600)
