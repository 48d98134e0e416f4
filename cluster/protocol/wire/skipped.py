"""Conversion of the report of skipped messages: encoded by the broker, decoded by clients.

Not here: the skipping (`store.access.skipped_messages`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.protocol.skipped_messages import SkippedMessages
from cluster.v1 import broker_pb2 as pb
from store.access.skipped_messages import Skip, SkipCause

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from store.model.skipped import Skipped

_NO_QUEUE = -1
_CAUSE_TO_WIRE = {cause: pb.SkipCause.Value(f"SKIP_CAUSE_{cause.name}") for cause in SkipCause}
_CAUSE_FROM_WIRE = {number: cause for cause, number in _CAUSE_TO_WIRE.items()}


def skipped_to_wire(queue_id: int, skips: Iterable[Skip]) -> Iterator[pb.SkippedMessages]:
    """Yield the report of skipped messages of a queue in wire format."""
    for each in skips:
        note = _note(each.record)
        note.queue_id, note.begin_offset, note.end_offset = queue_id, each.begin, each.end
        note.cause = _CAUSE_TO_WIRE[each.cause]
        yield note


def damaged_to_wire(records: Iterable[Skipped]) -> Iterator[pb.SkippedMessages]:
    """Yield the report of damaged records of unknown queues in wire format."""
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
    """Yield the skipped messages of an answer."""
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
