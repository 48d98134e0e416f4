"""Workloads of file operations, and what was promised at each moment of them.

A workload calls production code on a simulated disk. Before each operation that changes the disk, and at the end, it
hands the disk and the promises of that moment to whoever wants to imagine a crash there.
"""

from dataclasses import dataclass, field
from random import Random

from dledger.entry import ENTRY_NOOP, ENTRY_NORMAL
from dledger.entry_store import EntryStore, EntryStoreConfig
from dledger.hard_state import HardStateFile
from dledger.testing.faults import FaultCounts
from dledger.testing.sim_disk import SimDisk
from dledger.testing.sim_files import SimFiles
from dledger.types import HardState

DIRECTORY = "/n0"
CONFIG = EntryStoreConfig(data_file_size_bytes=2048, index_file_size_bytes=32 * 8)


@dataclass(frozen=True)
class Promises:
    """What a crash at this moment must not take, and what may be found.

    Attributes:
        logs: whole logs, as (term, magic, body) by index; what is found must be the beginning of one of them.
        durable_index: entries up to here must be found.
        hard_states: one of these must be found.
    """

    logs: tuple[tuple[tuple[int, int, bytes], ...], ...]
    durable_index: int
    hard_states: tuple[HardState, ...]


class Recorder:
    """Stands where a `SimFiles` keeps its crash point, and sees every operation before it happens."""

    def __init__(self, before_operation):
        self.is_dead = False
        self.count = 0
        self._before_operation = before_operation

    def reach(self):
        self.count += 1
        self._before_operation(self.count)
        return False


def files_on(disk, before_operation=lambda _: None):
    """Return a process's view of a disk; `before_operation` hears of each of its operations."""
    files = SimFiles(disk, Random(0), FaultCounts())
    files.crash_point = Recorder(before_operation)
    return files


@dataclass
class Workload:
    """One life of a store and a hard state, or several.

    Attributes:
        see: called with (name of the step and operation, disk, promises).
        log: what was appended and not cut, as the caller sees it.
    """

    see: object
    log: list = field(default_factory=list)

    def __post_init__(self):
        self.disk = SimDisk(Random(1), FaultCounts())
        self.term = 1
        self.operation_count = 0
        self._random = Random(2)
        self._store = None
        self._step = "open"
        self._durable_index = -1
        self._cut_log = None
        self._hard_states = (HardState(),)
        self.open()

    # ------------------------------------------------------------------------------------------- what it does

    def open(self):
        self._step = "open"
        files = files_on(self.disk, self._before_operation)
        self._store = EntryStore.open(files, DIRECTORY, CONFIG)
        self._hard_state = HardStateFile.open(files, DIRECTORY)
        assert self._store.last_index == len(self.log) - 1

    def append(self, *sizes, magic=ENTRY_NORMAL):
        self._step = f"append {len(sizes)}"
        bodies = [self._random.randbytes(size) for size in sizes]
        first_index = len(self.log)
        self.log += [(self.term, magic, body) for body in bodies]
        self._store.append(bodies, first_index, self.term, magic=magic)

    def begin_term(self):
        """Vote, then write a no-op, as a new leader does."""
        self.vote(self.term + 1, "n0")
        self.term += 1
        self.append(0, magic=ENTRY_NOOP)

    def flush(self):
        self._step = "flush"
        ticket = self._store.begin_flush()
        ticket.sync()
        self._store.end_flush(ticket)

    def flush_while_appending(self, *sizes):
        ticket = self._store.begin_flush()
        self.append(*sizes)
        self._step = "flush while appending"
        ticket.sync()
        self._store.end_flush(ticket)

    def checkpoint(self):
        self._step = "checkpoint"
        assert self._store.save_checkpoint(self._store.durable_index)

    def truncate(self, first_index):
        self._step = f"truncate {first_index}"
        self._cut_log = tuple(self.log)
        del self.log[first_index:]
        self._store.truncate(first_index)
        self._cut_log = None
        self.term += 1

    def vote(self, term, voted_for):
        self._step = f"vote {term}"
        state = HardState(term, voted_for)
        self._hard_states = (*self._hard_states, state)
        self._hard_state.save(state)
        self._hard_states = (state,)

    def close(self):
        self._step = "close"
        self._store.close()
        self._durable_index = len(self.log) - 1
        self._store = None

    def kill(self):
        """End the process; the page cache stays."""
        self._durable_index = self._store.durable_index
        self._store.abandon()
        self._store = None

    def end(self):
        """Show the disk once more, behind the last operation."""
        self._step = "end"
        self._before_operation(0)

    # ------------------------------------------------------------------------------------------- what it promised

    def _before_operation(self, number):
        self.operation_count += 1
        self.see(f"{self._step}, operation {number}", self.disk, self.promises())

    def promises(self):
        durable_index = self._durable_index if self._store is None else self._store.durable_index
        logs = (tuple(self.log),) if self._cut_log is None else (tuple(self.log), self._cut_log)
        return Promises(logs, durable_index, self._hard_states)


# ---------------------------------------------------------------------------------------------- the workloads


def append_and_roll_over(work):
    work.append(100)
    work.flush()
    work.append(30, 0, 700)
    work.append(500, 10)
    work.flush_while_appending(200, 300, 900)
    work.append(*[60] * 12)
    work.flush()
    work.append(1500)
    work.append(1900, 8, 1990)
    work.checkpoint()
    work.append(*[150] * 20)
    work.flush()


def truncate_and_append_anew(work):
    work.append(*[90] * 6)
    work.flush()
    work.truncate(4)
    work.append(200, 10)
    work.truncate(3)
    work.append(*[400] * 9)
    work.flush()
    work.checkpoint()
    work.truncate(2)
    work.append(*[350] * 9)
    work.append(1200)
    work.truncate(9)
    work.append(40)
    work.flush()
    work.truncate(0)
    work.append(5, 1900)
    work.flush()


def vote_and_lead(work):
    work.vote(1, "n1")
    work.append(100, 300)
    work.begin_term()
    work.flush()
    work.vote(3, None)
    work.vote(3, "n2")
    work.truncate(2)
    work.begin_term()
    work.append(*[500] * 5)
    work.flush()
    work.vote(9, None)
    work.checkpoint()
    work.truncate(3)
    work.begin_term()


def stop_and_start(work):
    work.append(*[200] * 12)
    work.flush()
    work.append(*[100] * 12)
    work.kill()
    work.open()
    work.append(70)
    work.flush()
    work.close()
    work.open()
    work.truncate(20)
    work.append(*[80] * 3)
    work.checkpoint()
    work.kill()
    work.open()
    work.append(1500)
    work.flush()
    work.close()
    work.open()


WORKLOADS = {
    workload.__name__: workload
    for workload in (append_and_roll_over, truncate_and_append_anew, vote_and_lead, stop_and_start)
}
