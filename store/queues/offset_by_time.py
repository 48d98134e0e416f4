"""Finds the message of a queue for a time. Source: RocketMQ `ConsumeQueue.getOffsetInQueueByTime`.

No checksum covers a unit: if it does not point to the message of its queue offset, its time is unknown. Nor does one
cover the time of a message of a plain log: if it is not between those of the messages before and after it, it is
unknown, too. The next message decides then; if none of the next messages can be read, the search treats them as newer.
So damage can make the result too low, and never too high, except by a message that itself has a lower time now: a
reader that begins there gets more messages, and a report of the damaged ones.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from store.queues.unit import BLANK_SIZE

if TYPE_CHECKING:
    from store.queues.consume_queue import ConsumeQueue

# Called with (queue offset, physical offset, size) of a unit; None: no such message can be read there.
StoreTimestampOf = Callable[[int, int, int], int | None]

# Units that are read instead of a damaged one.
NEIGHBOURS_MAX = 16
_NEWEST = 1 << 63


class Boundary(Enum):
    """The message that a time selects (RocketMQ `BoundaryType`)."""

    LOWER = "lower"  # the first message stored at that time or later
    UPPER = "upper"  # the last message stored at that time or earlier


def offset_by_time(
    queue: ConsumeQueue, timestamp: int, boundary: Boundary, store_timestamp_of: StoreTimestampOf, log_begin: int
) -> int:
    """Return the queue offset for a time.

    Args:
        queue: of the messages.
        timestamp: milliseconds since 1970.
        boundary: LOWER: the first message that is not older, `max_offset` if all are older. UPPER: the last one that
            is not newer, `min_offset` if all are newer.
        store_timestamp_of: of the message of a unit.
        log_begin: physical offset of the first message of the log; messages before it count as older.
    """

    def time_of(queue_offset: int) -> int:
        found = first_time_from(queue, queue_offset, store_timestamp_of)
        return _NEWEST if found is None else found

    begin = queue.min_offset
    if any(place < log_begin for place, _, _ in queue.unit_tuples(begin, 1)):
        # Files of the log were deleted, but the queue's units not yet.
        begin = max(begin, queue.first_offset_from(log_begin))
    if boundary is Boundary.LOWER:
        return queue.search(lambda at: time_of(at) >= timestamp, begin)
    newer = queue.search(lambda at: time_of(at) > timestamp, begin)
    older = queue.message_before(newer)
    return queue.min_offset if older is None else max(older, queue.min_offset)


def first_time_from(queue: ConsumeQueue, queue_offset: int, store_timestamp_of: StoreTimestampOf) -> int | None:
    """Return the first store timestamp from an offset on that its neighbours confirm; None: none of the next."""

    def time_at(at: int) -> int | None:
        if not queue.min_offset <= at < queue.max_offset:
            return None
        ((physical_offset, size, _),) = queue.unit_tuples(at, 1)
        return None if size == BLANK_SIZE else store_timestamp_of(at, physical_offset, size)

    return first_confirmed_time(time_at, queue_offset)


def first_confirmed_time(time_at: Callable[[int], int | None], queue_offset: int) -> int | None:
    """Return the first time from a queue offset on that its neighbours confirm; None: none of the next.

    Args:
        time_at: returns the store timestamp of the message at a queue offset; None: there is none, or it is unknown.
        queue_offset: of the first message.
    """
    before, found = time_at(queue_offset - 1), time_at(queue_offset)
    for at in range(queue_offset + 1, queue_offset + NEIGHBOURS_MAX + 1):
        following = time_at(at)
        if found is not None:
            if (before is None or before <= found) and (following is None or found <= following):
                return found
            before = found
        found = following
    return None
