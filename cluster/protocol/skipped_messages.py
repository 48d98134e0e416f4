"""The report of skipped messages for clients.

Not here: the skipping (`store.access.skipped_messages`).
"""

from __future__ import annotations

from typing import NamedTuple

from store.access.skipped_messages import SkipCause

_WHY = {
    SkipCause.ABSENT: "the broker's log had no readable record for it when the queue was built",
    SkipCause.REMOVED: "deleted by retention before it was read",
}


class SkippedMessages(NamedTuple):
    """Messages of one queue that a reader does not get, although they may match its filter.

    Attributes:
        topic: its topic.
        broker: name or address of the reporting broker; empty if there is only one.
        queue_id: the queue; -1: the answer is not about a queue.
        begin: the first queue offset; -1: unknown.
        end: the offset after the last one; -1: unknown.
        cause: DAMAGED, ABSENT or REMOVED.
        physical_offset: with DAMAGED, the offset of the first damaged record in the broker's log.
        file: its file.
        position: position of the fault in the file.
        expected: expected content at that position.
        found: found content.
    """

    topic: str
    broker: str
    queue_id: int
    begin: int
    end: int
    cause: SkipCause
    physical_offset: int = -1
    file: str = ""
    position: int = -1
    expected: str = ""
    found: str = ""

    def __str__(self) -> str:
        """Return the missing offsets, their place, and the cause."""
        place = f"topic {self.topic}" if self.queue_id < 0 else f"topic {self.topic}, queue {self.queue_id}"
        place = f"{self.broker}: {place}" if self.broker else place
        if self.begin >= 0:
            last = self.end - 1
            place += f", offset {self.begin}" if last == self.begin else f", offsets {self.begin} to {last}"
        return f"{place}: skipped: {self._why()}"

    def _why(self) -> str:
        if self.cause is not SkipCause.DAMAGED:
            return _WHY[self.cause]
        return (
            f"damaged record at {self.physical_offset} ({self.file}, byte {self.position}): "
            f"expected {self.expected}, found {self.found}"
        )
