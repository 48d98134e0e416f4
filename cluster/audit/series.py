"""One series of files of the audit log: a hash chain of lines, the age of the oldest one, early deletions."""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from cluster.audit.chain import FIRST, hash_of, linked
from cluster.audit.files import RotatedFile
from cluster.audit.record import OK, AuditRecord, RecordKind, time_of_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS

logger = logging.getLogger(__name__)


class SeriesName(StrEnum):
    """The series of a node: neither refused callers nor readers make rotation delete changes, or each other's lines."""

    ADMIN = "admin"
    REFUSALS = "refusals"
    ACCESS = "access"


def series_of(record: AuditRecord) -> SeriesName:
    """Return the series of a record; that of lost records is the one whose next line reports them."""
    if record.kind is RecordKind.ADMIN:
        return SeriesName.ADMIN
    if record.kind is RecordKind.REFUSAL or (record.kind is RecordKind.LOGIN and record.result != OK):
        return SeriesName.REFUSALS
    return SeriesName.ACCESS


class RecordSeries:
    """The files of one series. The thread of the log uses it.

    Args:
        directory: of the files; it exists.
        stem: of their names.
        name: of the series.
        node: id of the node, which is in each line.
        size_bytes_max: of each file.
        files_max: with the newest one.
        keep_days: a deleted file whose newest record is younger is logged, at most once an hour; 0: none is.
        clock_ms: time of day in milliseconds since 1970.

    Attributes:
        file: the files.
        oldest_ms: time of the oldest record, since 1970; None: there is no record. Other threads may read it.

    Raises:
        OSError: the files cannot be opened or read.
    """

    def __init__(
        self,
        directory: Path,
        stem: str,
        name: SeriesName,
        node: str,
        *,
        size_bytes_max: int,
        files_max: int,
        keep_days: int,
        clock_ms: Callable[[], int],
    ) -> None:
        self._name = name
        self._node = node
        self._keep_days = keep_days
        self._clock_ms = clock_ms
        # When an early deletion was logged last.
        self._logged_ms: int | None = None
        self.file = RotatedFile(
            directory, f"{stem}-{name}", size_bytes_max=size_bytes_max, files_max=files_max, rotated=self._rotated
        )
        last = self.file.last_line()
        self._head = hash_of(last) if last else FIRST
        self.oldest_ms = time_of_line(self.file.first_line())

    def append(self, record: AuditRecord) -> None:
        """Write one record.

        Raises:
            OSError: it is not written.
        """
        line = linked(record.line(self._node), self._head)
        self.file.append(line)
        self._head = hash_of(line)
        if self.oldest_ms is None:
            self.oldest_ms = record.time_ms

    def _rotated(self, deleted: bytes) -> None:
        """Log that a file was deleted too early, if so, and look for the oldest record that is left.

        Args:
            deleted: last line of the file; empty: none was deleted.
        """
        try:
            self.oldest_ms = time_of_line(self.file.first_line())
        except OSError:
            # Unknown until the next rotation; the record that is being written is younger.
            self.oldest_ms = None
        newest_ms, now_ms = time_of_line(deleted), self._clock_ms()
        if newest_ms is None or now_ms - newest_ms >= self._keep_days * _DAY_MS:
            return
        if self._logged_ms is None or not 0 <= now_ms - self._logged_ms < _HOUR_MS:
            self._logged_ms = now_ms
            logger.warning(
                "audit_rotated_early series=%s: the newest record of the deleted file was %.1f hours old, expected "
                "audit_keep_days=%d at least. Raise audit_files_max, or find out which caller causes the records",
                self._name,
                (now_ms - newest_ms) / _HOUR_MS,
                self._keep_days,
            )
