"""Stores on real directories and on simulated machines."""

from pathlib import Path
from random import Random

import pytest

from dledger.entries.damaged_tail import keep_damaged_tail
from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.testing.disk.disk import SimDisk
from dledger.testing.disk.files import SimFiles
from dledger.testing.faults import FaultCounts
from tests.support.faulty_disk import FaultyDisk

CONFIG = EntryStoreConfig(data_file_size_bytes=4096, index_file_size_bytes=32 * 16)

MACHINE_FILE = 2048
MACHINE_CONFIG = EntryStoreConfig(data_file_size_bytes=MACHINE_FILE, index_file_size_bytes=32 * 8)
MACHINE_DIRECTORY = "/n0"


class Log:
    """A directory with a log: opens it, closes it, and damages its files in between."""

    def __init__(self, directory, config=CONFIG):
        self.directory = str(directory)
        self.config = config
        self.files = FaultyDisk()
        self.store = None

    def open(self):
        self.store = EntryStore.open(self.files, self.directory, self.config)
        return self.store

    def kill(self):
        """End the process: what was written stays in the page cache, and the lock is released."""
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


class Machine:
    """A disk with one log; direct writes to it are durable at once."""

    def __init__(self):
        self.random = Random(7)
        self.disk = SimDisk(self.random, FaultCounts())

    def process(self):
        return SimFiles(self.disk, self.random, FaultCounts())

    def open(self, give_up=keep_damaged_tail, files=None):
        return EntryStore.open(files or self.process(), MACHINE_DIRECTORY, MACHINE_CONFIG, give_up=give_up)

    def inode(self, name):
        return self.disk.lookup(f"{MACHINE_DIRECTORY}/{name}")

    def data(self, base=0):
        return self.inode(f"data/{base:020d}")

    def index(self, base=0):
        return self.inode(f"index/{base:020d}")

    def read(self, position, size):
        return bytes(
            self.data(position - position % MACHINE_FILE).cache[
                position % MACHINE_FILE : position % MACHINE_FILE + size
            ]
        )

    def patch(self, inode, offset, content):
        inode.cache[offset : offset + len(content)] = content
        inode.durable[:] = inode.cache
        inode.pending.clear()

    def patch_data(self, position, content):
        self.patch(self.data(position - position % MACHINE_FILE), position % MACHINE_FILE, content)

    def data_image(self):
        names = self.disk.directories[f"{MACHINE_DIRECTORY}/data"].cached
        return {name: bytes(inode.cache) for name, inode in sorted(names.items())}

    def remove(self, name):
        files = self.process()
        files.remove(f"{MACHINE_DIRECTORY}/{name}")
        files.sync_directory(f"{MACHINE_DIRECTORY}/{name}".rpartition("/")[0])

    def restore(self, image):
        """Restore the data files to `image`, without a checkpoint."""
        for name, content in image.items():
            inode = self.inode(f"data/{name}")
            if inode is None:
                self.process().create(f"{MACHINE_DIRECTORY}/data/{name}", MACHINE_FILE)
                inode = self.inode(f"data/{name}")
            self.patch(inode, 0, content)

    @staticmethod
    def body(index, size):
        return bytes(1 + (index * 31 + number) % 255 for number in range(size))

    def write_log(self, sizes, first_term=1):
        """Write an entry of each size, without a close, so without a checkpoint; return (position, end) of each."""
        store = self.open()
        places = []
        for index, size in enumerate(sizes):
            (position,) = store.append([self.body(index, size)], index, first_term + index // 4)
            places.append((position, position + 48 + size))
        store.abandon()
        return places


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
    return FaultyDisk()


@pytest.fixture
def fill():
    """Return a function that appends entries one by one, with distinct bodies."""

    def append(store, count, size=100, term=1):
        for _ in range(count):
            index = store.last_index + 1
            store.append([b"%07d" % index + bytes(size - 7)], index, term)

    return append


@pytest.fixture
def flush():
    """Return a function that makes everything written so far durable."""

    def sync(store):
        ticket = store.begin_flush()
        ticket.sync()
        store.end_flush(ticket)

    return sync


@pytest.fixture
def names():
    """Return a function that lists the queue files of a directory by the offsets that are their names."""
    return lambda path: sorted(int(entry.name) for entry in Path(path).iterdir())


@pytest.fixture
def machine():
    """Return a machine whose disk is the simulator's, so that thousands of openings take no time."""
    return Machine()
