"""The end offsets of all queues of a store: read at one moment, and set in another store that cannot know them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store.model.message import QueueKey


class QueueEnds(NamedTuple):
    """The ends of the queues.

    Attributes:
        offset: of the log: exactly the messages before it are counted.
        next_offsets: of each queue, the offset of its next message.
    """

    offset: int
    next_offsets: Mapping[QueueKey, int]

    def joined(self, other: QueueEnds) -> QueueEnds:
        """Return the ends of two stores of the same log together: the larger of each queue, as of the later offset."""
        further = {key: max(end, other.next_offsets.get(key, 0)) for key, end in self.next_offsets.items()}
        return QueueEnds(max(self.offset, other.offset), {**other.next_offsets, **further})
