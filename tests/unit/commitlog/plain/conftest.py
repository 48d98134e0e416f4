"""Plain logs on a simulated disk or in a real directory, and messages to put."""

from random import Random

import pytest

from commitlog.plain.commit_log import CommitLogConfig, LastExit, PlainCommitLog
from dledger.testing.disk.disk import SimDisk
from dledger.testing.disk.files import SimFiles
from dledger.testing.faults import FaultCounts
from store.fs.linux.files import OsFiles
from store.model.message import Message

FILE_SIZE = 4096
DIRECTORY = "/n0/commitlog"
# A record of this topic with an empty body and no properties.
RECORD_SIZE = 91 + 1


class Clock:
    """A clock in milliseconds that the test sets."""

    def __init__(self):
        self.now_ms = 1_700_000_000_000

    def __call__(self):
        return self.now_ms


def message(size=0, *, topic="T", body=None, **fields):
    """Return a message whose record has `RECORD_SIZE + size` bytes, if the topic is one byte long."""
    return Message(topic, bytes(1 + number % 255 for number in range(size)) if body is None else body, **fields)


class Machine:
    """A simulated disk with one log on it; bytes patched by a test are durable at once."""

    def __init__(self):
        self.clock = Clock()
        self.disk = SimDisk(Random(3), FaultCounts())
        self.files = None
        self.log = None

    def open(self, *, is_clean=False, synced_timestamp=0, is_corruption_skipped=False, **config):
        self.files = SimFiles(self.disk, Random(4), FaultCounts())
        self.config = CommitLogConfig(**{"mapped_file_size": FILE_SIZE, **config})
        self.log = PlainCommitLog.open(
            self.files,
            DIRECTORY,
            self.config,
            LastExit(is_clean, synced_timestamp),
            self.clock,
            is_corruption_skipped=is_corruption_skipped,
        )
        return self.log

    def append(self, *sizes, **fields):
        """Append a batch of messages; return their places, whether they are flushed or not."""
        begin = self.log.written_offset
        self.log.append([message(size, **fields) for size in sizes], range(len(sizes)))
        return begin

    def inode(self, begin_offset=0):
        return self.disk.lookup(f"{DIRECTORY}/{begin_offset:020d}")

    def patch(self, offset, content):
        inode = self.inode(offset - offset % FILE_SIZE)
        inode.cache[offset % FILE_SIZE : offset % FILE_SIZE + len(content)] = content
        inode.durable[:] = inode.cache
        inode.pending.clear()

    def image(self):
        names = self.disk.directories[DIRECTORY].cached
        return {name: bytes(inode.cache) for name, inode in sorted(names.items())}


def flush(log):
    ticket = log.begin_flush()
    ticket.sync()
    log.end_flush(ticket)


def sizes_of(log, **options):
    """Return physical offset and size of every record that a scan finds, and what it skipped."""
    found, skipped = [], []
    offset = log.begin_offset
    while (batch := log.scan(offset, 1 << 20, **options)) is not None:
        found += zip(batch.physical_offsets.tolist(), batch.sizes.tolist(), strict=True)
        skipped += batch.skipped
        assert batch.next_offset > offset
        offset = batch.next_offset
    assert offset == log.end_offset or not found
    return found, skipped


@pytest.fixture
def machine():
    """Return a machine without a log."""
    return Machine()


@pytest.fixture
def log(machine):
    """Return a log on a simulated disk, whose appends end at once."""
    return machine.open(is_flush_sync=False)


@pytest.fixture
def real_log(tmp_path):
    """Return a function that opens a log in a real directory; it is closed at the end."""
    logs = []

    def open_log(**config):
        for log in logs:
            log.abandon("opened again")
        config = CommitLogConfig(**{"mapped_file_size": FILE_SIZE, **config})
        logs.append(PlainCommitLog.open(OsFiles(), str(tmp_path / "commitlog"), config, LastExit(), Clock()))
        return logs[-1]

    yield open_log
    for log in logs:
        log.abandon("the test has ended")
