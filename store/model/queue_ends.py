"""The end offsets of all queues of a store: a consistent snapshot, for transfer to a store that lacks the messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store.model.message import QueueKey


class QueueEnds(NamedTuple):
    """The ends of the queues.

    Attributes:
        offset: of the log, up to which messages are counted.
        next_offsets: the next offset of each queue.
    """

    offset: int
    next_offsets: Mapping[QueueKey, int]

    def joined(self, other: QueueEnds) -> QueueEnds:
        """Merge the ends of two stores of the same log: the larger end of each queue, and the later offset."""
        further = {key: max(end, other.next_offsets.get(key, 0)) for key, end in self.next_offsets.items()}
        return QueueEnds(max(self.offset, other.offset), {**other.next_offsets, **further})
