"""The consumed offset of one queue: up to the first delivered message that is not processed yet. Pure.

Messages may be done with in any order; what is committed is contiguous. So a consumer that fails gets again what it had
not done, and perhaps some that it had: at least once. Source: RocketMQ `ProcessQueue`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class QueueProgress:
    """Progress in one queue.

    Attributes:
        committed: what the broker holds as the group's offset.
        is_refused: the broker refused the last commit for good: the offset was reset, or the topic deleted.

    Args:
        offset: where consuming begins.
    """

    def __init__(self, offset: int) -> None:
        self.committed = offset
        self.is_refused = False
        self._end = offset
        # What was delivered, beginning with the first that is not done; and which of it is not done.
        self._delivered: deque[int] = deque()
        self._undone: set[int] = set()

    @property
    def position(self) -> int:
        """Everything before this offset is done with, or was not wanted."""
        return self._delivered[0] if self._delivered else self._end

    def delivered(self, offsets: Iterable[int], end: int) -> None:
        """Record messages that were handed out.

        Args:
            offsets: of each, ascending, after all that were handed out before.
            end: where the next one may begin; messages between were filtered out.
        """
        for offset in offsets:
            assert not self._delivered or offset > self._delivered[-1], (offset, self._delivered[-1])
            self._delivered.append(offset)
            self._undone.add(offset)
        self._end = end

    @property
    def is_settled(self) -> bool:
        """Whether everything that was delivered is done with, and committed as far as it can be."""
        return not self._undone and (self.is_refused or self.committed >= self.position)

    def returned(self, offset: int) -> None:
        """Record that messages from this offset on are not handed out to the program after all."""
        while self._delivered and self._delivered[-1] >= offset:
            self._undone.discard(self._delivered.pop())
            self._end = offset

    def done(self, offset: int) -> None:
        """Record that a message is done with; one that is not outstanding changes nothing."""
        self._undone.discard(offset)
        while self._delivered and self._delivered[0] not in self._undone:
            self._delivered.popleft()
