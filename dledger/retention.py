"""Which old data files go: by age, by how full the disk is, and never before their entries are needed no more.

DLedger's rules and numbers (`DLedgerMmapFileStore.CleanSpaceService`):

| when                                          | what goes, oldest first                              |
| --------------------------------------------- | ---------------------------------------------------- |
| in the hours of `delete_when`, or the disk is | files not written for `file_reserved_hours`, at most |
| fuller than 0.70                              | ten at once                                          |
| the disk is fuller than 0.85, and             | the oldest file, however young; then the disk is     |
| `enable_disk_force_clean` is set              | looked at again                                      |
| the disk is fuller than 0.90 (0.05 above the  | appends are refused                                  |
| one before, at most 0.95)                     |                                                      |

Other than there: nothing goes from `floor_index` on, a registered state machine switches nothing off, and a clock that
jumps deletes nothing. Ages are told by the wall clock, for nothing else outlives a restart. Therefore:

- The wall clock is compared with the monotonic one. If they come apart by more than five minutes between two looks, no
  file expires until the reserved time has passed by the monotonic clock: then every file that was there at the jump is
  old enough by that one. A jump that is taken back is a second jump: what was written in between bears a wrong time.
- What this process has written itself is no older than the process, whatever a wrong clock wrote on the file.
- When the node starts and even the newest file seems old enough to go, either nothing was written for days or the
  clock is wrong. That counts as a jump.

The disk's fullness does not depend on clocks, nor does what it decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dledger.entry_reader import EntryReader
from store.files import Files

FILES_MAX = 10
_FORCE_RATIO_MIN = 0.50
_FULL_MARGIN = 0.05
_FULL_RATIO_MAX = 0.95
_JUMP_S = 300.0
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """See the module's text.

    Attributes:
        file_reserved_hours: how long a file is kept behind its last write; at least 1.
        delete_when: hours of the day, local time.
        disk_space_ratio_to_check_expired: used part of the disk above which old files go at any hour.
        disk_space_ratio_to_force_clean: the same for files of any age; at least 0.50 holds.
        enable_disk_force_clean: False: young files never go.
    """

    file_reserved_hours: int = 72
    delete_when: tuple[int, ...] = (4,)
    disk_space_ratio_to_check_expired: float = 0.70
    disk_space_ratio_to_force_clean: float = 0.85
    enable_disk_force_clean: bool = True

    @property
    def reserved_s(self) -> float:
        """How long a file is kept, in seconds."""
        return max(self.file_reserved_hours, 1) * _HOUR_S

    @property
    def disk_full_ratio(self) -> float:
        """Used part of the disk above which appends are refused."""
        return min(self.disk_space_ratio_to_force_clean + _FULL_MARGIN, _FULL_RATIO_MAX)


@dataclass(frozen=True, slots=True)
class OldFile:
    """A data file behind which others follow.

    Attributes:
        end_index: all of its entries are below.
        modified_s: when it was last written; seconds since 1970 by the wall clock.
    """

    end_index: int
    modified_s: float


@dataclass(frozen=True, slots=True)
class ClockReading:
    """What the clocks say at one moment.

    Attributes:
        wall_s: seconds since 1970.
        monotonic_s: of any origin; the same for the life of the process.
        hour: local hour of the day, from 0 to 23.
    """

    wall_s: float
    monotonic_s: float
    hour: int


def decide(
    files: Sequence[OldFile],
    now: ClockReading,
    used_ratio: float,
    floor_index: int,
    settings: RetentionSettings,
    *,
    is_clock_trusted: bool,
) -> tuple[int, ...]:
    """Return the end indexes of the files to delete now, in order.

    Args:
        files: data files, oldest first, without the one that holds the last entry.
        now: what the clocks say.
        used_ratio: how full the disk is, from 0 to 1.
        floor_index: entries from here on must stay.
        settings: the rules.
        is_clock_trusted: False: no file is old enough.
    """
    force_ratio = max(settings.disk_space_ratio_to_force_clean, _FORCE_RATIO_MIN)
    is_forced = settings.enable_disk_force_clean and used_ratio > force_ratio
    is_due = now.hour in settings.delete_when or used_ratio > settings.disk_space_ratio_to_check_expired
    chosen: list[int] = []
    for file in files[:FILES_MAX]:
        is_expired = is_due and is_clock_trusted and now.wall_s - file.modified_s >= settings.reserved_s
        is_first_forced = is_forced and not chosen
        if file.end_index > floor_index or not (is_expired or is_first_forced):
            break
        chosen.append(file.end_index)
    return tuple(chosen)


class ClockWatch:
    """Tells whether the wall clock can be believed; see the module's text."""

    __slots__ = ("_jumped_s", "_offset_s", "_reserved_s")

    def __init__(self, reserved_s: float) -> None:
        self._reserved_s = reserved_s
        self._offset_s: float | None = None
        self._jumped_s: float | None = None

    def is_trusted(self, now: ClockReading, newest_modified_s: float) -> bool:
        """Look at the clocks; return whether ages by the wall clock count.

        Args:
            now: what the clocks say.
            newest_modified_s: when the newest data file was last written.
        """
        offset_s = now.wall_s - now.monotonic_s
        if self._offset_s is None:
            has_jumped = now.wall_s - newest_modified_s >= self._reserved_s
        else:
            has_jumped = abs(offset_s - self._offset_s) > _JUMP_S
        self._offset_s = offset_s
        if has_jumped:
            self._jumped_s = now.monotonic_s
        return self._jumped_s is None or now.monotonic_s - self._jumped_s >= self._reserved_s


class RetentionPolicy:
    """Looks at one log and its disk once in a while, and says what goes. It deletes nothing itself.

    Args:
        settings: the rules.
        files: the file system that holds the log.
        directory: of the log.
        log: open.

    Attributes:
        is_disk_full: whether appends are to be refused with DISK_FULL, as the last look found.
    """

    def __init__(self, settings: RetentionSettings, files: Files, directory: str, log: EntryReader) -> None:
        self._settings = settings
        self._files = files
        self._directory = directory
        self._log = log
        self._clock = ClockWatch(settings.reserved_s)
        self._used_ratio = 0.0
        self.is_disk_full = False
        self._is_clock_trusted = True
        self._found_last_index = log.last_index
        self._began_s: float | None = None

    @property
    def used_ratio(self) -> float:
        """How full the disk was at the last look, from 0 to 1."""
        return self._used_ratio

    @property
    def is_clock_trusted(self) -> bool:
        """Whether files expired by age at the last look; False after the wall clock jumped."""
        return self._is_clock_trusted

    def read_clocks(self, now: ClockReading) -> None:
        """Take note of the clocks: later ones are compared with these. Call it when the node starts."""
        if self._began_s is None:
            self._began_s = now.monotonic_s
        newest_path = self._log.newest_path()
        newest_s = now.wall_s if newest_path is None else self._files.modified_time(newest_path)
        self._is_clock_trusted = self._clock.is_trusted(now, newest_s)

    def look(self, now: ClockReading, floor_index: int) -> tuple[int, ...]:
        """Return the indexes to call `EntryStore.delete_before` with, ascending, one for each file that goes.

        The caller should give the rest of the node a turn between two of them: to remove a large file takes time.

        Args:
            now: what the clocks say.
            floor_index: entries from here on must stay: the smallest of what is not committed, not dispatched, not in
                the state machine's newest snapshot, or needed by a peer that catches up.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        self._used_ratio = self._files.disk_used_ratio(self._directory)
        self.is_disk_full = self._used_ratio > self._settings.disk_full_ratio
        self.read_clocks(now)
        old_files = [
            OldFile(end_index, self._written_s(now, path, end_index))
            for path, end_index in self._log.old_files(FILES_MAX)
        ]
        return decide(
            old_files, now, self._used_ratio, floor_index, self._settings, is_clock_trusted=self._is_clock_trusted
        )

    def _written_s(self, now: ClockReading, path: str, end_index: int) -> float:
        """Return when a file was last written, by the wall clock."""
        modified_s = self._files.modified_time(path)
        if end_index - 1 <= self._found_last_index:
            return modified_s
        assert self._began_s is not None
        return max(modified_s, now.wall_s - (now.monotonic_s - self._began_s))
