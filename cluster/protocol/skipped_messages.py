"""Messages that a read passed over, as a client gets them.

Not here: when that happens (`store.access.skipped_messages`).
"""

from __future__ import annotations

from typing import NamedTuple

from store.access.skipped_messages import SkipCause

_WHY = {
    SkipCause.ABSENT: "the broker's log had no readable record for that when the queue was built",
    SkipCause.REMOVED: "deleted by age before that was read",
}


class SkippedMessages(NamedTuple):
    """Messages of one queue that a reader does not get, although it may have wanted them.

    Attributes:
        topic: its topic.
        broker: which broker reported it: its name, or address; empty where only one is asked.
        queue_id: the queue; -1: of an answer that follows no queue.
        begin: the first queue offset; -1: not known.
        end: after the last one; -1: not known.
        cause: DAMAGED, ABSENT or REMOVED.
        physical_offset: of damaged ones, where the first record begins in the broker's log.
        file: the file that holds it there.
        position: in the file, where the fault is.
        expected: what the format requires there.
        found: what was found there.
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
