"""Finds positions in the log of a store without scanning all of it: its end, a time, the entry before an offset.

The search for the end starts from the last position known from other files: the newest unit of all consume queues, the
checkpoint or the last index unit of a node; else from the start of the last file with data. From there the log is
scanned and checked.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from commitlog.offline.log_walk import LogWalk
from commitlog.record.record import FIELDS_SIZE, BadRecord, Record, decode
from commitlog.record.resync import find_good
from dledger.entries.format.entry import BLANK_MAGIC, BLANK_SIZE_MIN, ENTRY_MAGICS, ENTRY_NORMAL, HEADER, HEADER_SIZE
from pipeline.log.time_search import TimeSearch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from commitlog.offline.directory import LogFileInfo
    from store.fs.read_only_files import OpenFiles
    from store.model.dispatch_batch import Skipped

NO_INDEX: Final = -1
_STEP_BACK: Final = 16 << 10
_WALK_SIZE: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class EntryHead:
    """The header of an entry.

    Attributes:
        index, term: of the entry.
        offset: of its start in the log.
        end_offset: of its end.
        is_client: whether it contains a client's record.
    """

    index: int
    term: int
    offset: int
    end_offset: int
    is_client: bool


class LogEnd(NamedTuple):
    """The end of a log.

    Attributes:
        offset: of the end.
        scanned_offset: end of the last valid record; `offset` is larger if a file proves that records follow.
        last_timestamp: the latest store timestamp of the scanned records; -1: none was scanned.
    """

    offset: int
    scanned_offset: int
    last_timestamp: int = -1


class LogPlaces:
    """Finds positions in a log.

    Args:
        open_files: opens its files.
        log_files: in order, none empty.
    """

    def __init__(self, open_files: OpenFiles, log_files: tuple[LogFileInfo, ...]) -> None:
        self._open_files = open_files
        self._log_files = log_files

    def file_at(self, offset: int) -> int | None:
        """Return the number of the file with the byte at `offset`."""
        number = bisect.bisect_right(self._log_files, offset, key=lambda file: file.end_offset)
        is_there = number < len(self._log_files) and self._log_files[number].begin_offset <= offset
        return number if is_there else None

    def view(self, file: LogFileInfo) -> memoryview:
        """Return the bytes of a file."""
        return self._open_files.get(file.path).view()[: file.size]

    def entry_at(self, offset: int) -> EntryHead | None:
        """Return the header of the entry at `offset`; None if no entry begins there."""
        number = self.file_at(offset)
        if number is None or not self._log_files[number].header_size:
            return None
        file = self._log_files[number]
        view, position = self.view(file), offset - file.begin_offset
        if position + HEADER_SIZE > len(view):
            return None
        magic, size, index, term, at, channel, _, _, body_size = HEADER.unpack_from(view, position)
        is_good = magic in ENTRY_MAGICS and at == offset and size == body_size + HEADER_SIZE and body_size >= 0
        if not is_good or size > len(view) - position:
            return None
        return EntryHead(index, term, offset, offset + size, magic == ENTRY_NORMAL and not channel)

    def next_entry(self, offset: int) -> EntryHead | None:
        """Return the entry at `offset`, or after a blank there; None: there is none."""
        for _ in range(2):
            number = self.file_at(offset)
            if number is None or not self._log_files[number].header_size:
                return None
            head = self.entry_at(offset)
            if head is not None:
                return head
            file = self._log_files[number]
            view, position = self.view(file), offset - file.begin_offset
            if position + BLANK_SIZE_MIN > len(view):
                offset = file.end_offset
                continue
            magic, size = (int.from_bytes(view[at : at + 4], "big", signed=True) for at in (position, position + 4))
            if magic != BLANK_MAGIC or size < BLANK_SIZE_MIN:
                return None
            # A blank at a file's start may be shorter: DLedger leaves it in place of deleted entries.
            offset = min(offset + size, file.end_offset) if not position else file.end_offset
        return None

    def record_end(self, offset: int) -> int | None:
        """Return the end of the record at `offset`; None if no valid record begins there."""
        record = self._record_at(offset)
        return None if record is None else offset + record.size

    def head_at(self, offset: int) -> bytes:
        """Return the first bytes of the record at `offset`; empty if it is not in the log."""
        number = self.file_at(offset)
        if number is None:
            return b""
        file = self._log_files[number]
        return bytes(self.view(file)[offset - file.begin_offset :][:FIELDS_SIZE])

    def store_timestamp(self, offset: int) -> int | None:
        """Return the store time of the record at `offset`; None without a valid record."""
        record = self._record_at(offset)
        return None if record is None else record.store_timestamp

    def _record_at(self, offset: int) -> Record | None:
        number = self.file_at(offset)
        if number is None:
            return None
        file = self._log_files[number]
        try:
            record = decode(self.view(file), offset - file.begin_offset)
        except BadRecord:
            return None
        return record if record.physical_offset == offset else None

    def end(self, known_offsets: Iterable[int], begin_offset: int, *, is_checked: bool, claimed_end: int = 0) -> LogEnd:
        """Return the end of the log.

        Args:
            known_offsets: supposed begins of records (not of their entries); wrong ones are ignored.
            begin_offset: of the log.
            is_checked: check the checksums of the scanned records.
            claimed_end: lower bound of the end, from a file that is written only after the log is durable
                (`pipeline.log.stores`), so that a damaged last entry is read and refused.
        """
        good = [offset for offset in known_offsets if self.record_end(offset) is not None]
        start = self._last_head(begin_offset)
        for offset in good:
            number = self.file_at(offset)
            assert number is not None
            start = max(start, offset - self._log_files[number].header_size)
        number = self.file_at(start)
        if number is None:
            return LogEnd(begin_offset, begin_offset)
        walk = LogWalk(self._open_files, self._log_files, is_checked=is_checked, size_bytes_max=_WALK_SIZE)
        end, last = start, None
        for walked in walk.batches(number, start - self._log_files[number].begin_offset):
            if len(walked.batch):
                end = walk.end_offset
                last = self.entry_at(int(walked.batch.physical_offsets[-1]) - walked.file.header_size)
            if last is not None and any(self._is_left_over(last, skipped) for skipped in walked.batch.skipped):
                break
        scanned, end = end, max(end, claimed_end)
        while (head := self.next_entry(end)) is not None and not head.is_client:
            end = head.end_offset
        return LogEnd(end, scanned, walk.last_timestamp)

    def _is_left_over(self, last: EntryHead, skipped: Skipped) -> bool:
        """Return whether the bytes after an invalid position are truncated entries, which DLedger does not erase."""
        after = self.next_entry(skipped.offset + skipped.size)
        return after is not None and (after.term < last.term or after.index <= last.index)

    def is_in_one_file(self, begin: int, end: int) -> bool:
        """Return whether `[begin, end)` is not empty and within one file of the log."""
        number = self.file_at(begin)
        return number is not None and begin < end <= self._log_files[number].begin_offset + self._log_files[number].size

    def offset_at_time(self, store_timestamp_ms: int, begin: int, end: int, *, is_end: bool = False) -> int:
        """Return the offset of the first record (or its entry) in `[begin, end)` stored at this time or later.

        `end` if there is none. See `TimeSearch.offset_at`.
        """
        return TimeSearch(self._log_files, self.view).offset_at(store_timestamp_ms, begin, end, is_end=is_end)

    def entry_before(self, end: int, begin: int) -> EntryHead | None:
        """Return the last entry of `[begin, end)`, searched backwards; `end` must be the end of an entry."""
        number = self.file_at(end - 1)
        while number is not None and number >= 0 and self._log_files[number].header_size:
            file = self._log_files[number]
            low, after, step = max(file.begin_offset, begin), min(end, file.end_offset), _STEP_BACK
            first = after
            while first > low:
                first, step = max(after - step, low), step * 4
                found = self._last_from(self.view(file), first, after, file.begin_offset)
                if found is not None:
                    return found
            number = number - 1 if file.begin_offset > begin else None
        return None

    def _last_from(self, view: memoryview, first: int, after: int, base: int) -> EntryHead | None:
        """Return the last entry of `[first, after)` of a file that is reachable from a valid one."""
        head, last = None, None
        while first < after:
            at = base + find_good(view, first - base, after - base, base_offset=base, header_size=HEADER_SIZE)
            head = self.entry_at(at) if at < after else None
            while head is not None and head.end_offset <= after:
                last, head = head, self.entry_at(head.end_offset)
            first = after if at >= after or last is None else max(last.end_offset, at + 1)
        return last

    def _last_head(self, begin_offset: int) -> int:
        """Return the start of the last file with data; the log may begin within it."""
        for file in reversed(self._log_files):
            if any(self.view(file)[:BLANK_SIZE_MIN]):
                return max(file.begin_offset, begin_offset)
        return begin_offset
