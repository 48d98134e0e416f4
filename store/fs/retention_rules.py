"""Selects the old files of a log to delete, by age and disk usage, and only if their content is not needed.

| when                                     | action, oldest files first                                         |
| ---------------------------------------- | ------------------------------------------------------------------ |
| in the hours of `delete_when`, or the    | deletes files not written for `reserved_s`, at most ten at a time  |
| disk is fuller than `expire_ratio`       |                                                                    |
| the disk is fuller than `force_ratio`    | deletes the oldest file of any age; then checks the disk again     |
| the disk is fuller than `full_ratio`     | refuses appends                                                    |

The entry store (`dledger.node.maintenance.retention_rules`) and the message store (`store.maintenance.retention`) have
the numbers. In both, files from the floor on are never deleted, and a jump of the clock deletes no file. Ages are
computed from the wall clock, because no other clock survives a restart. Therefore:

- The wall clock is compared with the monotonic one. If they diverge by more than five minutes between two checks, no
  file expires until the reserved time has passed by the monotonic clock: then every file that existed at the jump is
  old enough by that clock. A jump back counts as a second jump, because files written in between have wrong times.
- Files that this process has written are not older than the process, even if a wrong clock gave them an older time.
- The time between the last write before the process started and the start, the *silence*, is not part of any file's
  age: either the machine was off, or no data was written, or the clock was set ahead, and these cases cannot be
  distinguished. Files are kept longer by that time, at most for the reserved time after the start.
- If even the newest file seems old enough when the process starts, either no data was written for days or the clock is
  wrong. That counts as a jump.

Disk usage, and the deletions that it causes, do not depend on clocks.

Source: RocketMQ `CleanCommitLogService`, DLedger `DLedgerMmapFileStore.CleanSpaceService`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.fs.ports import Files

FILES_MAX = 10
HOUR_S = 3600.0
_JUMP_S = 300.0


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """The numbers of the module's table.

    Attributes:
        reserved_s: time for which a file is kept after its last write, in seconds.
        delete_when: hours of the day, local time.
        expire_ratio: used part of the disk above which expired files are deleted at any hour.
        force_ratio: the same for files of any age; None: young files are never deleted.
        full_ratio: used part of the disk above which appends are refused.
    """

    reserved_s: float
    delete_when: tuple[int, ...]
    expire_ratio: float
    force_ratio: float | None
    full_ratio: float


@dataclass(frozen=True, slots=True)
class DeletableFile:
    """A file that is not the last one.

    Attributes:
        end: exclusive end of its content: an index of entries, or an offset of the log.
        modified_s: time of its last write; seconds since 1970 by the wall clock.
    """

    end: int
    modified_s: float


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Simultaneous readings of the clocks.

    Attributes:
        wall_s: seconds since 1970.
        monotonic_s: of any origin; the same for the life of the process.
        hour: local hour of the day, from 0 to 23.
    """

    wall_s: float
    monotonic_s: float
    hour: int


def read_clocks() -> ClockReading:
    """Return the current readings of this machine's clocks."""
    wall_s = time.time()  # noqa: TID251  (it stamps messages, and gives the age of files)
    return ClockReading(wall_s, time.monotonic(), time.localtime(wall_s).tm_hour)


class ExpiringLog(Protocol):
    """The port of a log for its retention."""

    def old_files(self, count_max: int) -> Sequence[tuple[str, int]]:
        """Return (path, end) of the oldest files, at most `count_max`, without the last file."""
        ...

    def newest_path(self) -> str | None:
        """Return the path of the file with the end of the log; None if the log is empty."""
        ...


def decide(
    files: Sequence[DeletableFile],
    now: ClockReading,
    used_ratio: float,
    floor: int,
    rules: RetentionRules,
    *,
    is_clock_trusted: bool,
) -> tuple[int, ...]:
    """Return the ends of the files to delete now, in order.

    Args:
        files: oldest first, without the last file.
        now: the clock readings.
        used_ratio: used share of the disk, from 0 to 1.
        floor: content from here on must be kept.
        rules: the numbers.
        is_clock_trusted: False: no file is old enough.
    """
    is_forced = rules.force_ratio is not None and used_ratio > rules.force_ratio
    is_due = now.hour in rules.delete_when or used_ratio > rules.expire_ratio
    chosen: list[int] = []
    for file in files[:FILES_MAX]:
        is_expired = is_due and is_clock_trusted and now.wall_s - file.modified_s >= rules.reserved_s
        is_first_forced = is_forced and not chosen
        if file.end > floor or not (is_expired or is_first_forced):
            break
        chosen.append(file.end)
    return tuple(chosen)


class ClockWatch:
    """Decides whether the wall clock can be trusted; see the module's docstring."""

    __slots__ = ("_jumped_s", "_offset_s", "_reserved_s")

    def __init__(self, reserved_s: float) -> None:
        self._reserved_s = reserved_s
        self._offset_s: float | None = None
        self._jumped_s: float | None = None

    def is_trusted(self, now: ClockReading, newest_modified_s: float) -> bool:
        """Compare the clocks; return whether ages by the wall clock can be trusted.

        Args:
            now: the clock readings.
            newest_modified_s: time of the last write to the newest data file.
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
    """Checks one log and its disk periodically, and selects the files to delete. It deletes nothing itself.

    Args:
        rules: the numbers.
        files: the file system of the log.
        directory: of the log.
        log: the open log.
        found_end: the end of the log at its opening, before which earlier processes wrote it.
        last_written_s: the time of their last write, in seconds since 1970; None: unknown, the time of the newest file
            is used, although opening a log may write to that file.

    Attributes:
        silence_s: seconds between that time and the start, if longer than a restart takes; else 0.
        is_disk_full: whether appends must be refused with DISK_FULL, according to the last check.
        is_held_back: whether at the last check only the floor prevented a deletion.
    """

    def __init__(
        self,
        rules: RetentionRules,
        files: Files,
        directory: str,
        log: ExpiringLog,
        found_end: int,
        last_written_s: float | None = None,
    ) -> None:
        self._rules = rules
        self._files = files
        self._directory = directory
        self._log = log
        self._clock = ClockWatch(rules.reserved_s)
        self._used_ratio = 0.0
        self.is_disk_full = self.is_held_back = False
        self._is_clock_trusted = True
        self._found_end = found_end
        self._last_written_s = last_written_s
        self._began_s: float | None = None
        self.silence_s = 0.0

    @property
    def used_ratio(self) -> float:
        """Used share of the disk at the last check, from 0 to 1."""
        return self._used_ratio

    @property
    def is_short_of_space(self) -> bool:
        """Whether at the last check the disk was fuller than `expire_ratio`."""
        return self._used_ratio > self._rules.expire_ratio

    @property
    def is_clock_trusted(self) -> bool:
        """Whether files could expire by age at the last check; False after a jump of the wall clock."""
        return self._is_clock_trusted

    def read_clocks(self, now: ClockReading) -> None:
        """Record the clocks for later comparisons; call it when the process starts."""
        newest_path = self._log.newest_path()
        newest_s = now.wall_s if newest_path is None else self._files.modified_time(newest_path)
        if self._began_s is None:
            self._began_s = now.monotonic_s
            known_s = newest_s if self._last_written_s is None else min(newest_s, self._last_written_s)
            silence_s = now.wall_s - known_s
            self.silence_s = silence_s if silence_s > _JUMP_S else 0.0
        self._is_clock_trusted = self._clock.is_trusted(now, newest_s)

    def check(self, now: ClockReading, floor: int) -> tuple[int, ...]:
        """Return the offsets for calls of the log's `delete_before`, ascending, one per file to delete.

        The caller should yield to the event loop between two of them: removing a large file takes time.

        Args:
            now: the clock readings.
            floor: content from here on must be kept: the first offset that is not committed, not dispatched, not in the
                state machine's newest snapshot, or needed by a peer that catches up.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        self._used_ratio = self._files.disk_used_ratio(self._directory)
        self.is_disk_full = self._used_ratio > self._rules.full_ratio
        self.read_clocks(now)
        old_files = [
            DeletableFile(end, self._written_s(now, path, end)) for path, end in self._log.old_files(FILES_MAX)
        ]

        def decided(floor: int) -> tuple[int, ...]:
            return decide(old_files, now, self._used_ratio, floor, self._rules, is_clock_trusted=self._is_clock_trusted)

        chosen = decided(floor)
        self.is_held_back = bool(old_files and not chosen and decided(old_files[0].end))
        return chosen

    def _written_s(self, now: ClockReading, path: str, end: int) -> float:
        """Return the time of the last write to a file, by the wall clock."""
        assert self._began_s is not None
        modified_s = self._files.modified_time(path)
        began_s = now.wall_s - (now.monotonic_s - self._began_s)
        if end > self._found_end:
            return max(modified_s, began_s)
        return min(modified_s + self.silence_s, max(modified_s, began_s))
