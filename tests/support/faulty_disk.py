"""The real file system with injected faults: a full disk, syncs that fail or stall, a set disk usage."""

import math
import threading
from collections import Counter

from store.errors import DiskFull, StorageFailed
from store.fs.forwarding import ForwardingFile, ForwardingFiles
from store.fs.linux.files import OsFiles


class FaultyFile(ForwardingFile):
    """A real file whose syncs fail or stall, depending on its disk."""

    def __init__(self, disk, file):
        super().__init__(file)
        self._disk = disk

    def sync(self):
        self._disk.counts["sync"] += 1
        if self._disk.is_broken and self._disk.broken_part in self._file.path:
            raise StorageFailed(self._file.path, "fdatasync", OSError(5, "Input/output error"))
        assert self._disk.is_going.wait(60)
        self._file.sync()


class FaultyDisk(ForwardingFiles):
    """The real file system; it can be full (no new files), broken (no sync succeeds) or stalled (no sync returns).

    Attributes:
        files_left: number of files with `full_part` in their path that can still be created; unlimited at first.
        is_broken: syncs fail for files with `broken_part` in their path.
        is_going: while cleared, no sync returns.
        used_ratio: reported disk usage; None: the real one.
        counts: number of files created, creations refused, and syncs.
        removed: removed paths, in order.
    """

    def __init__(self):
        super().__init__(OsFiles())
        self.files_left = math.inf
        self.full_part = ""
        self.is_broken = False
        self.broken_part = ""
        self.used_ratio = None
        self.counts = Counter()
        self.removed = []
        self.is_going = threading.Event()
        self.is_going.set()

    @property
    def is_full(self):
        """Whether no further file can be created; settable."""
        return self.files_left == 0

    @is_full.setter
    def is_full(self, is_full):
        self.files_left = 0 if is_full else math.inf

    def sync_tree(self, path):
        self.counts["sync_tree"] += 1
        if self.is_broken and self.broken_part in f"{path}/":
            raise StorageFailed(path, "sync", OSError(5, "Input/output error"))
        self._files.sync_tree(path)

    def disk_used_ratio(self, path):
        return self._files.disk_used_ratio(path) if self.used_ratio is None else self.used_ratio

    def create(self, path, size, *, is_sparse=False):
        self._take_space(path, size)
        return FaultyFile(self, self._files.create(path, size, is_sparse=is_sparse))

    def create_from(self, path, chunks):
        content = b"".join(chunks)
        self._take_space(path, len(content))
        self._files.create_from(path, [content])

    def _take_space(self, path, size):
        if self.full_part in path:
            if self.is_full:
                self.counts["refused"] += 1
                raise DiskFull(path, size)
            self.files_left -= 1
        self.counts["create"] += 1

    def open(self, path, *, is_cache_trusted=False):
        return FaultyFile(self, self._files.open(path, is_cache_trusted=is_cache_trusted))

    def write_existing(self, writes):
        opened = self._files.write_existing(writes)
        return [None if file is None else FaultyFile(self, file) for file in opened]

    def remove(self, path):
        self.removed.append(path)
        self._files.remove(path)
