"""Stores on real directories, and a file system that fails where a test says so."""

from collections import Counter
from pathlib import Path

import pytest

from dledger.entry_store import EntryStore, EntryStoreConfig
from store.errors import DiskFull, StorageFailed
from store.os_files import OsFiles

CONFIG = EntryStoreConfig(data_file_size_bytes=4096, index_file_size_bytes=32 * 16)


class FaultyFile:
    """A real file whose sync fails while its file system says so."""

    def __init__(self, file, files):
        self._file = file
        self._files = files

    def __getattr__(self, name):
        return getattr(self._file, name)

    def sync(self):
        self._files.counts["sync"] += 1
        if self._files.is_sync_failing:
            raise StorageFailed(self._file.path, "sync", OSError(5, "Input/output error"))
        self._file.sync()


class FaultyFiles:
    """The real file system behind the port, with limited room for new files, and with syncs that can fail.

    Attributes:
        files_left: how many files may still be created.
        is_sync_failing: whether syncs of files fail.
        counts: how often files were created and synced.
    """

    def __init__(self):
        self._files = OsFiles()
        self.files_left = 1 << 20
        self.is_sync_failing = False
        self.counts = Counter()

    def __getattr__(self, name):
        return getattr(self._files, name)

    def create(self, path, size):
        if self.files_left == 0:
            raise DiskFull(path, size)
        self.files_left -= 1
        self.counts["create"] += 1
        return FaultyFile(self._files.create(path, size), self)

    def open(self, path):
        return FaultyFile(self._files.open(path), self)


class Log:
    """A directory with a log: opens it, closes it, and damages its files in between."""

    def __init__(self, directory, config=CONFIG):
        self.directory = str(directory)
        self.config = config
        self.files = FaultyFiles()
        self.store = None

    def open(self):
        self.store = EntryStore.open(self.files, self.directory, self.config)
        return self.store

    def kill(self):
        """End the process: what was written stays in the page cache, and the lock is given back."""
        self.store.abandon()
        self.store = None

    def reopen(self):
        self.kill()
        return self.open()

    def data_path(self, base=0):
        return Path(self.directory) / "data" / f"{base:020d}"

    def index_path(self, base=0):
        return Path(self.directory) / "index" / f"{base:020d}"

    def checkpoint_path(self):
        return Path(self.directory) / "checkpoint"

    def patch(self, path, position, content):
        with path.open("r+b") as stream:
            stream.seek(position)
            stream.write(content)


@pytest.fixture
def make_log(tmp_path):
    """Return a function that makes a `Log` in a directory of its own; what is open at the end is closed."""
    logs = []

    def make(name="n0", config=CONFIG):
        logs.append(Log(tmp_path / name, config))
        return logs[-1]

    yield make
    for log in logs:
        if log.store is not None:
            log.kill()


@pytest.fixture
def log(make_log):
    """Return a `Log` with data files of 4096 bytes and index files of 16 units."""
    return make_log()


@pytest.fixture
def faulty_files():
    """Return a file system that fails where a test says so."""
    return FaultyFiles()
