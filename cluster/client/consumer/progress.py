"""The consumed offset of one queue: up to the first delivered message that is not processed yet. Pure.

Messages may be acknowledged in any order; the committed offset covers only a contiguous range. So after a failure all
unprocessed messages are delivered again, and possibly some processed ones: at least once. Source: RocketMQ
`ProcessQueue`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class QueueProgress:
    """Progress in one queue.

    Attributes:
        committed: the group's offset at the broker.
        is_refused: whether the broker refused the last commit permanently: the offset was reset, or the topic deleted.

    Args:
        offset: the start offset.
    """

    def __init__(self, offset: int) -> None:
        self.committed = offset
        self.is_refused = False
        self._end = offset
        # Delivered offsets, from the first unprocessed one on; and the unprocessed ones among them.
        self._delivered: deque[int] = deque()
        self._undone: set[int] = set()

    @property
    def position(self) -> int:
        """The offset before which every message is processed or was filtered out."""
        return self._delivered[0] if self._delivered else self._end

    def delivered(self, offsets: Iterable[int], end: int) -> None:
        """Record delivered messages.

        Args:
            offsets: their offsets, ascending, after all that were delivered before.
            end: the offset after the last one examined; messages between were filtered out.
        """
        for offset in offsets:
            assert not self._delivered or offset > self._delivered[-1], (offset, self._delivered[-1])
            self._delivered.append(offset)
            self._undone.add(offset)
        self._end = end

    @property
    def is_settled(self) -> bool:
        """Whether every delivered message is processed, and committed as far as possible."""
        return not self._undone and (self.is_refused or self.committed >= self.position)

    def returned(self, offset: int) -> None:
        """Record that messages from this offset on were not delivered after all."""
        while self._delivered and self._delivered[-1] >= offset:
            self._undone.discard(self._delivered.pop())
            self._end = offset

    def done(self, offset: int) -> None:
        """Record that a message is processed; one that is not outstanding is ignored."""
        self._undone.discard(offset)
        while self._delivered and self._delivered[0] not in self._undone:
            self._delivered.popleft()
