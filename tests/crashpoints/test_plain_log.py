"""After every file operation and every class of lost writes, the plain log opens and has all flushed messages."""

from random import Random

import pytest

from commitlog.plain.commit_log import CommitLogConfig, LastExit, PlainCommitLog
from dledger.testing.disk.disk import SimDisk
from dledger.testing.faults import FaultCounts
from store.errors import Certainty
from store.model.message import Message
from tests.crashpoints.crashes import IS_LONG, Crashes, nothing
from tests.crashpoints.workload import files_on

DIRECTORY = "/n0/commitlog"
CONFIG = CommitLogConfig(mapped_file_size=2048)
# One in this many images is also crashed within its recovery.
SECOND_CRASH_STRIDE = 5 if IS_LONG else 17


class Workload:
    """One or several processes on a log; before each file operation all possible disks after a crash are opened.

    Attributes:
        bodies: of the messages of the log, oldest first; a crash leaves a prefix of these.
    """

    def __init__(self):
        self.crashes = Crashes(SECOND_CRASH_STRIDE)
        self.counts = self.crashes.counts
        self.disk = SimDisk(Random(1), FaultCounts())
        self.bodies = []
        # Number of durable messages; during a truncation also fewer.
        self.flushed_count = 0
        self.deleted_counts = (0,)
        # Timestamps that the checkpoint may have.
        self.checkpoint = 0
        self.now_ms = 1_700_000_000_000
        self._random = Random(2)
        self._step = "open"
        self.log = None
        self.open()

    def open(self, *, is_clean=False):
        self._step = "open"
        files = files_on(self.disk, self.see)
        last_exit = LastExit(is_clean, self.checkpoint)
        self.log = PlainCommitLog.open(files, DIRECTORY, CONFIG, last_exit, lambda: self.now_ms)
        assert self.log.recovery_notes == ()
        self.flushed_count = len(self.bodies)

    def append(self, *sizes, later_ms=0):
        """Append one batch, `later_ms` (0 or more) after the previous one."""
        self._step = f"append {sizes}"
        self.now_ms += later_ms
        bodies = [self._body(size) for size in sizes]
        self.bodies += bodies
        messages = [Message("T", body, properties=self._properties(body)) for body in bodies]
        pending = self.log.append(messages, range(len(bodies)))
        count = len(self.bodies)

        def ended(outcome):
            if outcome.certainty is Certainty.APPENDED:
                self.flushed_count = max(self.flushed_count, count)

        pending.when_done(ended)

    def _properties(self, body):
        """Return properties derived from the body, sometimes large: no checksum covers them."""
        repeats = {10: 60, 330: 200, 600: 40}.get(len(body), 0)
        return {"KEYS": str(len(body)) * repeats} if repeats else {}

    def _body(self, size):
        """Return a body; some have long runs of zeros, which look like unwritten sectors."""
        return self._random.randbytes(size) if self._random.random() < 0.7 else bytes(size)

    def flush(self, *sizes):
        """Flush, with a batch of these sizes between the beginning of the sync and its end."""
        ticket = self.log.begin_flush()
        if sizes:
            self.append(*sizes)
        self._step = "flush"
        ticket.sync()
        self.log.end_flush(ticket)

    def save_checkpoint(self):
        self.checkpoint = max(self.log.flushed_store_timestamp, 0)

    def make_next_file(self):
        self._step = "next file"
        self.log.prepare_next_file().make()

    def truncate(self, count):
        """Truncate the log to `count` messages; the checkpoint is lowered first."""
        self._step = f"truncate {count}"
        places = [offset for offset, _ in scanned(self.log)]
        offset = places[count - self.deleted_counts[0]]
        self.checkpoint = 0 if count == 0 else self.log.peek(places[count - 1], 1).store_timestamp
        self.flushed_count = min(self.flushed_count, count)
        self.log.truncate(offset)
        del self.bodies[count:]

    def delete_before(self, offset):
        self._step = "delete"
        places = [at for at, _ in scanned(self.log)]
        begin = min(offset, places[-1]) // 2048 * 2048
        old = self.deleted_counts[0]
        # Files are deleted one by one.
        self.deleted_counts = tuple(old + sum(at < border for at in places) for border in range(0, begin + 1, 2048))
        self.log.delete_before(offset)
        self.deleted_counts = self.deleted_counts[-1:]
        assert self.log.begin_offset == begin

    def kill(self):
        self.log.abandon("killed")
        self.log = None

    def close(self):
        self._step = "close"
        self.log.close()
        self.log = None

    # -------------------------------------------------------------------------------------------- looking at it

    def see(self, number):
        owed = (tuple(self.bodies), self.flushed_count, self.deleted_counts, self.checkpoint, self.now_ms)
        self.crashes.see(f"{self._step}, operation {number}", self.disk, self._open_image, owed=owed)

    def _open_image(self, disk, before_operation):
        files = files_on(disk, before_operation)
        log = PlainCommitLog.open(files, DIRECTORY, CONFIG, LastExit(False, self.checkpoint), lambda: self.now_ms)
        records = scanned(log)
        found = [body for _, body in records]
        for offset, body in records:
            assert log.find(offset).properties == self._properties(body)
        expected = [self.bodies[deleted : deleted + len(found)] for deleted in self.deleted_counts]
        assert found in expected, "not a beginning of what was appended"
        begins = [deleted for deleted in self.deleted_counts if self.bodies[deleted : deleted + len(found)] == found]
        assert any(begin + len(found) >= self.flushed_count for begin in begins), (len(found), self.flushed_count)
        self._check_files(disk.directories[DIRECTORY], log)
        assert log.flushed_offset == log.end_offset == log.written_offset
        self.counts["messages"] += len(found)
        self.counts["repairs"] += bool(log.recovery_notes)
        if before_operation is nothing:
            self._write_on(log, found)

    def _check_files(self, directory, log):
        """All bytes after the log's end are zero, and names and bytes of the recovered log are durable."""
        assert directory.cached == directory.durable
        for name, inode in directory.cached.items():
            assert not any(inode.cache[max(0, log.end_offset - int(name)) :]), name
            assert inode.cache == inode.durable

    def _write_on(self, log, found):
        """Only records appended after a recovery follow the recovered ones."""
        log.append([Message("T", b"again" * 60)], [0])
        ticket = log.begin_flush()
        ticket.sync()
        log.end_flush(ticket)
        assert [body for _, body in scanned(log)] == [*found, b"again" * 60]


def scanned(log):
    """Return offset and body of every message."""
    found = []
    offset = log.begin_offset
    while (batch := log.scan(offset, 1 << 20, is_body_checked=True)) is not None:
        assert batch.skipped == ()
        found += [(at, log.find(at).body) for at in batch.physical_offsets.tolist()]
        offset = batch.next_offset
    return found


# ---------------------------------------------------------------------------------------------- the workloads


def append_and_roll(work):
    work.append(100)
    work.flush()
    work.append(30, 0, 700)
    work.save_checkpoint()
    work.append(500, 10)
    work.flush(200, 300, 900)
    work.append(*[60] * 8, later_ms=3)
    work.flush()
    work.save_checkpoint()
    work.append(1500, later_ms=5_000)
    work.append(1900)
    work.append(*[150] * 7)
    work.append(*[300] * 4)
    work.flush()
    work.append(4, later_ms=1)


def roll_in_one_millisecond(work):
    for _ in range(3):
        work.append(600)
        work.append(700, 100)
        work.flush(500)
        work.save_checkpoint()
        work.append(200)
    work.append(1900)


def make_files_ahead(work):
    work.append(1000)
    work.append(400)
    work.make_next_file()
    work.flush()
    work.append(1000)
    work.append(600)
    work.make_next_file()
    work.append(1800)
    work.flush()
    work.kill()
    work.open()
    work.append(100, 20)


def truncate_and_append_again(work):
    work.append(*[200] * 5)
    work.append(*[250] * 5, later_ms=7)
    work.flush()
    work.save_checkpoint()
    work.truncate(7)
    work.append(330, later_ms=2)
    work.append(*[200] * 5)
    work.flush()
    work.save_checkpoint()
    work.truncate(3)
    work.append(1900)
    work.flush()
    work.truncate(0)
    work.append(70)
    work.flush()


def stop_and_start(work):
    work.append(*[200] * 5)
    work.flush()
    work.append(*[100] * 8)
    work.kill()
    work.open()
    work.save_checkpoint()
    work.append(70, later_ms=4_000)
    work.flush()
    work.append(900, later_ms=4_000)
    work.append(1900)
    work.close()
    work.open(is_clean=True)
    work.append(1500, 20)
    work.flush()


def delete_old_files(work):
    for _ in range(5):
        work.append(900, 600, later_ms=10)
    work.flush()
    work.save_checkpoint()
    work.delete_before(2048)
    work.append(1000)
    work.delete_before(3 * 2048 + 100)
    work.kill()
    work.open()
    work.delete_before(1 << 40)
    work.append(30)
    work.flush()


WORKLOADS = (append_and_roll, roll_in_one_millisecond, make_files_ahead, truncate_and_append_again, stop_and_start)
WORKLOADS += (delete_old_files,)


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
def test_nothing_flushed_is_missing_after_a_crash(workload, capsys):
    work = Workload()
    workload(work)
    work.see("end")

    with capsys.disabled():
        print(f"\ncrash points of {workload.__name__}: {dict(work.counts)}")
    assert work.counts["images"] > work.counts["operations"]
