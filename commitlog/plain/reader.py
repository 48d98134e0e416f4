"""Reads a plain log: one record, a range of records as columns, and the offset for a time.

Not here: appending (`commitlog.plain.commit_log`), and finding the log's end (`commitlog.plain.recovery`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from commitlog.plain.file_scan import SCAN_SIZE, scan_file
from commitlog.plain.recovery import NO_TIMESTAMP
from commitlog.record.record import END_SIZE_MIN, BadRecord, Record, decode
from commitlog.record.record_runs import ReadableBytes, good_records
from store.errors import CorruptData
from store.model.commit_log import RawLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from commitlog.plain.accepted_damage import AcceptedPlace
    from commitlog.plain.recovery import RecoveredLog
    from store.fs.mapped.mapped_file import MappedFile
    from store.fs.mapped.mapped_file_queue import MappedFileQueue
    from store.model.dispatch_batch import DispatchBatch


class PlainLogFile(NamedTuple):
    """A file of the log.

    Attributes:
        path: of the file.
        begin_offset: of its first byte.
        end_offset: after its last byte.
    """

    path: str
    begin_offset: int
    end_offset: int


class PlainLogReader:
    """The readable part of a plain log: the read methods of `store.model.commit_log.CommitLog`.

    Args:
        queue: the files.
        recovered: the result of recovery.
        is_property_crc_checked: the store writes the property CRC, so it is checked.
    """

    def __init__(self, queue: MappedFileQueue, recovered: RecoveredLog, *, is_property_crc_checked: bool) -> None:
        self._queue = queue
        self._recovered = recovered
        self._is_property_crc_checked = is_property_crc_checked

    def close(self) -> None:
        """Close the files."""
        self._queue.close()

    # ---------------------------------------------------------------------------------------------- its content

    @property
    def recovery_notes(self) -> tuple[str, ...]:
        """One sentence for each repair, cut or skip at the opening, or for what a writable opening would do."""
        return self._recovered.notes

    @property
    def skipped_places(self) -> tuple[AcceptedPlace, ...]:
        """The damage that opening the log skipped and that was not accepted before."""
        return self._recovered.skipped_places

    @property
    def begin_offset(self) -> int:
        """Offset of the start of the first file, and of the oldest record."""
        return self._queue.begin_offset

    @property
    def end_offset(self) -> int:
        """Offset after the last readable record."""
        return self._recovered.end_offset

    @property
    def last_store_timestamp(self) -> int:
        """Store timestamp of the last record below `end_offset`; -1 when there is none."""
        return self._recovered.last_store_timestamp

    @property
    def file_size(self) -> int:
        """Bytes of each file."""
        return self._queue.file_size

    def files(self) -> list[PlainLogFile]:
        """Return all files, oldest first, including empty ones."""
        return [PlainLogFile(file.path, file.begin_offset, file.end_offset) for file in self._queue.mapped_files]

    # ---------------------------------------------------------------------------------------------------- reading

    def read(self, physical_offset: int, size: int) -> Record | None:
        """Return the record of `size` bytes at `physical_offset`; None if it is not readable yet, or deleted."""
        if physical_offset + size > self.end_offset:
            return None
        file = self._queue.find(physical_offset)
        if file is None:
            return None
        record = self._record(file, physical_offset, file.end_offset)
        if record.size != size:
            raise CorruptData(file.path, record.position, f"a record of {size} bytes", f"one of {record.size}")
        return record

    def read_many(self, places: Sequence[int], sizes: Sequence[int]) -> list[Record]:
        """Return the records at these offsets up to the first that `read` must examine: none, if it is the first."""
        file = self._queue.find(places[0])
        if file is None:
            return []
        begin = file.begin_offset
        part = ReadableBytes(file.file.view(), begin, begin, min(file.end_offset, self.end_offset))
        return good_records(part, places, sizes, is_property_crc_checked=self._is_property_crc_checked)

    def find(self, physical_offset: int) -> Record | None:
        """Return the record at `physical_offset`, of any size; None when none may be read there."""
        end_offset = self.end_offset
        if physical_offset >= end_offset:
            return None
        file = self._queue.find(physical_offset)
        return None if file is None else self._record(file, physical_offset, min(file.end_offset, end_offset))

    def _record(self, file: MappedFile, physical_offset: int, end_offset: int) -> Record:
        """Return the record at an offset, in a file; it must end before `end_offset`."""
        begin_offset = file.begin_offset
        try:
            record = decode(file.file.view(), physical_offset - begin_offset, end_offset - begin_offset)
        except BadRecord as error:
            raise error.in_file(file.path) from error
        fault = record.check(physical_offset=physical_offset, is_property_crc_checked=self._is_property_crc_checked)
        if fault is not None:
            raise BadRecord(fault).in_file(file.path)
        return record

    def scan(self, offset: int, size_bytes_max: int, *, is_body_checked: bool = False) -> DispatchBatch | None:
        """Return about `size_bytes_max` bytes of records from `offset` on, from one file; None at the end.

        Args:
            offset: begin of a record; if it was deleted, the log's start is used.
            size_bytes_max: bytes of records; the first record is returned whatever its size.
            is_body_checked: compare bodies with their checksums; the opening has done so for the last files.
        """
        offset = max(offset, self.begin_offset)
        while offset < self.end_offset:
            file = self._queue.find(offset)
            assert file is not None, (offset, self.end_offset)
            batch = scan_file(
                file,
                offset,
                min(file.end_offset, self.end_offset),
                size_bytes_max,
                is_body_checked=is_body_checked,
                is_property_crc_checked=is_body_checked and self._is_property_crc_checked,
            )
            if len(batch) or batch.skipped:
                return batch
            offset = batch.next_offset
        return None

    def raw(self, offset: int, end: int, size_bytes_max: int) -> RawLog | None:
        """Return at most `size_bytes_max` bytes of `[offset, end)`, from one file; None when none is readable."""
        return raw_of(self._queue.find(offset), offset, min(end, self.end_offset), size_bytes_max, header_size=0)

    def begins_within(self, _begin: int, _end: int) -> None:
        """Return None: a plain log has no index."""

    def peek(self, physical_offset: int, size: int) -> Record | None:
        """Return a record without checking its checksums; None if it is not readable or not a record.

        Args:
            physical_offset: of the record.
            size: of the record, in bytes.
        """
        if not self.begin_offset <= physical_offset <= self.end_offset - size:
            return None
        file = self._queue.find(physical_offset)
        return None if file is None else _record_at(file, physical_offset)

    # ------------------------------------------------------------------------------------------------------ times

    def offset_at_timestamp(self, store_timestamp: int) -> int:
        """Return the offset of the first record stored at this time or later; `end_offset` if there is none.

        Found by the files' first two records, then by a scan of one file. No checksum covers a time, so no record alone
        makes the result too late: two must be older for a file to count as later than its start, and a record that is
        older than the one before it does not count as older. If a clock of Java's was set back, the result is the first
        such record of the first file in question, or the one before it.
        """
        begin = self.begin_offset
        for file in self._queue.mapped_files:
            if file.begin_offset >= self.end_offset:
                break
            head = _record_at(file, file.begin_offset)
            if head is None:
                continue
            if head.store_timestamp >= store_timestamp:
                break
            following = self.peek(file.begin_offset + head.size, END_SIZE_MIN)
            if following is not None and following.store_timestamp < store_timestamp:
                begin = file.begin_offset
        before, last, last_offset = NO_TIMESTAMP, NO_TIMESTAMP, begin
        while (batch := self.scan(begin, SCAN_SIZE)) is not None:
            times = batch.store_timestamps
            rows = np.flatnonzero(times >= store_timestamp)
            count = int(rows[0]) if len(rows) else len(times)
            if count:
                before = int(times[count - 2]) if count > 1 else last
                last, last_offset = int(times[count - 1]), int(batch.physical_offsets[count - 1])
            if len(rows):
                return last_offset if last < before else int(batch.physical_offsets[count])
            begin = batch.next_offset
        return last_offset if last < before else self.end_offset


def _record_at(file: MappedFile, physical_offset: int) -> Record | None:
    try:
        record = decode(file.view(), physical_offset - file.begin_offset)
    except BadRecord:
        return None
    return record if record.physical_offset == physical_offset else None


def raw_of(file: MappedFile | None, offset: int, end: int, size_bytes_max: int, *, header_size: int) -> RawLog | None:
    """Return the bytes of a file between the log offsets `offset` and `end`; None when there are none."""
    if file is None or offset >= end:
        return None
    stop = min(end, file.end_offset, offset + size_bytes_max)
    return RawLog(file.file.view()[offset - file.begin_offset : stop - file.begin_offset], header_size)
