"""The kinds of faults in a run, the counts of those that took effect, and the exceptions that end a run.

A fault is counted where it takes effect (a message lost, a sector lost, a sync delayed), not where it was injected: a
run whose faults had no effect proves nothing.
"""

from __future__ import annotations

from enum import StrEnum


class Fault(StrEnum):
    """A fault that took effect; the value is its name in the line of a run."""

    CLEAN_STOP = "clean_stop"
    PROCESS_CRASH = "process_crash"
    POWER_CUT = "power_cut"
    CRASH_IN_STEP = "crash_in_step"
    CRASH_IN_START = "crash_in_start"
    LOST_SECTOR = "lost_sector"
    TORN_WRITE = "torn_write"
    LOST_NAME = "lost_name"
    DISK_FULL = "disk_full"
    SLOW_SYNC = "slow_sync"
    STUCK_SYNC = "stuck_sync"
    WRITE_ERROR = "write_error"
    SYNC_ERROR = "sync_error"
    READ_ERROR = "read_error"
    NODE_FAILED = "node_failed"
    BIT_FLIP = "bit_flip"
    MISDIRECTED_WRITE = "misdirected_write"
    DAMAGE_FOUND = "damage_found"
    DAMAGE_REPAIRED = "damage_mended"
    VOTE_GIVEN_UP = "vote_given_up"
    WIPED = "wiped"
    HEAD_CUT = "head_cut"
    LEFT_DEAD = "left_dead"
    PAUSE = "pause"
    CLOCK_STOPPED = "clock_stopped"
    CLOCK_SET = "clock_set"
    PARTITIONED = "partitioned"
    DROPPED = "dropped"
    DUPLICATED = "duplicated"
    REORDERED = "reordered"
    REPLAYED = "replayed"
    REPLAYED_AFTER_RESTART = "replayed_after_restart"
    CLOGGED = "clogged"
    LATE = "late"
    FRAME_REFUSED = "frame_refused"
    PAYLOAD_DAMAGED = "payload_damaged"
    DIRECTORY_REFUSED = "directory_refused"
    FOREIGN_DIRECTORY = "foreign_directory"
    END_REPORTED = "end_reported"
    END_REPORTED_WRONGLY = "end_reported_wrongly"


# Copied for each run: iterating over an enum is slow.
_NONE = dict.fromkeys(Fault, 0)


class FaultCounts:
    """How often each fault took effect in one run."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts = _NONE.copy()

    def add(self, fault: Fault, count: int = 1) -> None:
        """Record that `fault` took effect `count` more times."""
        self._counts[fault] += count

    def __getitem__(self, fault: Fault) -> int:
        return self._counts[fault]

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name, in the order of `Fault`."""
        return {fault.value: count for fault, count in self._counts.items()}


class Violation(Exception):
    """An invariant does not hold. The text names the invariant, the node, what was expected and what was found."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail


class SimulatedCrash(BaseException):
    """The simulated machine died inside an operation; only the simulated node may catch it.

    A `BaseException`, so that no `except Exception` in the code under test catches it.
    """
