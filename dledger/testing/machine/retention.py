"""The production retention rules in a simulated node, whose time of day may be changed at any time.

Runs are shorter than the retention time, so no file may be deleted because of its age, unless the clock was changed
before the node started, which the node cannot detect. Files may be deleted because the disk is full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.node.maintenance.retention_rules import RetentionSettings
from dledger.testing.faults import Violation
from store.fs.retention_rules import ClockReading, RetentionPolicy

if TYPE_CHECKING:
    from dledger.entries.store import EntryStore
    from dledger.testing.clock import SimClock
    from dledger.testing.disk.files import SimFiles

_US_PER_S = 1_000_000
_SETTINGS = RetentionSettings(delete_when=tuple(range(24)))


class SimRetention:
    """Chooses the files to delete.

    Args:
        node_id: of the node.
        clock: of its machine.
        files: its file system.
        directory: of the log.
        store: the log.
    """

    def __init__(self, node_id: str, clock: SimClock, files: SimFiles, directory: str, store: EntryStore) -> None:
        self._node_id = node_id
        self._clock = clock
        self._is_clock_set_before = clock.is_set
        self._policy = RetentionPolicy(_SETTINGS.rules, files, directory, store, found_end=store.last_index + 1)
        self._policy.read_clocks(self._read_clocks())

    def check(self, floor_index: int) -> tuple[int, ...]:
        """Return the indexes to call `delete_before` with.

        Raises:
            Violation: a file would be deleted because of its age.
        """
        indexes = self._policy.check(self._read_clocks(), floor_index)
        is_full = self._policy.used_ratio > _SETTINGS.disk_space_ratio_to_force_clean
        if indexes and not is_full and not self._is_clock_set_before:
            raise Violation("retention", f"{self._node_id} deletes entries up to {indexes} by a clock that was set")
        return indexes

    def _read_clocks(self) -> ClockReading:
        clock = self._clock
        return ClockReading(clock.wall_us() / _US_PER_S, clock.now_us() / _US_PER_S, 4)
