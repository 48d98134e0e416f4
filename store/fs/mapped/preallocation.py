"""The next file of a queue, created before it is needed: allocating 1 GiB takes too long for an append.

The queue's owner requests the job, any thread runs it, and the owner adopts the file. If the file is needed before the
job has ended, the owner calls `make` itself, which runs the job or waits for its end.

Source: RocketMQ `AllocateMappedFileService`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from store.errors import DiskFull

if TYPE_CHECKING:
    from store.fs.ports import File, QueueFiles


class NextFile:
    """A file that is created once, by the first caller.

    Args:
        files: the file system; it creates files in any thread.
        directory: of the file; it is synced after the creation.
        path: of the file.
        size: in bytes.
    """

    __slots__ = ("_directory", "_file", "_files", "_is_made", "_lock", "_path", "_size")

    def __init__(self, files: QueueFiles, directory: str, path: str, size: int) -> None:
        self._files = files
        self._directory = directory
        self._path = path
        self._size = size
        self._file: File | None = None
        self._is_made = False
        self._lock = threading.Lock()

    @property
    def is_made(self) -> bool:
        """Whether `make` has ended: further calls return at once."""
        return self._is_made

    def make(self) -> File | None:
        """Create the file, durably; None when the disk is full. Any thread may call it; the first call decides.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        with self._lock:
            if not self._is_made:
                try:
                    self._file = self._files.create(self._path, self._size)
                    self._files.sync_directory(self._directory)
                except DiskFull:
                    # The file is not needed yet. A caller that needs it gets the error of the full disk.
                    self._file = None
                self._is_made = True
            return self._file
