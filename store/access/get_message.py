"""One read of a queue: its messages, the status of an empty result, and the offset to read next.

| condition, in this order                     | status                 | next_begin_offset             |
| -------------------------------------------- | ---------------------- | ----------------------------- |
| there is no such queue                       | NO_MATCHED_LOGIC_QUEUE | 0                             |
| the queue never had a message                | NO_MESSAGE_IN_QUEUE    | 0                             |
| offset < min                                 | OFFSET_TOO_SMALL       | min                           |
| offset = max                                 | OFFSET_OVERFLOW_ONE    | offset                        |
| offset > max                                 | OFFSET_OVERFLOW_BADLY  | max                           |
| at least one message is returned             | FOUND                  | after the last unit examined |
| none matched, some records were deleted      | MESSAGE_WAS_REMOVING   | after the last unit examined |
| none matched                                 | NO_MATCHED_MESSAGE     | after the last unit examined |
| the units themselves were deleted since      | OFFSET_FOUND_NULL      | min                           |

It stops after 800 units (`max_filter_message_size`), or after the requested number of messages if that is higher; at
the limit of messages; when its filter has worked for some 20 ms; and, except for the first message, before a message
whose bytes would exceed the limit. Two pairs
of limits apply: the caller's, and the store's, which differ for messages that are likely in memory.

Blank units, units of unreadable records, and units that point to a message of another topic, queue or queue offset, are
skipped and reported (`store.access.skipped_messages`) to the reader. A read with many separate skips ends early.

Source: RocketMQ `DefaultMessageStore.getMessage`, `isTheBatchFull`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store.access.skipped_messages import Skip, SkipCause, SkipNotes, damaged_record, wrong_unit
from store.errors import CorruptData, IllegalRequest
from store.model.tag_filter import EVERYTHING
from store.model.tags_codes import may_match
from store.queues.unit import BLANK_SIZE, UNIT_SIZE, Units

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.model.commit_log import CommitLog
    from store.model.config import MessageStoreConfig
    from store.model.message import StoredMessage
    from store.model.read_filter import ReadFilter
    from store.queues.consume_queue import ConsumeQueue

LIGHT_QUEUE_PREFIX = "%LMQ%"
_SIZE_MIN = 100
_SIZE_MAX = 128 << 20
_COUNT_MAX = 32_767
# Records that are read together: a limit of the caller may end the read before the last of them.
_AHEAD_MAX = 32
_AHEAD_BYTES_MAX = 256 << 10
# Of a filter in one read, in units of about a microsecond: usual expressions take one or two for a message.
WORK_MAX = 20_000


class GetStatus(StrEnum):
    """The status of a read, with RocketMQ's names (`GetMessageStatus`)."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


@dataclass(frozen=True, slots=True)
class GetResult:
    """The result of a read.

    Attributes:
        status: see the module's table.
        next_begin_offset: the offset to read next.
        min_offset: of the queue.
        max_offset: after the last message of the queue.
        messages: in order; each is valid as long as its file is mapped.
        skipped: the skipped offsets, in order, except those known not to match the filter.
    """

    status: GetStatus
    next_begin_offset: int
    min_offset: int = 0
    max_offset: int = 0
    messages: Sequence[StoredMessage] = ()
    skipped: Sequence[Skip] = ()


@dataclass(frozen=True, slots=True)
class GetRequest:
    """The request of a reader.

    Attributes:
        offset: the first unit of the queue to examine.
        count_max: largest number of messages.
        size_bytes_max: largest number of bytes of records, clamped to 100 bytes to 128 MiB; one message is always
            returned.
        read_filter: of the messages.
    """

    offset: int
    count_max: int = 32
    size_bytes_max: int = _SIZE_MAX
    read_filter: ReadFilter = EVERYTHING

    def __post_init__(self) -> None:
        """Refuse invalid values.

        Raises:
            IllegalRequest: a negative offset, or a count that is not from 1 to 32767.
        """
        if self.offset < 0:
            raise IllegalRequest("offset", "at least 0", str(self.offset))
        if not 1 <= self.count_max <= _COUNT_MAX:
            raise IllegalRequest("count of messages", f"1 to {_COUNT_MAX}", str(self.count_max))


class MessageReader:
    """Reads queues of one store.

    Args:
        log: of the records.
        config: the limits.
        memory_bytes: of the machine.
    """

    __slots__ = ("_config", "_in_memory_bytes", "_log")

    def __init__(self, log: CommitLog, config: MessageStoreConfig, memory_bytes: int) -> None:
        self._log = log
        self._config = config
        self._in_memory_bytes = config.access_message_in_memory_max_bytes or memory_bytes * 2 // 5

    def get(self, queue: ConsumeQueue | None, request: GetRequest) -> GetResult:
        """Read a queue; see the module's table."""
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        low, high, offset = queue.min_offset, queue.max_offset, request.offset
        outside = _outside(offset, low, high)
        if outside is not None:
            return outside
        units_max = max(self._config.max_filter_message_size // UNIT_SIZE, request.count_max)
        found = _Found()
        next_offset = self._collect(queue, request, min(offset + units_max, high), found)
        if next_offset == offset:
            return GetResult(GetStatus.OFFSET_FOUND_NULL, max(low, offset), low, high)
        skipped = found.skipped.skips
        if found.messages:
            status = GetStatus.FOUND
        else:
            is_removed = any(each.cause is SkipCause.REMOVED for each in skipped)
            status = GetStatus.MESSAGE_WAS_REMOVING if is_removed else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(status, next_offset, low, high, found.messages, skipped)

    def _collect(self, queue: ConsumeQueue, request: GetRequest, end: int, found: _Found) -> int:
        """Add the matching messages of the units up to `end`; return the offset after the last unit examined."""
        offset = request.offset
        near, far = self._limits(request)
        count_max = max(near.messages, far.messages)
        # Without a filter nearly every unit matches, so more units than messages are rarely needed.
        step = min(count_max, _AHEAD_MAX) if request.read_filter.is_everything else end - offset
        while offset < end:
            units = queue.units(offset, min(step, end - offset))
            count = len(units.sizes)
            if not count:
                break
            examined = count
            if not (request.read_filter.is_everything and self._take_all(queue, (near, far), offset, units, found)):
                examined = self._collect_units(queue, request, offset, units, found)
            offset += examined
            if examined < count or len(found.messages) >= count_max or found.skipped.is_full:
                break
        return offset

    def _take_all(
        self, queue: ConsumeQueue, limits: tuple[_Limits, _Limits], offset: int, units: Units, found: _Found
    ) -> bool:
        """Add the messages of all units, if each is valid and no limit may end the read; else add none.

        Nearly every read is like that. Which message is damaged, deleted or beyond a limit is decided one by one.
        """
        places, sizes = units.physical_offsets.tolist(), units.sizes.tolist()
        near, far = limits
        first, size = min(places), sum(sizes)
        limit = near if first >= self._near_begin() else _Limits(*map(min, near, far))
        # The size of a blank unit is above every limit.
        if (
            first < self._log.begin_offset
            or len(found.messages) + len(sizes) > limit.messages
            or size > min(limit.size_bytes - found.size, _AHEAD_BYTES_MAX)
        ):
            return False
        messages = self._log.read_many(places, sizes)
        topic, queue_id = queue.key
        topic_bytes = topic.encode()
        if len(messages) < len(sizes) or not all(
            message.is_at_queue_offset(topic_bytes, queue_id, queue_offset)
            for queue_offset, message in enumerate(messages, offset)
        ):
            return False
        found.messages += messages
        found.size += size
        return True

    def _near_begin(self) -> int:
        """Return the offset in the log before which messages are probably no longer in memory."""
        return self._log.end_offset - self._in_memory_bytes

    def _collect_units(self, queue: ConsumeQueue, request: GetRequest, offset: int, units: Units, found: _Found) -> int:
        """Add the matching messages of the units from an offset on; return the number of examined units."""
        read_filter = request.read_filter
        places, sizes = units.physical_offsets, units.sizes
        begin_offset = self._log.begin_offset
        if read_filter.is_everything:
            rows = np.arange(len(places))
        else:
            # A blank unit has no tags; a unit whose record is deleted still has them.
            rows = np.flatnonzero((sizes == BLANK_SIZE) | may_match(read_filter, units.tags_codes))
        chosen, chosen_sizes = places[rows].tolist(), sizes[rows].tolist()
        ahead = _ReadAhead(self._log, chosen, chosen_sizes)
        messages, skipped, next_message = found.messages, found.skipped, ahead.next
        topic, queue_id = queue.key
        topic_bytes = topic.encode()
        # Units of RocketMQ's light queues point to messages of other topics.
        is_light = topic.startswith(LIGHT_QUEUE_PREFIX)
        (near_count, near_size), (far_count, far_size) = self._limits(request)
        near_begin = self._near_begin()
        for number, (row, place, size) in enumerate(zip(rows.tolist(), chosen, chosen_sizes, strict=True)):
            message = damage = None
            if begin_offset <= place and size != BLANK_SIZE:
                if messages:
                    is_near = place >= near_begin
                    if len(messages) >= (near_count if is_near else far_count):
                        return row
                    if found.size + size > (near_size if is_near else far_size):
                        return row
                try:
                    message = next_message(number)
                except CorruptData as error:
                    damage = damaged_record(place, size, error)
                # A unit has no checksum, so topic, queue and offset in its message are compared. Otherwise a damaged
                # unit could return a message of another topic.
                if message is not None and not (
                    message.is_at_queue_offset(topic_bytes, queue_id, offset + row) or is_light
                ):
                    damage, message = wrong_unit(queue, offset + row, message), None
            if message is not None:
                if found.take(message, size, read_filter):
                    return row + 1
                continue
            skipped.add(offset + row, damage, SkipCause.ABSENT if size == BLANK_SIZE else SkipCause.REMOVED)
            if skipped.is_full:
                return row + 1
        return len(places)

    def _limits(self, request: GetRequest) -> tuple[_Limits, _Limits]:
        """Return the limits for messages that are likely in memory, and for the others."""
        count, size = request.count_max, min(max(request.size_bytes_max, _SIZE_MIN), _SIZE_MAX)
        config = self._config
        return (
            _Limits(
                min(count, config.max_transfer_count_on_message_in_memory),
                min(size, config.max_transfer_bytes_on_message_in_memory),
            ),
            _Limits(
                min(count, config.max_transfer_count_on_message_in_disk),
                min(size, config.max_transfer_bytes_on_message_in_disk),
            ),
        )


class _ReadAhead:
    """Reads the records of several rows together.

    Args:
        log: of the records.
        places: their offsets, by row.
        sizes: their sizes, by row.
    """

    __slots__ = ("_end", "_log", "_messages", "_places", "_sizes")

    def __init__(self, log: CommitLog, places: list[int], sizes: list[int]) -> None:
        self._log = log
        self._places = places
        self._sizes = sizes
        # The messages of the rows before `_end`.
        self._messages: Sequence[StoredMessage] = ()
        self._end = 0

    def next(self, row: int) -> StoredMessage | None:
        """Return the message of a row; None: it is deleted or not readable yet. Rows are read in ascending order.

        Raises:
            CorruptData: there is no valid record.
        """
        if row >= self._end:
            self._messages = self._next_messages(row)
            self._end = row + len(self._messages)
            if not self._messages:
                return self._log.read(self._places[row], self._sizes[row])
        return self._messages[row - self._end]

    def _next_messages(self, row: int) -> Sequence[StoredMessage]:
        count = _AHEAD_MAX
        sizes = self._sizes[row : row + count]
        while count > 1 and sum(sizes) > _AHEAD_BYTES_MAX:
            count //= 2
            sizes = sizes[:count]
        return self._log.read_many(self._places[row : row + count], sizes) if len(sizes) > 1 else ()


class _Limits(NamedTuple):
    messages: int
    size_bytes: int


@dataclass(slots=True)
class _Found:
    messages: list[StoredMessage] = field(default_factory=list)
    skipped: SkipNotes = field(default_factory=SkipNotes)
    size: int = 0
    # Of the filter.
    work: int = 0

    def take(self, message: StoredMessage, size: int, read_filter: ReadFilter) -> bool:
        """Add a message of this size if it matches; return whether the filter has done its share of work."""
        if read_filter.matches(message):
            self.messages.append(message)
            self.size += size
        self.work += read_filter.work(message)
        return self.work >= WORK_MAX


def _outside(offset: int, low: int, high: int) -> GetResult | None:
    """Return the result for an offset at which a queue [low, high) has no message; None if it may have one."""
    if high == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0)
    if offset < low:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
    if offset == high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
    if offset > high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
    return None
