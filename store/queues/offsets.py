"""The next offset of every queue; an offset is never assigned twice.

An assigned offset is not used again, whatever the outcome of the append: an append with an unknown outcome may have
happened. Offsets are taken back only if it is certain that no message was appended, and before the next `take`. Offsets
without a message are filled with blank units when the next message of the queue is dispatched.

Source: RocketMQ `QueueOffsetOperator`; it advances after the append, so it assigns the offsets of a failed batch twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.model.message import COMPACTED_OFFSET, Message, QueueKey
from store.model.message_columns import MessageColumns
from store.model.sys_flag import has_queue_offset

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.model.message_columns import Numbers

# Stored in a prepared or rolled-back message, which is in no queue. Only copies of messages of compacted topics, which
# brokers alone can put, have the offset of the original.
NO_QUEUE_OFFSET = 0


class QueueOffsets:
    """The table.

    Args:
        max_offset_of: returns the offset after the last message of a queue, according to dispatch; called once per
            queue, when the whole log is dispatched.
    """

    __slots__ = ("_max_offset_of", "_next")

    def __init__(self, max_offset_of: Callable[[QueueKey], int]) -> None:
        self._max_offset_of = max_offset_of
        # At least the offset after the last message in the log; grows, except by `take_back` and `forget`.
        self._next: dict[tuple[str, int], int] = {}

    def next_offset(self, key: QueueKey) -> int:
        """Return the offset that the next message of a queue gets."""
        offset = self._next.get(key)
        if offset is None:
            offset = self._next[key] = self._max_offset_of(key)
        return offset

    def take(self, messages: Sequence[Message]) -> Sequence[int]:
        """Assign an offset to each message."""
        if isinstance(messages, MessageColumns) and messages.is_ordinary:
            return self._take_ordinary(messages.topic, messages.queue_ids, len(messages))
        offsets: list[int] = []
        table = self._next
        for message in messages:
            if not has_queue_offset(message.sys_flag):
                offsets.append(int(message.properties.get(COMPACTED_OFFSET, NO_QUEUE_OFFSET)))
                continue
            key = (message.topic, message.queue_id)
            offset = table.get(key)
            if offset is None:
                offset = self._max_offset_of(QueueKey(*key))
            table[key] = offset + 1
            offsets.append(offset)
        return offsets

    def _take_ordinary(self, topic: str, queue_ids: Numbers, count: int) -> Sequence[int]:
        """Assign an offset to each of `count` messages of one topic, all of which are in a queue."""
        if isinstance(queue_ids, int):
            begin = self.next_offset(QueueKey(topic, queue_ids))
            self._next[topic, queue_ids] = begin + count
            return range(begin, begin + count)
        offsets: list[int] = []
        # By queue: one lookup of a number for each message, not of a topic and a number.
        table: dict[int, int] = {}
        for queue_id in queue_ids:
            offset = table.get(queue_id)
            if offset is None:
                offset = self.next_offset(QueueKey(topic, queue_id))
            table[queue_id] = offset + 1
            offsets.append(offset)
        self._next.update({(topic, queue_id): offset for queue_id, offset in table.items()})
        return offsets

    def take_back(self, messages: Sequence[Message], offsets: Sequence[int]) -> None:
        """Undo the last `take`: no message was appended, and there was no later `take`."""
        for message, offset in zip(reversed(messages), reversed(offsets), strict=True):
            if has_queue_offset(message.sys_flag):
                self._next[message.topic, message.queue_id] = offset

    def forget(self) -> None:
        """Drop all offsets, to be recomputed from the queues: the log was truncated, or another node led it."""
        self._next.clear()
