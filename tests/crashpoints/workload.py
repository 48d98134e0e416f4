"""Workloads of file operations, with the guarantees at each moment.

A workload calls production code on a simulated disk. Before each operation that changes the disk, and at the end, it
passes the disk and the guarantees of that moment to the observer that simulates crashes there.
"""

from dataclasses import dataclass, replace
from random import Random

from dledger.entries.format.codec import RAW_ENTRY_CODEC
from dledger.entries.format.entry import ENTRY_NORMAL
from dledger.entries.membership_file import MembershipFile
from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.storage.hard_state import HardStateFile
from dledger.testing.disk.disk import SimDisk
from dledger.testing.disk.files import SimFiles
from dledger.testing.faults import FaultCounts
from dledger.types import HardState, Member, Membership, MembershipEntry

DIRECTORY = "/n0"
CONFIG = EntryStoreConfig(data_file_size_bytes=2048, index_file_size_bytes=32 * 8)


@dataclass(frozen=True)
class Log:
    """The expected content of a log; `entries` are (term, (magic, channel), body) from `begin_index` on."""

    begin_index: int
    prev_term: int
    entries: tuple[tuple[int, int, bytes], ...]
    durable_index: int

    def may_leave(self, found):
        """Return whether `found` is possible after a crash: a prefix of this log with all durable entries."""
        return (
            (found.begin_index, found.prev_term) == (self.begin_index, self.prev_term)
            and found.entries == self.entries[: len(found.entries)]
            and found.begin_index + len(found.entries) > self.durable_index
        )


@dataclass(frozen=True)
class Guarantees:
    """What a crash at this moment must not take: what is found must be left of one of each of these.

    `aside` is the log that must be found set aside where the first of `logs` is found; None: nothing need be.
    """

    logs: tuple[Log, ...]
    hard_states: tuple[HardState, ...]
    memberships: tuple[tuple[MembershipEntry, ...] | None, ...]
    aside: Log | None


def unstamped(entry):
    """Return the body of an entry as it was before the store stamped its place into it, if it did."""
    return entry.body[:28] + bytes(8) + entry.body[36:] if entry.channel else entry.body


class Recorder:
    """Replaces the crash point of a `SimFiles`, and is called before every operation."""

    def __init__(self, before_operation):
        self.is_dead = False
        self.count = 0
        self._before_operation = before_operation

    def reach(self):
        self.count += 1
        self._before_operation(self.count)
        return False


def files_on(disk, before_operation=lambda _: None):
    """Return a process's view of a disk; `before_operation` is called for each of its operations."""
    files = SimFiles(disk, Random(0), FaultCounts())
    files.crash_point = Recorder(before_operation)
    return files


class Workload:
    """One or several processes on a store, a hard state and a membership file.

    Args:
        see: called with (name of the step and operation, disk, guarantees).

    Attributes:
        log: what was appended and not cut or deleted, as the caller sees it.
    """

    def __init__(self, see, codec=RAW_ENTRY_CODEC):
        self.see = see
        self.codec = codec
        self.log = []
        self.begin_index = 0
        self.prev_term = -1
        self.disk = SimDisk(Random(1), FaultCounts())
        self.term = 1
        self._random = Random(2)
        self._store = None
        self._step = "open"
        self._durable_index = -1
        self._other_log = self._aside = None
        self._hard_states = (HardState(),)
        self._memberships = (None,)
        self.open()

    # ------------------------------------------------------------------------------------------- what it does

    def open(self):
        self._step = "open"
        files = files_on(self.disk, self._before_operation)
        self._store = EntryStore.open(files, DIRECTORY, CONFIG, self.codec)
        self._hard_state = HardStateFile.open(files, DIRECTORY)
        self._membership_file = MembershipFile.open(files, DIRECTORY)
        assert self._store.last_index == self._next_index - 1

    @property
    def _next_index(self):
        return self.begin_index + len(self.log)

    def append(self, *sizes):
        bodies = [self._random.randbytes(size) for size in sizes]
        self._step = f"append {len(bodies)}"
        first_index = self._next_index
        self.log += [(self.term, (ENTRY_NORMAL, 0), body) for body in bodies]
        self._store.append(bodies, first_index, self.term)

    def _append_own(self, entry):
        """Append an entry of a leader; stamped fields are recorded as zeros."""
        magic, channel, body, stamp_at = entry
        self._step = f"append of kind {magic}, {channel}"
        self.log.append((self.term, (magic, channel), body))
        self._store.append([body], self._next_index - 1, self.term, magic=magic, channel=channel, stamp_at=stamp_at)

    def begin_term(self):
        """Vote, then write a no-op, as a new leader does."""
        self.vote(self.term + 1, "n0")
        self.term += 1
        self._append_own(self.codec.no_op())

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
        assert self._store.begin_checkpoint(self._store.durable_index).save()

    def truncate(self, first_index):
        self._step = f"truncate {first_index}"
        self._other_log = self._seen_log()
        del self.log[first_index - self.begin_index :]
        self._store.truncate(first_index)
        self._other_log = None
        self.term += 1

    def delete_before(self, index):
        """Delete files; the store decides how many entries are deleted."""
        self._step = f"delete before {index}"
        position = self._store.position_of(index)
        begin_index = self._store.index_at_position(position - position % CONFIG.data_file_size_bytes)
        count = begin_index - self.begin_index
        self._other_log = self._seen_log()
        self.begin_index, self.prev_term = begin_index, self.log[count - 1][0]
        del self.log[:count]
        self._store.delete_before(index)
        assert self._store.begin_index == begin_index
        self._other_log = None

    def reset(self, begin_index, begin_position, prev_term):
        self._step = f"reset to {begin_index}"
        self._other_log = self._seen_log()
        self._aside = self._aside or self._other_log
        self.log, self.begin_index, self.prev_term = [], begin_index, prev_term
        self._store.reset(begin_index, begin_position, prev_term, caught_up_index=begin_index + 5)
        self._other_log = None

    def catch_up(self):
        """Delete the log that was set aside, as the driver does after the new log has caught up."""
        self._step, self._aside = "delete what was set aside", None
        for now_ms in range(0, 100_000, 1_000):
            self._store.aside.advance(self._next_index - 1, now_ms)
        assert not self._store.aside.files_count

    def vote(self, term, voted_for):
        self._step = f"vote {term}"
        state = HardState(term, voted_for)
        self._hard_states = (*self._hard_states, state)
        self._hard_state.save(state)
        self._hard_states = (state,)

    def change_membership(self, *member_ids):
        """Save the new membership after those that the log holds, then append its entry, as the driver does."""
        self._step = f"save membership {member_ids}"
        membership = Membership(tuple(Member(member_id) for member_id in member_ids))
        held = tuple(entry for entry in self._memberships[-1] or () if entry.index < self._next_index)
        entries = (*held, MembershipEntry(self._next_index if held else -1, membership))
        self._memberships = (*self._memberships, entries)
        self._membership_file.save(entries)
        self._memberships = (entries,)
        if held:
            self._append_own(self.codec.membership(membership))

    def close(self):
        self._step = "close"
        self._store.close()
        self._durable_index = self._next_index - 1
        self._store = None

    def kill(self):
        """Kill the process; the page cache is kept."""
        self._durable_index = self._store.durable_index
        self._store.abandon()
        self._store = None

    def end(self):
        """Pass the disk to the observer once more, after the last operation."""
        self._step = "end"
        self._before_operation(0)

    # ------------------------------------------------------------------------------------------- what it guaranteed

    def _before_operation(self, number):
        self.see(f"{self._step}, operation {number}", self.disk, self.guarantees())

    def guarantees(self):
        logs = (self._seen_log(),) if self._other_log is None else (self._seen_log(), self._seen_old_log())
        return Guarantees(logs, self._hard_states, self._memberships, self._aside)

    def _seen_log(self):
        durable_index = min(self._live_durable_index(), self._next_index - 1)
        return Log(self.begin_index, self.prev_term, tuple(self.log), durable_index)

    def _seen_old_log(self):
        """Return the log from before the step, without entries that the step has already removed."""
        return replace(self._other_log, durable_index=min(self._other_log.durable_index, self._live_durable_index()))

    def _live_durable_index(self):
        return self._durable_index if self._store is None else self._store.durable_index


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


def truncate_and_append_again(work):
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


def delete_and_reset(work):
    work.append(*[300] * 16)
    work.term = 2
    work.append(*[250] * 16)
    work.flush()
    work.checkpoint()
    work.delete_before(9)
    work.append(1800, 500)
    work.delete_before(31)
    work.flush()
    work.truncate(33)
    work.kill()
    work.open()
    work.reset(100, 10_240, 4)
    work.term = 5
    work.append(*[400] * 3)
    work.reset(200, 20_480, 4)
    work.append(*[400] * 8)
    work.flush()
    work.catch_up()
    work.checkpoint()
    work.reset(500, 40_960 + 700, 6)
    work.term = 7
    work.append(1500, 60)
    work.append(*[700] * 4)
    work.close()
    work.open()
    work.delete_before(505)
    work.reset(0, 0, -1)
    work.append(10)
    work.flush()


def restart_log(work):
    """A reset soon after the start, so that defects of resets are found in a short workload."""
    work.append(300, 300)
    work.flush()
    work.reset(100, 10_240, 4)
    work.term = 5
    work.append(400)
    work.flush()


def change_members(work):
    work.change_membership("n0", "n1", "n2")
    work.append(100)
    work.change_membership("n0", "n1", "n2", "n3")
    work.flush()
    work.append(1500)
    work.change_membership("n1", "n2", "n3")
    work.truncate(3)
    work.begin_term()
    work.change_membership("n0", "n1", "n2", "n3", "n4")
    work.append(*[300] * 9)
    work.flush()
    work.delete_before(work.begin_index + len(work.log) - 1)
    work.kill()
    work.open()
    work.change_membership("n4")


WORKLOADS = {
    workload.__name__: workload
    for workload in (
        append_and_roll_over,
        truncate_and_append_again,
        vote_and_lead,
        stop_and_start,
        delete_and_reset,
        restart_log,
        change_members,
    )
}
