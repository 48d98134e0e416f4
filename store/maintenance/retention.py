"""Retention of a message store: old files of the log are deleted, then the part of queues and index before its start.

The rules are those of `store.fs.retention_rules`, with RocketMQ's numbers (`MessageStoreConfig.retention_rules`).
Messages that are not durable in queues and index are never deleted, so that no queue loses its end offset; nor those
that compacted topics need. While the disk is too full, puts are refused.

Source: RocketMQ `CleanCommitLogService`, `CleanConsumeQueueService`; RocketMQ deletes ten files in a forced round; here
the disk is checked again after each file.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from store.fs.retention_rules import ClockReading, ExpiringLog, RetentionPolicy, read_clocks
from store.maintenance.archive_mark import ArchiveFloor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.access.message_store import MessageStore
    from store.fs.ports import Files
    from store.model.config import MessageStoreConfig
    from store.model.local_log import LocalLog

logger = logging.getLogger(__name__)

_MS_PER_S = 1000


class DeletableFiles(ExpiringLog, Protocol):
    """The files of a log that retention may delete."""

    @property
    def begin_offset(self) -> int:
        """Offset of the oldest file."""
        ...

    @property
    def end_offset(self) -> int:
        """After the last record."""
        ...

    @property
    def last_store_timestamp(self) -> int:
        """Store timestamp of the last record, in milliseconds since 1970; -1 when there is none."""
        ...

    def delete_before(self, offset: int) -> None:
        """Delete, durably, the files that end at or before `offset`.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        ...


class LocalLogFiles:
    """The files of a local log, as `DeletableFiles`: all but the one with the last record."""

    def __init__(self, log: LocalLog[Any]) -> None:
        self._log = log

    @property
    def begin_offset(self) -> int:
        """Offset of the oldest file."""
        return self._log.begin_offset

    @property
    def end_offset(self) -> int:
        """Offset after the last written record."""
        return self._log.written_offset

    @property
    def last_store_timestamp(self) -> int:
        """Store timestamp of the last record, in milliseconds since 1970; -1 when there is none."""
        return self._log.last_store_timestamp

    def old_files(self, count_max: int) -> Sequence[tuple[str, int]]:
        """Return (path, end) of the oldest files, at most `count_max`, without the last file."""
        last = self._log.written_offset - 1
        return [(file.path, file.end_offset) for file in self._log.files() if file.end_offset <= last][:count_max]

    def newest_path(self) -> str | None:
        """Return the path of the file with the end of the log; None if the log is empty."""
        last = self._log.written_offset - 1
        return next((file.path for file in self._log.files() if file.begin_offset <= last < file.end_offset), None)

    def delete_before(self, offset: int) -> None:
        """Delete, durably, the files that end at or before `offset`."""
        self._log.delete_before(offset)


class StoreRetention:
    """Checks the disk regularly, and deletes old files.

    Args:
        store: its queues and index expire with the log, and it refuses puts on a full disk.
        log: the files of its log.
        files: the file system.
        directory: a path on the disk to check.
        config: the numbers.
        clocks: of the machine; tests may pass others.
        floor: returns the first offset that is needed; None: `MessageStore.needed_from` is used.
        expire: deletes the part of queues and index before the log's start; None: it is deleted at once.

    Attributes:
        deleted_files_count: since the store was opened.
        archive: the offset up to which the log is archived.
    """

    def __init__(
        self,
        store: MessageStore,
        log: DeletableFiles,
        files: Files,
        directory: str,
        config: MessageStoreConfig,
        clocks: Callable[[], ClockReading] = read_clocks,
        floor: Callable[[], int] | None = None,
        expire: Callable[[], None] | None = None,
    ) -> None:
        self._store = store
        self._log = log
        self._floor = floor or (lambda: store.needed_from)
        self._expire = expire or store.expire
        self._batch_max = config.delete_file_batch_max
        self._clocks = clocks
        self._policy = RetentionPolicy(
            config.retention_rules, files, directory, log, log.end_offset, _seconds(log.last_store_timestamp)
        )
        self._policy.read_clocks(clocks())
        if self._policy.silence_s:
            logger.info("retention_silence seconds=%.0f", self._policy.silence_s)
        self.archive = ArchiveFloor(files, config.archive_mark, config.archive_log)
        # Number of files deleted in this round; at most `_batch_max`.
        self._round_count = 0
        self.deleted_files_count = 0

    @property
    def used_ratio(self) -> float:
        """Used share of the disk at the last check, from 0 to 1."""
        return self._policy.used_ratio

    @property
    def is_disk_full(self) -> bool:
        """Whether puts are refused until space is free."""
        return self._policy.is_disk_full

    @property
    def is_held_back(self) -> bool:
        """Whether at the last check an expired file was kept only because it is still needed."""
        return self._policy.is_held_back

    @property
    def is_clock_trusted(self) -> bool:
        """Whether files could expire by age at the last check; False after a jump of the wall clock."""
        return self._policy.is_clock_trusted

    def leave_expiry(self) -> None:
        """Leave the expiry of queues and index to the caller, which runs it in steps."""
        self._expire = _leave_to_caller

    def run(self) -> None:
        """Check the disk and the archive mark, and delete all files that one round may delete.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        self.archive.check()
        self.begin_round()
        while self.step():
            continue

    def begin_round(self) -> None:
        """Begin a round of at most `delete_file_batch_max` files."""
        self._round_count = 0

    def step(self) -> bool:
        """Delete at most one file, because a deletion takes time; return whether to continue in this round.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        was_full = self.is_disk_full
        floor = self.archive.lowered(self._floor(), self._log.begin_offset)
        chosen = self._policy.check(self._clocks(), floor)
        if self.is_disk_full != was_full:
            logger.warning("disk used=%.2f is_full=%s", self.used_ratio, self.is_disk_full)
            percent = round(self.used_ratio * 100)
            self._store.refuse_puts(f"the disk is {percent} % full; free space on it" if self.is_disk_full else "")
        if not chosen or self._round_count >= self._batch_max:
            return False
        self._log.delete_before(chosen[0])
        self._expire()
        self._round_count += 1
        self.deleted_files_count += 1
        logger.info("deleted_file begin_offset=%d disk_used=%.2f", self._log.begin_offset, self.used_ratio)
        return True


def _seconds(timestamp_ms: int) -> float | None:
    return None if timestamp_ms < 0 else timestamp_ms / _MS_PER_S


def _leave_to_caller() -> None:
    """Do nothing."""
