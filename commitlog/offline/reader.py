"""Reads the messages of a store without opening it: all, or those that match a filter.

The log is authoritative; queues and index only show whether they contain a message. In a store that was not closed
cleanly they may lag the log; the next start adds the missing messages, so these are shown as present
(`StoreReader.due_count` counts them).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from commitlog.offline.log_walk import LogWalk
from commitlog.offline.verify import StoreParts, corrupt_place, tail_finding
from commitlog.record.columns import columns
from commitlog.record.record import BadRecord, Record, decode
from store.model.java_hash import key_hash
from store.model.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from commitlog.offline.directory import LogFileInfo
    from commitlog.offline.message_filter import MessageFilter
    from store.check.index_view import IndexView
    from store.model.dispatch_batch import Bools, DispatchBatch
    from store.model.finding import Finding


@dataclass(frozen=True, slots=True)
class ReadMessage:
    """A message, and its entries in queue and index.

    Attributes:
        record: the message.
        tags_code: in its queue unit; None: it is in no queue.
        is_indexed: whether all of its keys are in the index.
    """

    record: Record
    tags_code: int | None
    is_indexed: bool


class StoreReader:
    """Reads one store.

    Args:
        parts: the opened store.
        wanted: the filter.
        is_index_used: find messages with a key through the index.

    Attributes:
        due_count: messages that queues or index lack, which the next start adds.
        notes: deviations from the normal way of reading; one sentence each.
    """

    def __init__(self, parts: StoreParts, wanted: MessageFilter, *, is_index_used: bool = True) -> None:
        self._parts = parts
        self._wanted = wanted
        self._is_index_used = is_index_used
        self._queues = parts.queue_checker()
        self._index = parts.index_checker()
        self._index_offset = -1
        self.due_count = 0
        self.notes: list[str] = []

    def read(self) -> Iterator[ReadMessage | Finding]:
        """Yield the messages in the order of the log, and a finding for each range of unreadable bytes."""
        walk = self._parts.walk()
        first, position = self._first_file(), 0
        if self._wanted.key is not None and self._is_index_used:
            offsets = self._offsets_of_key(self._wanted.key)
            if offsets is None:
                self.notes.append("the index is unusable or missing: all messages are searched instead")
            else:
                end, found = offsets
                for offset in found:
                    yield from self._read_at(offset)
                first, position = self._place_of(end)
        for walked in walk.batches(first, position):
            skipped_places = walked.batch.skipped
            yield from (corrupt_place(skipped, self._parts.accepted_place(skipped)) for skipped in skipped_places)
            yield from self._read_batch(walked.file, walked.batch)
            if len(walked.batch) and self._wanted.ends_before(int(walked.batch.store_timestamps[0])):
                return
        if walk.tail is not None:
            yield tail_finding(walk, walk.tail, is_unfinished=self._parts.is_unfinished)

    def _read_batch(self, file: LogFileInfo, batch: DispatchBatch) -> Iterator[ReadMessage]:
        chosen = self._wanted.rows(batch)
        if not chosen.any():
            return
        view = self._parts.open_files.get(file.path).view()
        positions = batch.physical_offsets - file.begin_offset
        is_queued, is_indexed, is_due = self._known(batch)
        for row in np.flatnonzero(chosen).tolist():
            position = int(positions[row])
            record = decode(view, position, position + int(batch.sizes[row]))
            if not self._wanted.has_key(record):
                continue
            is_rolled_back = record.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK_TYPE
            self.due_count += bool(is_due[row])
            yield ReadMessage(
                record,
                int(batch.tags_codes[row]) if is_queued[row] else None,
                bool(is_indexed[row]) and not is_rolled_back,
            )

    def _known(self, batch: DispatchBatch) -> tuple[Bools, Bools, Bools]:
        """Return masks of the messages in their queue, in the index, and of those that the next start adds."""
        is_found = self._queues.find(batch)
        is_due = self._queues.due(batch, is_found)
        is_indexed = np.ones(len(batch), np.bool_)
        if batch.begin_offset != self._index_offset:
            self._index.seek(batch.begin_offset)
        has_key, _ = self._index.add(batch)
        self._index_offset = batch.next_offset
        missing = batch.key_rows[~has_key]
        if self._index.is_missing_due:
            is_key_due = np.zeros(len(batch), np.bool_)
            is_key_due[missing] = True
            return is_found | is_due, is_indexed, is_due | is_key_due
        is_indexed[missing] = False
        return is_found | is_due, is_indexed, is_due

    # ------------------------------------------------------------------------------------------------- by time

    def _first_file(self) -> int:
        """Return the number of the first file that may have matching messages."""
        log_files = self._parts.directory.log_files
        first = 0
        for number in range(1, len(log_files)):
            timestamp = self._first_timestamp(log_files[number])
            if timestamp is None or not self._wanted.begins_after(timestamp):
                break
            first = number
        return first

    def _first_timestamp(self, file: LogFileInfo) -> int | None:
        walk = LogWalk(self._parts.open_files, [file], is_checked=False, size_bytes_max=1)
        first = next(walk.batches(), None)
        return int(first.batch.store_timestamps[0]) if first is not None and len(first.batch) else None

    # -------------------------------------------------------------------------------------------------- by key

    def _offsets_of_key(self, key: str) -> tuple[int, list[int]] | None:
        """Return (offset of the index's end in the log, candidate offsets before it); None: the index is damaged."""
        views, directory = self._parts.index_views, self._parts.directory
        counted = [view for view in views if view.stated_item_count]
        if not counted:
            return None
        end = counted[-1].item(counted[-1].stated_item_count).offset
        try:
            self._record_at(end)
        except (BadRecord, IndexError):
            return None
        topics = {queue.topic for queue in self._parts.queues} if self._wanted.topic is None else {self._wanted.topic}
        hashes = [key_hash(topic, key) for topic in sorted(topics)]
        offsets: set[int] = set()
        for view in counted:
            for wanted in hashes:
                found = _follow(view, wanted)
                if found is None:
                    return None
                offsets.update(found)
        return end, sorted(offset for offset in offsets if directory.begin_offset <= offset < end)

    def _read_at(self, offset: int) -> Iterator[ReadMessage]:
        try:
            file, record = self._record_at(offset)
        except (BadRecord, IndexError):
            self.notes.append(
                f"the index refers to offset {offset}, which has no intact record; `dledger verify` shows more"
            )
            return
        batch = columns(record.view, [record.position], [record.size], base_offset=file.begin_offset)
        yield from self._read_batch(file, batch)

    def _record_at(self, offset: int) -> tuple[LogFileInfo, Record]:
        """Return the file and the record at an offset.

        Raises:
            BadRecord: there is none.
            IndexError: the offset is in no file.
        """
        number, _ = self._place_of(offset)
        file = self._parts.directory.log_files[number]
        record = decode(self._parts.open_files.get(file.path).view(), offset - file.begin_offset)
        fault = record.check(physical_offset=offset)
        if fault is not None:
            raise BadRecord(fault)
        return file, record

    def _place_of(self, offset: int) -> tuple[int, int]:
        """Return the number of a record's file, and its position (or that of its entry) in it."""
        for number, file in enumerate(self._parts.directory.log_files):
            if file.begin_offset <= offset < file.end_offset:
                return number, offset - file.begin_offset - file.header_size
        raise IndexError(offset)


def _follow(view: IndexView, wanted: int) -> list[int] | None:
    """Return the offsets of all items of a hash in one file; None if the chain is damaged."""
    number = view.slot(wanted % view.slot_count)
    offsets: list[int] = []
    if not 0 <= number <= view.stated_item_count:
        return None
    while number > 0:
        item = view.item(number)
        if item.key_hash % view.slot_count != wanted % view.slot_count or not 0 <= item.previous < number:
            return None
        if item.key_hash == wanted:
            offsets.append(item.offset)
        number = item.previous
    return offsets
