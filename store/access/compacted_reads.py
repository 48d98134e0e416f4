"""Reads of compacted queues: below the end of the index its rows decide, from there on the consume queue.

Offsets are kept, so a reader sees gaps where messages were replaced by newer ones of their keys; they are not reported
as skipped. The first offset of such a queue is 0, whatever the log still has: nothing that a reader needs is lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from store.access.get_message import WORK_MAX, GetRequest, GetResult, GetStatus
from store.access.skipped_messages import SkipCause, SkipNotes, damaged_record
from store.errors import CorruptData
from store.queues.unit import UNIT_SIZE

if TYPE_CHECKING:
    from store.access.get_message import MessageReader
    from store.compaction.index_file import QueueIndex
    from store.model.commit_log import CommitLog
    from store.model.config import MessageStoreConfig
    from store.model.message import StoredMessage
    from store.queues.consume_queue import ConsumeQueue

FIRST_OFFSET = 0


class CompactedReader:
    """Reads compacted queues of one store.

    Args:
        log: of the records.
        config: the limits.
        reader: of consume queues.
    """

    __slots__ = ("_config", "_log", "_reader")

    def __init__(self, log: CommitLog, config: MessageStoreConfig, reader: MessageReader) -> None:
        self._log = log
        self._config = config
        self._reader = reader

    def get(self, queue: ConsumeQueue | None, index: QueueIndex, request: GetRequest) -> GetResult:
        """Read a queue; see `store.access.get_message`, whose table holds with a smallest offset of 0."""
        high = 0 if queue is None else queue.max_offset
        end = min(index.end_offset, high)
        if queue is None or request.offset >= end:
            return replace(self._reader.get(queue, request), min_offset=FIRST_OFFSET)
        messages, skipped, next_offset = self._collect(queue, index, request, end)
        if messages or skipped.skips or next_offset >= high:
            status = GetStatus.FOUND if messages else GetStatus.NO_MATCHED_MESSAGE
            return GetResult(status, next_offset, FIRST_OFFSET, high, messages, skipped.skips)
        if next_offset < end:
            return GetResult(GetStatus.NO_MATCHED_MESSAGE, next_offset, FIRST_OFFSET, high)
        return replace(self._reader.get(queue, replace(request, offset=end)), min_offset=FIRST_OFFSET)

    def _collect(
        self, queue: ConsumeQueue, index: QueueIndex, request: GetRequest, end: int
    ) -> tuple[list[StoredMessage], SkipNotes, int]:
        """Return the matching messages of the next rows, what was skipped, and the offset to read next."""
        count_max = min(request.count_max, self._config.max_transfer_count_on_message_in_memory)
        left_bytes = min(request.size_bytes_max, self._config.max_transfer_bytes_on_message_in_memory)
        first = index.first_at(request.offset)
        rows = index.rows[first : first + max(self._config.max_filter_message_size // UNIT_SIZE, request.count_max)]
        messages: list[StoredMessage] = []
        skipped, topic, work = SkipNotes(), queue.key.topic.encode(), 0
        for offset, place, size in zip(
            rows["offset"].tolist(), rows["place"].tolist(), rows["size"].tolist(), strict=True
        ):
            if offset >= end:
                return messages, skipped, end
            if len(messages) >= count_max or (messages and size > left_bytes) or work >= WORK_MAX or skipped.is_full:
                return messages, skipped, offset
            try:
                message = self._log.read(place, size)
            except CorruptData as error:
                skipped.damaged(offset, damaged_record(place, size, error))
                continue
            if message is None or not message.is_at_queue_offset(topic, queue.key.queue_id, offset):
                skipped.gone(offset, SkipCause.REMOVED)
                continue
            work += request.read_filter.work(message)
            if request.read_filter.matches(message):
                messages.append(message)
                left_bytes -= size
        if first + len(rows) >= len(index.rows):
            return messages, skipped, end
        return messages, skipped, int(rows["offset"][-1]) + 1
