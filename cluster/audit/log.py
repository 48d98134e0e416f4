"""Takes records in the event loop and writes them in a thread: no call waits for the disk.

| when | what happens |
| --- | --- |
| more than `WAITING_MAX` records wait | those of data, logins and refusals are lost; others have more space |
| a file cannot be written (disk full) | its records are lost; calls are served, and later records are tried again |
| records were lost | counted by kind; logged at most once a minute; the next line that is written has their number |
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

from cluster.audit.chain import FIRST, hash_of, linked
from cluster.audit.files import RotatedFile
from cluster.audit.record import AuditRecord, RecordKind
from cluster.audit.refusals import RefusalWindow
from cluster.config.audit_settings import AUDIT_FILE_SIZE_BYTES, AUDIT_FILES_MAX
from dledger.errors import DLedgerError

if TYPE_CHECKING:
    from collections.abc import Callable
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


class _Series:
    """One series of files, whose lines are a hash chain. The thread uses it.

    Raises:
        OSError: the last line cannot be read.
    """

    def __init__(self, file: RotatedFile, node: str) -> None:
        self.file = file
        self._node = node
        last = file.last_line()
        self._head = hash_of(last) if last else FIRST

    def append(self, record: AuditRecord) -> None:
        """Write one record.

        Raises:
            OSError: it is not written.
        """
        line = linked(record.line(self._node), self._head)
        self.file.append(line)
        self._head = hash_of(line)


class AuditLog:
    """The audit log of one node.

    Args:
        directory: of its files; made with mode 0700 if absent.
        node: id of the node: it is in each line, and in the names of the files.
        size_bytes_max: of each file.
        files_max: of each of the two series.
        is_access_recorded: see the attribute.
        clock_ms: time of day in milliseconds since 1970.

    Attributes:
        is_access_recorded: callers also add records of calls that read or write messages.
        written: records by kind, for metrics.
        lost: the same of those that were not written.

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
        is_access_recorded: bool = False,
        clock_ms: Callable[[], int] = _wall_clock_ms,
    ) -> None:
        self.clock_ms = clock_ms
        self.is_access_recorded = is_access_recorded
        self.written = dict.fromkeys(map(str, RecordKind), 0)
        self.lost = dict.fromkeys(map(str, RecordKind), 0)
        # The name of a standalone broker may have any characters.
        stem = re.sub(r"[^A-Za-z0-9_.-]", "_", node)
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Refusals of unauthenticated callers never displace lines of administration: each has files of its own.
            self._admin, self._access = (
                _Series(
                    RotatedFile(directory, f"{stem}-{name}", size_bytes_max=size_bytes_max, files_max=files_max), node
                )
                for name in ("admin", "access")
            )
        except OSError as error:
            raise AuditUnusable(f"{directory}: expected a folder for the audit log: {error.strerror}") from error
        self._refusals = RefusalWindow()
        self._waiting: deque[AuditRecord] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        # What the thread has not reported yet, and when it logged last.
        self._unreported = 0
        self._logged_s = -_FAULT_PAUSE_S
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def add(self, record: AuditRecord) -> None:
        """Have a record written; it does not wait."""
        with self._changed:
            self._put(record)

    def add_refusal(self, record: AuditRecord, client: str) -> None:
        """Have a refusal written, or counted.

        Args:
            record: of a refusal, or of a login that failed.
            client: address by which refusals are counted together.
        """
        with self._changed:
            had_summaries = self._refusals.has_summaries
            for each in self._refusals.add(record, (record.user, client, record.result)):
                self._put(each)
            if self._refusals.has_summaries and not had_summaries:
                # The thread must wait for the end of the window.
                self._changed.notify()

    def close(self) -> None:
        """Write what waits, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()
        for series in (self._admin, self._access):
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
                has_summaries = self._refusals.has_summaries
                self._changed.wait(_SUMMARY_PAUSE_S if has_summaries else None)
                self._waiting += self._refusals.ended(self.clock_ms())
            records = [*self._waiting]
            if self._is_closed:
                records += self._refusals.end()
            self._waiting.clear()
            return records

    def _write(self, records: list[AuditRecord]) -> bool:
        """Write records; return False if there were none: the end."""
        fault: OSError | None = None
        is_admin = False
        for record in records:
            series = self._admin if record.kind is RecordKind.ADMIN else self._access
            try:
                self._report_lost(series)
                series.append(record)
            except OSError as error:
                fault = error
                with self._changed:
                    self._note_lost(record)
            else:
                is_admin = is_admin or series is self._admin
                self.written[record.kind] += 1
        if is_admin:
            try:
                self._admin.file.sync()
            except OSError as error:
                fault = error
        self._log(fault)
        return bool(records)

    def _report_lost(self, series: _Series) -> None:
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
