"""Deletes old data files of a running node, one in each iteration of the event loop.

Not here: the choice of files (`store.fs.retention_rules`), the deletion itself (`dledger.entries.store`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dledger.node.maintenance.retention_rules import RetentionSettings
from store.errors import DiskFull
from store.fs.retention_rules import ClockReading, RetentionPolicy, read_clocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.config import NodeConfig
    from dledger.driver.driver import Driver
    from dledger.node.ports import Core, DriverSteps, SnapshotRequests

logger = logging.getLogger(__name__)


class NodeRetention:
    """Periodically chooses data files that may be deleted, and lets the driver delete them.

    Args:
        policy: selects the files.
        floor: the first index that must be kept; notified when it alone prevents a deletion.
        core: while it reports a stalled disk nothing is deleted, because a deletion would block the event loop.
        steps: runs each step; an exception stops the node.
        free_aside: deletes one file of the log that a reset replaced; returns False if there is none.
        clocks: of the machine; tests may pass others.

    Attributes:
        deleted_files_count: number of files deleted since the node started.
    """

    def __init__(
        self,
        policy: RetentionPolicy,
        *,
        floor: RetentionFloor,
        core: Core,
        steps: DriverSteps,
        free_aside: Callable[[], bool],
        clocks: Callable[[], ClockReading] = read_clocks,
    ) -> None:
        self.deleted_files_count = 0
        self._policy = policy
        self._floor = floor
        self._core = core
        self._steps = steps
        self._free_aside = free_aside
        self._clocks = clocks
        # The begin index of the log after each deletion, ascending. While it is not empty, one `_delete` is scheduled,
        # and `look` chooses no more files.
        self._to_delete: list[int] = []
        policy.read_clocks(clocks())
        if policy.silence_s:
            logger.info("retention_silence seconds=%.0f", policy.silence_s)

    @property
    def used_ratio(self) -> float:
        """Used part of the disk at the last check, from 0 to 1."""
        return self._policy.used_ratio

    @property
    def silence_s(self) -> float:
        """Seconds between the last write before the start and the start; they age no file."""
        return self._policy.silence_s

    @property
    def is_disk_full(self) -> bool:
        """Whether appends are refused until space is free."""
        return self._policy.is_disk_full

    @property
    def is_held_back(self) -> bool:
        """Whether at the last check only the floor prevented a deletion."""
        return self._policy.is_held_back

    def check(self) -> None:
        """Choose the files that may be deleted, and begin to delete them.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        if not self._to_delete and not self._core.is_disk_stalled:
            was_full = self.is_disk_full
            self._to_delete = list(self._policy.check(self._clocks(), self._floor.index()))
            if self._policy.is_short_of_space and self._free_aside():
                # No guarantee depends on a replaced log, so it is deleted before any file of the current log.
                self._to_delete.clear()
                self._steps.soon(self._look_again)
            if self.is_disk_full != was_full:
                logger.warning("disk used=%.2f is_full=%s", self.used_ratio, self.is_disk_full)
            if self._to_delete:
                self._steps.soon(self._delete)
            elif self.is_held_back:
                self._floor.held_back()

    def _delete(self, driver: Driver) -> None:
        index = self._to_delete.pop(0)
        # A follower that needs the file may have connected since the check.
        if index > self._floor.index() or self._core.is_disk_stalled:
            self._to_delete.clear()
            return
        try:
            driver.delete_before(index)
        except DiskFull as error:
            # The disk has no space to record the new start of the log; the next check retries.
            logger.warning("cannot_delete error=%r", str(error))
            self._to_delete.clear()
            return
        self.deleted_files_count += 1
        logger.info("deleted_file begin_index=%d disk_used=%.2f", driver.raft.begin_index, self.used_ratio)
        # The disk is less full now, and one check chooses a bounded number of files.
        self._steps.soon(self._delete if self._to_delete else self._look_again)

    def _look_again(self, driver: Driver) -> None:
        del driver
        self.check()


class RetentionFloor:
    """The first index that must be kept: for the group, for the state machine after a restart, or for the owner.

    Args:
        core: knows what the group needs.
        snapshots: requests one of the state machine; None without a state machine.
        keep_from: returns the first index that the owner needs; None: it needs none.
    """

    def __init__(self, core: Core, snapshots: SnapshotRequests | None, keep_from: Callable[[], int] | None) -> None:
        self._core = core
        self._snapshots = snapshots
        self._keep_from = keep_from

    def index(self) -> int:
        """Return the first index that must be kept."""
        core, snapshots = self._core, self._snapshots
        floor = core.retention_floor if snapshots is None else min(core.retention_floor, core.snapshot_index + 1)
        return floor if self._keep_from is None else min(floor, self._keep_from())

    def held_back(self) -> None:
        """Request a snapshot when a missing snapshot is the only reason old files cannot be deleted."""
        snapshots = self._snapshots
        if snapshots is not None and self._core.snapshot_index + 1 == self.index():
            snapshots.request_snapshot()


def retention_settings(config: NodeConfig) -> RetentionSettings:
    """Return the retention rules in the settings."""
    return RetentionSettings(
        file_reserved_hours=config.file_reserved_hours,
        delete_when=config.delete_when,
        disk_space_ratio_to_check_expired=config.disk_space_ratio_to_check_expired,
        disk_space_ratio_to_force_clean=config.disk_space_ratio_to_force_clean,
        enable_disk_force_clean=config.enable_disk_force_clean,
    )
