"""Counts the work of a cluster in a run, so that a run without work is detected."""

from __future__ import annotations

from enum import StrEnum


class SimWork(StrEnum):
    """A kind of work; the value is its name in the line of a run."""

    COMMITTED = "commits"
    ELECTED = "elections"
    ACKNOWLEDGED = "acknowledged"
    READ = "reads"
    LEASE_READ = "lease_reads"
    FOLLOWER_READ = "follower_reads"
    TRANSFERRED = "transfers"
    TRANSFER_REFUSED = "transfers_refused"
    MEMBERSHIP_CHANGED = "membership_changes"
    CHANGE_REFUSED = "membership_changes_refused"
    READMITTED = "readmissions"
    HEAD_DELETED = "heads_deleted"
    FILE_FORCED_OUT = "files_forced_out"
    DISTRUSTED = "messages_not_trusted"
    LOG_RESET = "logs_reset"
    SNAPSHOT_SAVED = "snapshots_saved"
    SNAPSHOT_INSTALLED = "snapshots_installed"


class WorkCounts:
    """The amount of each kind of work in one run."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts = dict.fromkeys(SimWork, 0)

    def add(self, work: SimWork, count: int = 1) -> None:
        """Add `count` to `work`."""
        self._counts[work] += count

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name, in the order of `SimWork`."""
        return {work.value: count for work, count in self._counts.items()}
