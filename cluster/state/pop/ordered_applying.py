"""The rules of a take in order: what of it holds against the state at its place in the log.

| part of a take | holds if |
| --- | --- |
| any | the queue has no rows that were taken without order; its consumers finish these first |
| attempt | a lease of it is valid: its messages are given again, for the new time, and nothing else holds |
| again | the message is the first one of its message group, and waits or its lease has ended |
| passed | the message waits, or its lease has ended |
| fresh, wanted | it is at or after the cursor, and no earlier message of its group is left: otherwise it waits |

So at most one message of a message group is in flight, whatever leaders propose.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.state.pop.ops import Taken
from cluster.state.pop.ordered import OrderedRows
from cluster.state.pop.ordered_take import NO_ATTEMPT
from cluster.state.pop.queue import NEVER_MS

if TYPE_CHECKING:
    from cluster.state.pop.ordered_take import Fresh, OrderedTake
    from cluster.state.pop.queue import PopQueue
    from cluster.state.pop.state import PopState

# Rows of all queues that are consumed in order: about 250 bytes each.
ORDERED_MAX: Final = 200_000
# The serial of a message that waits: no take has it.
_WAITING_SERIAL: Final = 1


class _Given(NamedTuple):
    offsets: list[int]
    attempts: list[int]


def take_in_order(pop: PopState, queue: PopQueue, op: OrderedTake, rows_max: int) -> Taken:
    """Apply a take to a queue.

    Args:
        pop: the state of all queues, before the take.
        queue: may be changed; new, or one that is consumed in order.
        op: valid.
        rows_max: rows that the queue may have.
    """
    if queue.ordered is None:
        queue.ordered = OrderedRows()
    now_ms = pop.lease_time_ms
    before = len(queue)
    pop.lost_count += queue.remove_before(op.low)
    queue.cursor = max(queue.cursor, op.low)
    repeated = _repeated(queue, queue.ordered, op, now_ms)
    if repeated is not None:
        return repeated
    serial = max(pop.time_ms, queue.last_serial + 1)
    given = _Given([], [])
    deadline_ms = now_ms + op.invisible_ms
    for offset in op.again:
        row = queue.row_of(offset)
        if row >= 0 and queue.ordered.is_first(offset) and _may_be_taken(queue, row, now_ms):
            attempts = queue.take(row, serial, deadline_ms)
            queue.ordered.taken(offset, serial, op.attempt)
            given.offsets.append(offset)
            given.attempts.append(attempts)
    for offset in op.passed:
        row = queue.row_of(offset)
        if row >= 0 and _may_be_taken(queue, row, now_ms):
            queue.remove(row)
    is_full = False
    if op.begin <= queue.cursor < op.end:
        room = max(min(rows_max - len(queue), ORDERED_MAX - pop.ordered_count + before - len(queue)), 0)
        is_full = _append(queue, op, room, serial, deadline_ms, given)
    if given.offsets:
        queue.last_serial = serial
    return Taken(serial, given.offsets, given.attempts, is_full)


def _repeated(queue: PopQueue, ordered: OrderedRows, op: OrderedTake, now_ms: int) -> Taken | None:
    """Give the messages of an earlier take with the same attempt, if its lease is valid; None: there is none."""
    offsets = live_lease(queue, ordered, op.attempt, now_ms)
    if not offsets:
        return None
    attempts = []
    for offset in offsets:
        row = queue.row_of(offset)
        queue.extend_lease(row, now_ms + op.invisible_ms)
        attempts.append(queue.attempts_of(row))
    return Taken(queue.serial_of(queue.row_of(offsets[0])), offsets, attempts)


def live_lease(queue: PopQueue, ordered: OrderedRows, attempt: int, now_ms: int) -> list[int]:
    """Return the offsets that a repeated take with an attempt gets: those of a valid lease, ascending.

    A message whose invisible time was changed is not among them: its consumer has had the answer.
    """
    lease = None if attempt == NO_ATTEMPT else ordered.lease_of(attempt)
    if lease is None:
        return []
    rows = [(offset, queue.row_of(offset)) for offset in sorted(lease.offsets)]
    return [offset for offset, row in rows if queue.serial_of(row) == lease.serial and not queue.is_free(row, now_ms)]


def _may_be_taken(queue: PopQueue, row: int, now_ms: int) -> bool:
    return queue.attempts_of(row) == 0 or queue.is_free(row, now_ms)


def _append(queue: PopQueue, op: OrderedTake, room: int, serial: int, deadline_ms: int, given: _Given) -> bool:
    """Add rows of new messages, and move the cursor; return whether there were too many."""
    ordered = queue.ordered
    assert ordered is not None
    fresh = [each for each in op.fresh if each.offset >= queue.cursor]
    is_full = len(fresh) > room
    queue.cursor = fresh[room].offset if is_full else op.end

    def added(each: Fresh) -> bool:
        is_taken = each.is_wanted and not ordered.is_blocked(each.key)
        ordered.add(each.offset, each.key, is_taken=is_taken)
        return is_taken

    for is_taken, rows in groupby([(added(each), each.offset) for each in fresh[:room]], lambda pair: pair[0]):
        offsets = [offset for _, offset in rows]
        if is_taken:
            queue.append(offsets, serial, deadline_ms)
            for offset in offsets:
                ordered.taken(offset, serial, op.attempt)
            given.offsets.extend(offsets)
            given.attempts.extend([1] * len(offsets))
        else:
            queue.append(offsets, _WAITING_SERIAL, NEVER_MS, attempts=0)
    return is_full
