"""Messages that a read passed over, as answers carry them: worded by the broker, read by clients.

Not here: when that happens (`store.access.skipped_messages`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cluster.v1 import broker_pb2 as pb
from store.access.skipped_messages import Skip, SkipCause
from store.model.skipped import Skipped

_NO_QUEUE = -1
_CAUSE_TO_WIRE = {cause: pb.SkipCause.Value(f"SKIP_CAUSE_{cause.name}") for cause in SkipCause}
_CAUSE_FROM_WIRE = {number: cause for cause, number in _CAUSE_TO_WIRE.items()}
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
        """Say what is missing, where, and why."""
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


def skipped_to_wire(queue_id: int, skips: Iterable[Skip]) -> Iterator[pb.SkippedMessages]:
    """Yield what was passed over of a queue as answers carry it."""
    for each in skips:
        note = _note(each.record)
        note.queue_id, note.begin_offset, note.end_offset = queue_id, each.begin, each.end
        note.cause = _CAUSE_TO_WIRE[each.cause]
        yield note


def damaged_to_wire(records: Iterable[Skipped]) -> Iterator[pb.SkippedMessages]:
    """Yield damaged records, of queues that are not known, as answers carry them."""
    for each in records:
        note = _note(each)
        note.queue_id = note.begin_offset = note.end_offset = _NO_QUEUE
        yield note


def _note(record: Skipped | None) -> pb.SkippedMessages:
    if record is None:
        return pb.SkippedMessages(physical_offset=-1, position=-1)
    return pb.SkippedMessages(
        cause=pb.SKIP_CAUSE_DAMAGED,
        physical_offset=record.offset,
        file=record.path,
        position=record.position,
        expected=record.expected,
        found=record.found,
    )


def skipped_of(notes: Iterable[pb.SkippedMessages], topic: str, broker: str = "") -> Iterator[SkippedMessages]:
    """Yield what an answer says of messages that were passed over."""
    for each in notes:
        yield SkippedMessages(
            topic,
            broker,
            each.queue_id,
            each.begin_offset,
            each.end_offset,
            _CAUSE_FROM_WIRE.get(each.cause, SkipCause.DAMAGED),
            each.physical_offset,
            each.file,
            each.position,
            each.expected,
            each.found,
        )
