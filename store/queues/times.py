"""Finds the message of a queue for a time. Source: RocketMQ `ConsumeQueue.getOffsetInQueueByTime`."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store.queues.consume_queue import ConsumeQueue

StoreTimestampOf = Callable[[int, int], int]


class Boundary(Enum):
    """Which message a time selects (RocketMQ `BoundaryType`)."""

    LOWER = "lower"  # the first message stored at that time or later
    UPPER = "upper"  # the last message stored at that time or earlier


def offset_by_time(
    queue: ConsumeQueue, timestamp: int, boundary: Boundary, store_timestamp_of: StoreTimestampOf
) -> int:
    """Return the queue offset for a time.

    Args:
        queue: of the messages.
        timestamp: milliseconds since 1970.
        boundary: LOWER: the first message that is not older, `max_offset` if all are older. UPPER: the last one that
            is not newer, `min_offset` if all are newer.
        store_timestamp_of: called with (physical offset, size) of a message.
    """
    if boundary is Boundary.LOWER:
        return queue.search(lambda *place: store_timestamp_of(*place) >= timestamp, queue.min_offset)
    newer = queue.search(lambda *place: store_timestamp_of(*place) > timestamp, queue.min_offset)
    older = queue.message_before(newer)
    return queue.min_offset if older is None else max(older, queue.min_offset)
