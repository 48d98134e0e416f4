"""Reads message records from a log of entries: one record, a range as columns, the offset for a time.

A record is the body of an entry (magic 1, channel 0); its physical offset is the entry's position + 48. All reads end
at an offset that the caller gives, the end of the committed entries. Leaders' own entries are skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commitlog.plain.file_scan import scan_file
from commitlog.record.record import BadRecord, Record, RecordFault, decode
from commitlog.record.record_runs import ReadableBytes, good_records
from dledger.entries.errors import EntryNotFound
from dledger.entries.format.entry import ENTRY_NORMAL, HEADER, HEADER_SIZE
from store.errors import CorruptData
from store.model.topics import DLEDGER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.entries.store import EntryStore
    from store.fs.mapped.mapped_file import MappedFile
    from store.model.dispatch_batch import DispatchBatch

NO_TIMESTAMP: Final = -1


class EntryRecords:
    """The records of one log of entries.

    Args:
        entries: the log.
    """

    def __init__(self, entries: EntryStore) -> None:
        self._entries = entries

    def read(self, physical_offset: int, size: int, end: int) -> Record | None:
        """Return the record of `size` bytes at `physical_offset`; None after `end`, and for a leader's own entry."""
        found = self._file_of(physical_offset, size, end)
        if found is None:
            return None
        record = self._decode(*found, size)
        return record if record is None or record.size == size else _raise_size(found[0], record, size)

    def read_many(self, places: Sequence[int], sizes: Sequence[int], end: int) -> list[Record]:
        """Return the records at these offsets up to the first that `read` must examine: none, if it is the first."""
        found = self._file_of(places[0], 1, end)
        if found is None:
            return []
        file = found[0]
        begin, base = max(file.begin_offset, self._entries.begin_position) + HEADER_SIZE, file.begin_offset
        return good_records(
            ReadableBytes(file.view(), base, begin, min(file.end_offset, end), has_headers=True), places, sizes
        )

    def find(self, physical_offset: int, end: int) -> Record | None:
        """Return the record at an arbitrary offset from a client; None if there is none."""
        found = self._file_of(physical_offset, 1, end)
        if found is None:
            return None
        file, position = found
        try:
            index = self._entries.index_at_position(physical_offset - HEADER_SIZE)
        except EntryNotFound as error:
            expected = f"a record; one begins {HEADER_SIZE} bytes after each entry's start"
            raise CorruptData(file.path, position, expected, str(error)) from error
        return self._decode(file, position, self._entries.unit(index).size - HEADER_SIZE)

    def _file_of(self, physical_offset: int, size: int, end: int) -> tuple[MappedFile, int] | None:
        """Return the file with these bytes and their position; None when they must not be read."""
        if not self._entries.begin_position + HEADER_SIZE <= physical_offset <= end - size:
            return None
        file = self._entries.data_file(physical_offset)
        return None if file is None else (file, physical_offset - file.begin_offset)

    def _decode(self, file: MappedFile, position: int, size: int) -> Record | None:
        """Return the checked record at `position` of a file; None for a leader's own."""
        entry, view = position - HEADER_SIZE, file.view()
        if entry < 0 or position + size > file.file.size:
            raise CorruptData(file.path, position, "a record after an entry's header", "the end of the file")
        magic, entry_size, _, _, _, channel, *_ = HEADER.unpack_from(view, entry)
        if (magic, entry_size) != (ENTRY_NORMAL, HEADER_SIZE + size):
            expected = f"an entry of magic 1 and {HEADER_SIZE + size} bytes"
            raise CorruptData(file.path, entry, expected, f"magic {magic} and {entry_size} bytes")
        try:
            record = decode(view, position, position + size)
        except BadRecord as error:
            raise error.in_file(file.path) from error
        fault = record.check(physical_offset=file.begin_offset + position)
        if fault is not None:
            raise BadRecord(fault).in_file(file.path)
        if channel and record.topic != DLEDGER_TOPIC:
            expected = f"channel 0, for a record of topic {record.topic}"
            raise CorruptData(file.path, entry, expected, f"channel {channel}")
        return None if record.topic == DLEDGER_TOPIC else record

    # ------------------------------------------------------------------------------------------------- ranges

    def scan(
        self, offset: int, size_bytes_max: int, end: int, *, is_body_checked: bool = False
    ) -> DispatchBatch | None:
        """Return records from `offset` on, from one file; an empty batch is not the end.

        Args:
            offset: begin of an entry or its record; deleted entries are skipped.
            size_bytes_max: limit of the batch, at least one entry.
            end: of the readable entries.
            is_body_checked: compare bodies with their checksums, which the node already did when it accepted the
                entries.
        """
        offset = max(offset, self._entries.begin_position)
        while offset < end:
            file = self._entries.data_file(offset)
            if file is None:
                return None
            begin = file.begin_offset + self._entry_at(file, offset)
            batch = self._scan_file(file, begin, min(end, file.end_offset), size_bytes_max, is_body_checked)
            if batch.next_offset > offset:
                return batch
            offset = file.end_offset
        return None

    def _entry_at(self, file: MappedFile, offset: int) -> int:
        """Return the position in `file` of the entry that begins at `offset`, or whose record does."""
        position = offset - file.begin_offset
        before = position - HEADER_SIZE
        view = file.view()
        if before >= 0 and (position + HEADER_SIZE > len(view) or HEADER.unpack_from(view, position)[4] != offset):
            is_record = HEADER.unpack_from(view, before)[4] == offset - HEADER_SIZE
            return before if is_record else position
        return position

    def _scan_file(
        self, file: MappedFile, offset: int, end_offset: int, size_bytes_max: int, is_body_checked: bool
    ) -> DispatchBatch:
        batch = scan_file(
            file, offset, end_offset, size_bytes_max, header_size=HEADER_SIZE, is_body_checked=is_body_checked
        )
        if any(key.topic == DLEDGER_TOPIC for key in batch.queues):
            expected, found = "a channel of a leader's own entry", f"channel 0 and topic {DLEDGER_TOPIC}"
            raise CorruptData(file.path, offset - file.begin_offset, expected, found)
        return batch

    # ----------------------------------------------------------------------------------------------------- times

    def peek(self, physical_offset: int, size: int, end: int) -> Record | None:
        """Return a record without checking its checksums; None when none can be read there before `end`."""
        found = self._file_of(physical_offset, size, end)
        if found is None:
            return None
        file, position = found
        try:
            record = decode(file.view(), position)
        except BadRecord:
            return None
        return record if record.physical_offset == physical_offset else None

    def offset_at_timestamp(self, store_timestamp: int, end: int) -> int:
        """Return the offset of the entry of the first record stored then or later; `end` if there is none.

        Found by bisecting the entries: about twenty are read, whatever the size of a file. Timestamps of this program
        never decrease, even when the leader changes; if a clock of Java went back, the result is one of the possible
        offsets.
        """
        entries, found = self._entries, end
        low, high = entries.begin_index, entries.index_before(end) + 1
        # Records below `low` were stored before the time; the first record after `high`, if any, is the one at `found`.
        while low < high:
            middle = (low + high) // 2
            index, time = self._time_after(middle, high)
            if time == NO_TIMESTAMP or time >= store_timestamp:
                found = found if time == NO_TIMESTAMP else entries.position_of(index)
                high = middle
            else:
                low = index + 1
        return found

    def _time_after(self, first: int, end: int) -> tuple[int, int]:
        """Return (index, time) of the first readable record among these entries; -1 as time if there is none."""
        for index in range(first, end):
            try:
                # Checksums are checked, so that a changed byte cannot mislead the search.
                entry = self._entries.get(index)
                if entry.magic == ENTRY_NORMAL and not entry.channel:
                    return index, decode(memoryview(entry.body), 0).store_timestamp
            except (BadRecord, CorruptData):
                continue
        return end, NO_TIMESTAMP

    def record_at(self, index: int) -> Record | None:
        """Return the record of entry `index`, not checked; None for a leader's own."""
        unit = self._entries.unit(index)
        file = self._entries.data_file(unit.position)
        assert file is not None, unit
        position = unit.position - file.begin_offset
        magic, size, _, _, _, channel, *_ = HEADER.unpack_from(file.view(), position)
        if magic != ENTRY_NORMAL or channel:
            return None
        try:
            return decode(file.view(), position + HEADER_SIZE, position + size)
        except BadRecord as error:
            raise error.in_file(file.path) from error


class LastTimestamp:
    """The store time of the last record up to an entry, cached for repeated calls as the log grows.

    Args:
        records: of the log.
        entries: the log.
        before: the store time of the last record before the first entry; -1: there is none.
    """

    def __init__(self, records: EntryRecords, entries: EntryStore, before: int) -> None:
        self._records = records
        self._entries = entries
        # The last index of a call, which never decreases, and its result.
        self._index = NO_TIMESTAMP
        self._timestamp = before

    def up_to(self, index: int) -> int:
        """Return the time for entry `index`, which is in the log and not below that of the last call; -1: none."""
        at = index
        while at > self._index and at >= self._entries.begin_index:
            record = self._records.record_at(at)
            if record is not None:
                self._timestamp = record.store_timestamp
                break
            at -= 1
        self._index = max(self._index, index)
        return self._timestamp


def _raise_size(file: MappedFile, record: Record, size: int) -> Record:
    fault = RecordFault(record.position, f"a record of {size} bytes", f"one of {record.size}")
    raise BadRecord(fault).in_file(file.path)
