"""Converts a plain log to a replicated one, with a crash at every file operation.

After every file operation and every class of lost writes the log opens, has every message of the plain log and every
later one, and has the same divide.
"""

from random import Random

import pytest

from commitlog.conversion.divide import OpeningCase
from commitlog.plain.commit_log import CommitLogConfig, LastExit, PlainCommitLog
from dledger.entries.store import EntryStoreConfig
from dledger.testing.disk.disk import SimDisk
from dledger.testing.faults import FaultCounts
from store.model.message import Message
from tests.crashpoints.crashes import IS_LONG, Crashes
from tests.crashpoints.workload import files_on
from tests.unit.commitlog.conftest import Clock, Opened

SECOND_CRASH_STRIDE = 3 if IS_LONG else 11
FILE_SIZE = 2048
SIZES = EntryStoreConfig(FILE_SIZE, 32 * 8)
NOW = 1_700_000_000_000

# Sizes of the bodies in the plain log, whether all of it was flushed, and whether the next file was preallocated.
SHAPES = {
    "in the middle of a file": ((300, 900, 1200, 200), True, False),
    "with the next file made ahead": ((300, 900, 500), True, True),
    "with a blank at the end": ((1700, 1000), True, False),
    "with a tail that was not flushed": ((300, 900, 500), False, False),
}


class Conversion:
    """The conversion of one plain log."""

    def __init__(self, sizes, is_flushed, is_next_made):
        self.crashes = Crashes(SECOND_CRASH_STRIDE)
        self.cases = set()
        self.disk = SimDisk(Random(1), FaultCounts())
        clock = Clock(NOW)
        config = CommitLogConfig(mapped_file_size=FILE_SIZE)
        log = PlainCommitLog.open(files_on(self.disk), "/node/commitlog", config, LastExit(), clock)
        self.bodies = []
        for number, size in enumerate(sizes):
            if number == len(sizes) - 1 and not is_flushed:
                self._flush(log)
            self.bodies.append(bytes([number + 1]) * size)
            log.append([Message("T", self.bodies[-1])], [number])
        if is_flushed:
            self._flush(log)
        if is_next_made:
            job = log._queue.prepare_next()
            job.make()
            log._queue.adopt_next()
        log.abandon("killed")
        # A crash may lose the unflushed part of the plain log.
        self.kept_min = len(self.bodies) if is_flushed else len(self.bodies) - 1
        self.guaranteed = 0
        self.divide = None

    @staticmethod
    def _flush(log):
        ticket = log.begin_flush()
        ticket.sync()
        log.end_flush(ticket)

    def run(self):
        opened = self.open(files_on(self.disk, self.see))
        self.kept_min, self.divide = len(self.bodies), opened.divided.divide
        opened.node.lead(1)
        opened.log.append([Message("T", b"new" * 50)], [len(self.bodies)])
        opened.node.flush()
        self.guaranteed = 2
        opened.log.append([Message("T", b"newer" * 300)], [len(self.bodies) + 1])
        opened.node.flush()
        self.see(0)

    def open(self, files):
        return Opened("/node", files, Clock(NOW), SIZES, give_up=self.crashes.give_up)

    def see(self, number):
        self.crashes.see(f"operation {number}", self.disk, self._check)

    def _check(self, disk, before_operation):
        opened = self.open(files_on(disk, before_operation))
        self.cases.add(opened.divided.case)
        assert opened.store.last_index + 1 >= self.guaranteed
        assert self.divide in (None, opened.divided.divide)
        opened.node.commit()
        found = [opened.log.read(place, size).body for *_, place, size in opened.scanned()]
        old = [body for body in found if not body.startswith(b"new")]
        assert len(old) >= self.kept_min
        assert old == self.bodies[: len(old)]
        # Appends continue, at the divide or after the existing entries.
        end = opened.store.end_position
        assert end >= opened.divided.divide == opened.store.begin_position > 0
        opened.node.lead(5)
        assert opened.store.position_of(opened.store.last_index) in (end, end + -end % FILE_SIZE)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_no_message_is_lost_wherever_the_conversion_is_interrupted(shape, capsys):
    conversion = Conversion(*SHAPES[shape])
    conversion.run()

    with capsys.disabled():
        print(f"\ncrash points of a plain log {shape}: {dict(conversion.crashes.counts)}")
    assert conversion.cases == {OpeningCase.BASE_LOG, OpeningCase.ENTRIES}
    assert conversion.crashes.counts["images of a second crash"] > 0
