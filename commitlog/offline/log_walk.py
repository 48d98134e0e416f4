"""Scans all records of a log without repairs; unreadable bytes are reported, and the scan continues after them.

The log ends after its last valid record. Non-zero bytes after it are the *tail*: a write that a crash interrupted, or a
write in progress.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from commitlog.offline.durable_part import DurablePart
from commitlog.record.record import HEAD
from commitlog.record.resync import resync
from commitlog.record.scan import Stop, blank_size, scan
from store.model.dispatch_batch import DispatchBatch, Skipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from commitlog.offline.directory import LogFileInfo
    from store.fs.read_only_files import OpenFiles

_BATCH_SIZE_BYTES = 8 << 20
_CHUNK_SIZE_BYTES = 1 << 20
_NO_DURABLE_PART = DurablePart("")


@dataclass(frozen=True, slots=True)
class WalkedBatch:
    """A range of one file of the log.

    Attributes:
        file: the file.
        batch: the columns of its records.
    """

    file: LogFileInfo
    batch: DispatchBatch


class LogWalk:
    """All records of a store's log, in order.

    Args:
        open_files: opens the files.
        log_files: of the log, in order.
        is_checked: compare bodies with their checksums, and records with their property CRCs, if they have any.
        size_bytes_max: of one range.
        durable_part: of the log, by the checkpoint; only for a log whose end is checked.

    Attributes:
        end_offset: the end of the part that was scanned.
        tail: bytes after the end other than zeros, once the end was reached.
        tail_fault: the reason why the tail is not a torn write, because of which a start refuses the log; empty: it may
            be one.
        last_timestamp: the latest store timestamp of the records; -1 before the first.
        leftovers: faults of the blanks at the ends of files, by offset; they lose no message.
    """

    __slots__ = (
        "_durable_part",
        "_is_checked",
        "_log_files",
        "_open_files",
        "_size_bytes_max",
        "end_offset",
        "last_timestamp",
        "leftovers",
        "tail",
        "tail_fault",
    )

    def __init__(
        self,
        open_files: OpenFiles,
        log_files: Sequence[LogFileInfo],
        *,
        is_checked: bool,
        size_bytes_max: int = _BATCH_SIZE_BYTES,
        durable_part: DurablePart = _NO_DURABLE_PART,
    ) -> None:
        self._open_files = open_files
        self._log_files = log_files
        self._is_checked = is_checked
        self._size_bytes_max = size_bytes_max
        self.end_offset = log_files[0].begin_offset if log_files else 0
        self.tail: Skipped | None = None
        self.tail_fault = ""
        self.last_timestamp = -1
        self._durable_part = durable_part
        self.leftovers: dict[int, Skipped] = {}

    def batches(self, begin: int = 0, position: int = 0) -> Iterator[WalkedBatch]:
        """Yield the records, range by range.

        Args:
            begin: number of the first file.
            position: begin of a record (or its entry) in that file.
        """
        for number in range(begin, len(self._log_files)):
            file = self._log_files[number]
            if number > begin:
                gap = _gap(self._log_files[number - 1], file)
                if gap is not None and self._holds_records(number):
                    yield WalkedBatch(file, _nothing(gap))
            yield from self._batches_of(number, position if number == begin else 0)
            self._open_files.close(file.path)
            if self.tail is not None:
                return

    def _batches_of(self, number: int, position: int) -> Iterator[WalkedBatch]:
        file = self._log_files[number]
        view = self._view_of(file)
        while position < len(view):
            batch, stop = self._scan(file, view, position, self._size_bytes_max)
            if len(batch):
                self.end_offset = int(batch.physical_offsets[-1] + batch.sizes[-1])
                self.last_timestamp = max(self.last_timestamp, int(batch.store_timestamps.max()))
            position = batch.next_offset - file.begin_offset
            if stop is Stop.BLANK:
                position = self._after_blank(view, file, position)
            elif stop is Stop.ZEROS:
                batch = self._with_hole(batch, view, number, position)
                position = batch.next_offset - file.begin_offset
            if batch.skipped and position == len(view) and not self._holds_records(number + 1):
                self.tail = tail = batch.skipped[-1]
                if not file.header_size:  # entries have different rules (`dledger.entries.tail`)
                    self.tail_fault = self._durable_part.fault_of_tail(view, tail, self.last_timestamp)
                batch = replace(batch, skipped=batch.skipped[:-1])
            yield WalkedBatch(file, batch)

    def _view_of(self, file: LogFileInfo) -> memoryview:
        return self._open_files.get(file.path).view()[: file.size]

    def _scan(
        self, file: LogFileInfo, view: memoryview, position: int, size_bytes_max: int
    ) -> tuple[DispatchBatch, Stop]:
        return scan(
            view,
            position,
            len(view),
            base_offset=file.begin_offset,
            path=file.path,
            header_size=file.header_size,
            size_bytes_max=size_bytes_max,
            is_body_checked=self._is_checked,
            is_property_crc_checked=self._is_checked and not file.header_size,
        )

    def _with_hole(self, batch: DispatchBatch, view: memoryview, number: int, position: int) -> DispatchBatch:
        """Return a batch that ends at zeros, with the fault of these zeros if data follows them."""
        file = self._log_files[number]
        data = self._find_data(file, position)
        after = len(view)
        if data < len(view):
            after = resync(view, position, len(view), base_offset=file.begin_offset, header_size=file.header_size)
        elif not self._holds_records(number + 1):
            return replace(batch, next_offset=file.end_offset)
        found = "zeros" if data == len(view) else f"zeros, and data from byte {data} on"
        offset = file.begin_offset + position
        skipped = Skipped(file.path, position, offset, after - position, "a record or a blank", found)
        return replace(batch, next_offset=file.begin_offset + after, skipped=(*batch.skipped, skipped))

    def _holds_records(self, number: int) -> bool:
        """Return whether the file of this number, or a later one, contains a valid record."""
        for file in self._log_files[number:]:
            view = self._view_of(file)
            if self._find_data(file, 0) == len(view):
                continue
            position = 0
            while position < len(view):
                batch, stop = self._scan(file, view, position, 1)
                if len(batch):
                    return True
                after = batch.next_offset - file.begin_offset
                if stop is Stop.ZEROS:
                    after = resync(
                        view, position, len(view), base_offset=file.begin_offset, header_size=file.header_size
                    )
                elif stop is Stop.BLANK:
                    after = self._after_blank(view, file, position)
                position = after if stop is Stop.END else max(after, position + 1)
        return False

    def _after_blank(self, view: memoryview, file: LogFileInfo, position: int) -> int:
        """Return the end of a blank: the end of its file, except for DLedger's blank at the start of a file."""
        size, space = blank_size(view, position, file.header_size), len(view) - position
        end = position + size if position == 0 and file.header_size and size < space else len(view)
        offset = file.begin_offset + position
        if end == len(view) and size != space:
            self.leftovers[offset] = Skipped(file.path, position, offset, space, f"a blank of {space} bytes", f"{size}")
        data = self._find_data(file, position + HEAD.size)
        if data < end:
            self.leftovers[offset + HEAD.size] = Skipped(
                file.path, data, file.begin_offset + data, end - data, "zeros in a blank", "other bytes"
            )
        return end

    def _find_data(self, file: LogFileInfo, position: int) -> int:
        """Return the position of the first non-zero byte from `position` on; the file's size if there is none."""
        view = self._view_of(file)
        # Holes, of which the last file mostly consists, are not read.
        for begin, end in self._open_files.get(file.path).data_ranges(position):
            for first in range(begin, min(end, file.size), _CHUNK_SIZE_BYTES):
                count = min(_CHUNK_SIZE_BYTES, file.size - first, end - first)
                chunk = np.frombuffer(view, np.uint8, count, first)
                if chunk.any():
                    # The comparison copies the bytes, which may change concurrently.
                    return first + int(np.argmax(chunk != 0))
        return file.size


def _gap(before: LogFileInfo, after: LogFileInfo) -> Skipped | None:
    """Return the gap between two consecutive files; None if there is none."""
    size = after.begin_offset - before.end_offset
    if size <= 0:
        return None
    found = f"the file's end at {before.size}"
    return Skipped(before.path, before.size, before.end_offset, size, f"bytes up to {after.path}", found)


def _nothing(skipped: Skipped) -> DispatchBatch:
    """Return a range without messages."""
    longs, ints = np.empty(0, np.int64), np.empty(0, np.int32)
    return DispatchBatch(
        begin_offset=skipped.offset,
        next_offset=skipped.offset + skipped.size,
        physical_offsets=longs,
        sizes=ints,
        queue_offsets=longs,
        tags_codes=longs,
        store_timestamps=longs,
        queues=(),
        queue_numbers=ints,
        is_queued=np.empty(0, np.bool_),
        key_hashes=ints,
        key_rows=longs,
        skipped=(skipped,),
    )
