"""Rules for messages whose queue offset is not the next one.

The log is authoritative; the rules, in order:

1. A message before the last one of its queue was already dispatched. Its unit is compared: a wrong one is
   overwritten, unless it points to a later message with the same queue offset (rule 4).
2. A single queue offset out of order, after which the sequence continues, is damage of that record (no checksum covers
   the field): the message gets no unit.
3. A queue offset above the next one leaves a gap, which becomes blank; one that is too far above counts as damage.
4. A queue offset below the next one was assigned twice: the queue had lost its end when the later message was put
   (RocketMQ's `DLedgerCommitLog` does that after a crash). The queue is truncated there, as it was then, and continues
   with the later message, so that its physical offsets ascend and consumers get the same messages as before.

So the queue is a function of the log, regardless of where dispatch begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from store.queues.rows import Rows, runs_of
from store.queues.unit import UNIT, UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.model.message import QueueKey
    from store.queues.consume_queue import ConsumeQueue

# Limit of blanks for one gap (20 MB): more than any crash leaves, and an acceptable cost of a damaged number.
GAP_UNITS_MAX = 1 << 20
_QUEUE_OFFSET_MAX = (1 << 63) // UNIT_SIZE - (1 << 32)


@dataclass(frozen=True, slots=True)
class OutOfOrderUnit:
    """A message of the log without a unit, or with an unexpected one.

    Attributes:
        key: its queue.
        queue_offset: of the record.
        physical_offset: of the record.
        expected: the next queue offset, or another description of the correct value.
        action: of dispatch, in words.
    """

    key: QueueKey
    queue_offset: int
    physical_offset: int
    expected: str
    action: str


def place(queue: ConsumeQueue, rows: Rows) -> list[OutOfOrderUnit]:
    """Add these messages to a queue; return those that were out of order.

    Raises:
        store.errors.DiskFull: some may have been added; call it again with all of them.
        store.errors.StorageFailed: the node must stop.
    """
    known_count = int(np.searchsorted(rows.physical_offsets, queue.max_physical_offset))
    found = list(_compare(queue, rows.slice(0, known_count)))
    new = rows.slice(known_count, len(rows.ends))
    runs = runs_of(new.queue_offsets)
    for number, (begin, end) in enumerate(runs):
        queue_offset = int(new.queue_offsets[begin])
        next_begin = runs[number + 1][0] if number + 1 < len(runs) else None
        follower = None if next_begin is None else int(new.queue_offsets[next_begin])
        reason = _refusal(queue, queue_offset, end - begin, follower)
        if reason is not None or queue_offset < queue.max_offset:
            found.append(
                _out_of_order(queue, new, begin, reason or "the queue was cut there: the later message is kept")
            )
        if reason is None:
            _move_to(queue, queue_offset)
            queue.append(new.slice(begin, end).units, int(new.ends[end - 1]))
    return found


def _refusal(queue: ConsumeQueue, queue_offset: int, count: int, follower: int | None) -> str | None:
    """Return the reason why a run of messages gets no units; None if it gets them."""
    expected = queue.max_offset
    is_new = not queue.is_begun and not queue.max_offset
    if not 0 <= queue_offset <= _QUEUE_OFFSET_MAX:
        return "left out: no such queue offset"
    if not is_new and count == 1 and queue_offset != expected and follower == expected + 1:
        return "left out: the messages before and after it agree with one another"
    if not is_new and queue_offset > expected + GAP_UNITS_MAX:
        return f"left out: more than {GAP_UNITS_MAX} messages would be missing before it"
    return None


def _move_to(queue: ConsumeQueue, queue_offset: int) -> None:
    """Move the queue's end to `queue_offset`."""
    if queue.is_begun and queue_offset < queue.begin_offset:
        queue.remove_all()
    if not queue.is_begun:
        queue.begin_at(queue_offset)
    elif queue_offset < queue.max_offset:
        queue.truncate_at(queue_offset)
    if not queue.is_begun:  # cut to length 0
        queue.begin_at(queue_offset)
    queue.fill_gap(queue_offset)


def _compare(queue: ConsumeQueue, rows: Rows) -> Iterator[OutOfOrderUnit]:
    """Correct the units of messages that were already dispatched."""
    for begin, end in runs_of(rows.queue_offsets):
        run = rows.slice(begin, end)
        first = int(run.queue_offsets[0])
        if queue.unit_bytes(first, end - begin) == run.units:
            continue
        for number, queue_offset in enumerate(run.queue_offsets.tolist()):
            unit = bytes(run.units[number * UNIT_SIZE : (number + 1) * UNIT_SIZE])
            if queue.begin_offset <= queue_offset < queue.max_offset and _is_wrong(queue, queue_offset, unit):
                queue.overwrite(queue_offset, unit)
                yield _out_of_order(queue, run, number, "another unit had this queue offset; it was overwritten")


def _is_wrong(queue: ConsumeQueue, queue_offset: int, unit: bytes) -> bool:
    if queue.unit_bytes(queue_offset, 1) == unit:
        return False
    physical_offset = UNIT.unpack(unit)[0]
    stored, *after = queue.unit_tuples(queue_offset, 2)
    is_later = stored[0] > physical_offset
    is_in_order = not after or after[0][0] >= stored[0] + stored[1]
    return not (is_later and is_in_order)


def _out_of_order(queue: ConsumeQueue, rows: Rows, number: int, action: str) -> OutOfOrderUnit:
    return OutOfOrderUnit(
        queue.key,
        int(rows.queue_offsets[number]),
        int(rows.physical_offsets[number]),
        f"queue offset {queue.max_offset}",
        action,
    )
