"""Takes records in the event loop and writes them in a thread: no call waits for the disk.

| when | what happens |
| --- | --- |
| more than `WAITING_MAX` records wait | those of data, logins and refusals are lost; others have more space |
| a file cannot be written (disk full) | its records are lost; calls are served, and later records are tried again |
| records were lost | counted by kind; logged at most once a minute; the next line that is written has their number |
| a caller makes many equal calls | the first have a line each, the others a summary a minute; of changes it is logged |
| the process ends | what waits is written |
| the process is killed | what waits is lost, some milliseconds; lines of administration are synced |

Calls are not refused because they cannot be recorded: a full disk refuses messages already, and an administrator must
be able to act on it.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from cluster.audit.line_window import window_of_changes, window_of_refusals
from cluster.audit.record import TEXT_LENGTH_MAX, AuditRecord, RecordKind
from cluster.audit.series import RecordSeries, SeriesName, series_of
from cluster.config.audit_settings import AUDIT_FILE_SIZE_BYTES, AUDIT_FILES_MAX, AUDIT_KEEP_DAYS
from dledger.errors import DLedgerError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from pathlib import Path

# Some 10 KiB each at most: nine resources, whose names have 255 characters.
WAITING_MAX: Final = 4_096
# Only for administration.
_RESERVED: Final = 1_024
_FAULT_PAUSE_S: Final = 60.0
_SUMMARY_PAUSE_S: Final = 1.0

logger = logging.getLogger(__name__)


class AuditUnusable(DLedgerError):
    """The audit log cannot be written at a start. The broker does not start: correct `audit_dir`, or its owner."""


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class AuditLog:
    """The audit log of one node.

    Args:
        directory: of its files; made with mode 0700 if absent.
        node: id of the node: it is in each line, and in the names of the files.
        size_bytes_max: of each file.
        files_max: of each of the three series.
        keep_days: a file that is deleted although it has a younger record is logged; 0: none is.
        is_access_recorded: see the attribute.
        clock_ms: time of day in milliseconds since 1970.

    Attributes:
        is_access_recorded: callers also add records of calls that read or write messages.
        written: lines by kind, for metrics.
        summarized: records by kind that have no line of their own, but are counted in a summary.
        lost: records by kind that were not written.

    Raises:
        AuditUnusable: the files cannot be opened.
    """

    def __init__(
        self,
        directory: Path,
        node: str,
        *,
        size_bytes_max: int = AUDIT_FILE_SIZE_BYTES,
        files_max: int = AUDIT_FILES_MAX,
        keep_days: int = AUDIT_KEEP_DAYS,
        is_access_recorded: bool = False,
        clock_ms: Callable[[], int] = _wall_clock_ms,
    ) -> None:
        self.clock_ms = clock_ms
        self.is_access_recorded = is_access_recorded
        self.written = dict.fromkeys(map(str, RecordKind), 0)
        self.summarized = dict.fromkeys(map(str, RecordKind), 0)
        self.lost = dict.fromkeys(map(str, RecordKind), 0)
        # The name of a standalone broker may have any characters.
        stem = re.sub(r"[^A-Za-z0-9_.-]", "_", node)
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._series = {
                name: RecordSeries(
                    directory,
                    stem,
                    name,
                    node,
                    size_bytes_max=size_bytes_max,
                    files_max=files_max,
                    keep_days=keep_days,
                    clock_ms=clock_ms,
                )
                for name in SeriesName
            }
        except OSError as error:
            raise AuditUnusable(f"{directory}: expected a folder for the audit log: {error.strerror}") from error
        self._windows = {
            SeriesName.ADMIN: window_of_changes(),
            SeriesName.REFUSALS: window_of_refusals(),
            # Of data each call is recorded, and none is counted here.
            SeriesName.ACCESS: window_of_refusals(),
        }
        self._waiting: deque[AuditRecord] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        # What the thread has not reported yet, and when it logged last.
        self._unreported = 0
        self._logged_s = -_FAULT_PAUSE_S
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def add(self, record: AuditRecord, client: str = "local") -> None:
        """Have a record written, or counted in a summary; it does not wait.

        Args:
            record: of a call; one of data is never counted in a summary.
            client: address by which records are counted together; of IPv6 a network.
        """
        with self._changed:
            if record.kind is RecordKind.ACCESS:
                self._put(record)
                return
            window = self._windows[series_of(record)]
            had_summaries = window.has_summaries
            due = window.add(record, *_equal(record, client))
            for each in due:
                self._put(each)
            if not due or due[-1] is not record:
                self.summarized[record.kind] += 1
            if window.has_summaries and not had_summaries:
                # The thread must wait for the end of the window.
                self._changed.notify()

    def ages_s(self) -> dict[str, float]:
        """Return the age of the oldest record of each series that has one, in seconds; for any thread."""
        times = {name.value: series.oldest_ms for name, series in self._series.items()}
        now_ms = self.clock_ms()
        return {name: max(0, now_ms - oldest_ms) / 1_000 for name, oldest_ms in times.items() if oldest_ms is not None}

    def close(self) -> None:
        """Write what waits, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()
        for series in self._series.values():
            series.file.close()

    def _put(self, record: AuditRecord) -> None:
        space = WAITING_MAX + (_RESERVED if record.kind is RecordKind.ADMIN else 0)
        if len(self._waiting) < space:
            self._waiting.append(record)
            self._changed.notify()
        else:
            self._note_lost(record)

    def _note_lost(self, record: AuditRecord) -> None:
        self.lost[record.kind] += record.number
        self._unreported += record.number

    # ------------------------------------------------------------------------------------------------- in the thread

    def _run(self) -> None:
        while self._write(self._next()):
            pass

    def _next(self) -> list[AuditRecord]:
        """Return the records that wait, and summaries that are due, as soon as there are some; none: at the end."""
        with self._changed:
            while not self._waiting and not self._is_closed:
                has_summaries = any(each.has_summaries for each in self._windows.values())
                self._changed.wait(_SUMMARY_PAUSE_S if has_summaries else None)
                for each in self._windows.values():
                    self._waiting += each.ended(self.clock_ms())
            records = [*self._waiting]
            if self._is_closed:
                for each in self._windows.values():
                    records += each.end()
            self._waiting.clear()
            return records

    def _write(self, records: list[AuditRecord]) -> bool:
        """Write records; return False if there were none: the end."""
        fault: OSError | None = None
        changes = self._series[SeriesName.ADMIN]
        is_changed = False
        for record in records:
            series = self._series[series_of(record)]
            try:
                self._report_lost(series)
                series.append(record)
            except OSError as error:
                fault = error
                with self._changed:
                    self._note_lost(record)
            else:
                is_changed = is_changed or series is changes
                self.written[record.kind] += 1
        if is_changed:
            try:
                changes.file.sync()
            except OSError as error:
                fault = error
        _log_summaries(records)
        self._log(fault)
        return bool(records)

    def _report_lost(self, series: RecordSeries) -> None:
        """Write how many records were lost, if some were.

        Raises:
            OSError: it is not written.
        """
        count = self._unreported
        if count:
            now_ms = self.clock_ms()
            record = AuditRecord(now_ms, RecordKind.LOST, result="LOST", number=count, until_ms=now_ms)
            series.append(record)
            with self._changed:
                self._unreported -= count

    def _log(self, fault: OSError | None) -> None:
        lost = sum(self.lost.values())
        now_s = time.monotonic()
        if (fault is not None or self._unreported) and now_s - self._logged_s >= _FAULT_PAUSE_S:
            self._logged_s = now_s
            reason = "too many waited" if fault is None else fault.strerror
            logger.error("audit_lost records=%d since the start, reason=%r", lost, reason)


def _equal(record: AuditRecord, client: str) -> tuple[Hashable, Hashable]:
    """Return by which records the limits of lines count, and by which of these one summary has them."""
    user = record.user[:TEXT_LENGTH_MAX]
    name = series_of(record)
    if name is SeriesName.ADMIN:
        return (user, "" if user else client), (record.method, record.result)
    method = record.method if name is SeriesName.ACCESS else ""
    return (record.kind, user, client, method, record.result), record.kind


def _log_summaries(records: list[AuditRecord]) -> None:
    """Log that changes have no line of their own: once a minute at most, as they are due then."""
    summaries = [each for each in records if each.kind is RecordKind.ADMIN and each.until_ms]
    if summaries:
        most = max(summaries, key=lambda each: each.number)
        logger.warning(
            "audit_summarized changes=%d most=%d user=%r address=%s method=%s: too many of one caller for a line each",
            sum(each.number for each in summaries),
            most.number,
            most.user,
            most.address,
            most.method,
        )
