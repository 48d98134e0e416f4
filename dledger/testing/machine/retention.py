"""The production rules of retention in a simulated node, whose time of day may be set at any moment.

No run lasts as long as a file is kept, so nothing may ever go because of its age, unless the clock was set before the
node started: what it could compare with is gone then. What goes because the disk is full may go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.node.retention_rules import RetentionSettings
from dledger.testing.faults import Violation
from store.fs.retention_rules import ClockReading, RetentionPolicy

if TYPE_CHECKING:
    from dledger.entries.store import EntryStore
    from dledger.testing.clock import SimClock
    from dledger.testing.disk.files import SimFiles

_US_PER_S = 1_000_000
_SETTINGS = RetentionSettings(delete_when=tuple(range(24)))


class SimRetention:
    """Says which files go now.

    Args:
        node_id: whose.
        clock: its machine's.
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

    def look(self, floor_index: int) -> tuple[int, ...]:
        """Return the indexes to call `delete_before` with.

        Raises:
            Violation: a file goes because of its age.
        """
        indexes = self._policy.look(self._read_clocks(), floor_index)
        is_full = self._policy.used_ratio > _SETTINGS.disk_space_ratio_to_force_clean
        if indexes and not is_full and not self._is_clock_set_before:
            raise Violation("retention", f"{self._node_id} deletes entries up to {indexes} by a clock that was set")
        return indexes

    def _read_clocks(self) -> ClockReading:
        clock = self._clock
        return ClockReading(clock.wall_us() / _US_PER_S, clock.now_us() / _US_PER_S, 4)
