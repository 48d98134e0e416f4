"""The rules of pop consumption: what of an operation holds against the state at its place in the log.

| operation | holds if |
| --- | --- |
| any | group and topic exist; its epoch is the reset count of the group's offset in the queue |
| take, again and passed | the message is in flight, and its lease has ended by lease time |
| take, fresh | it is at or after the cursor, and nothing between the cursor and `begin` would be left out; |
| | a group without an offset begins at `low`, or where an empty take says |
| take in order | see `cluster.state.pop.ordered_applying` |
| done, extend | the message's lease has that serial: also after its deadline, until another consumer takes it |
| a record that moves a message | its row has the serial in the record's effect (`PopMoved`) |

So leases end without a command: the time of a later take decides, on the clock of `cluster.state.pop.grace`. The
group's committed offset is always the floor, the first message that is not done; so all tools that show offsets and lag
show the progress of pop consumption, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.state.commands import QueueOffset
from cluster.state.offsets import OFFSETS_MAX
from cluster.state.pop.ops import AckOutcome, Done, Extend, Extended, PopOp, PopOps, PopResult, Take, Taken
from cluster.state.pop.ordered_applying import take_in_order
from cluster.state.pop.ordered_take import OrderedTake
from cluster.state.pop.state import IN_FLIGHT_MAX, IN_FLIGHT_OF_QUEUE_MAX, QUEUES_MAX, PopKey, PopState
from cluster.state.verdicts import Applied, CommandVerdict

if TYPE_CHECKING:
    from collections.abc import Collection

    from cluster.state.effects import PopMoved
    from cluster.state.offsets import CommittedOffsets
    from cluster.state.pop.queue import PopQueue

_NOTHING: Final = Taken()


class PopRules(NamedTuple):
    """Applies operations.

    Attributes:
        pop: the queues with messages in flight.
        offsets: the committed offsets of all groups.
        topics: names of the topics.
        groups: names of the groups.
    """

    pop: PopState
    offsets: CommittedOffsets
    topics: Collection[str]
    groups: Collection[str]

    def apply(self, command: PopOps) -> Applied:
        """Apply the operations in order; return the result of each in `Applied.pops`."""
        # The clock of a new leader may be slow: time in the log never goes back.
        is_later = command.time_ms > self.pop.time_ms
        self.pop.time_ms = max(self.pop.time_ms, command.time_ms)
        results = tuple([self._apply(op) for op in command.ops])
        is_changed = is_later or not all(_is_refused(result) for result in results)
        return Applied(CommandVerdict.CHANGED if is_changed else CommandVerdict.UNCHANGED, pops=results)

    def _apply(self, op: PopOp) -> PopResult:
        known = self.offsets.get(op.group, op.topic, op.queue_id)
        is_valid = (
            op.group in self.groups
            and op.topic in self.topics
            and op.epoch == (0 if known is None else known.reset_count)
        )
        key = PopKey(op.group, op.topic, op.queue_id)
        match op:
            case Take():
                return self._take(key, op, known) if is_valid else _NOTHING
            case OrderedTake():
                return self._take_in_order(key, op, known) if is_valid else _NOTHING
            case Done():
                if not is_valid or known is None:
                    return (AckOutcome.STALE,) * len(op.offsets)
                return self._done(key, op, known)
            case Extend():
                if not is_valid or known is None:
                    return Extended(AckOutcome.STALE)
                return self._extend(key, op, known)

    def _keep(self, key: PopKey, queue: PopQueue, count_before: int, known: QueueOffset | None) -> None:
        """Store a changed queue, and its floor as the group's committed offset: the one place that derives it."""
        floor = queue.floor
        if known is None or known.offset != floor:
            epoch = 0 if known is None else known.reset_count
            self.offsets.put(key.group, QueueOffset(key.topic, key.queue_id, floor, epoch))
        self.pop.settle(key, queue, count_before)

    # --------------------------------------------------------------------------------------------------------- takes

    def _queue_for(self, key: PopKey, begin: int, known: QueueOffset | None) -> PopQueue | None:
        """Return the queue of a take, which may be changed; None: there are too many."""
        queue = self.pop.own(key)
        if queue is None:
            if len(self.pop.queues) >= QUEUES_MAX or (known is None and self.offsets.count >= OFFSETS_MAX):
                return None
            queue = self.pop.new(begin if known is None else known.offset)
        return queue

    def _take_in_order(self, key: PopKey, op: OrderedTake, known: QueueOffset | None) -> Taken:
        if known is None and op.low < op.begin < op.end:
            return _NOTHING
        queue = self._queue_for(key, op.begin, known)
        if queue is None:
            return Taken(is_full=True)
        before = len(queue)
        if before and queue.ordered is None:
            return _NOTHING
        rows_max = min(IN_FLIGHT_OF_QUEUE_MAX, IN_FLIGHT_MAX - self.pop.count + before)
        taken = take_in_order(self.pop, queue, op, rows_max)
        self._keep(key, queue, before, known)
        return taken

    def _take(self, key: PopKey, op: Take, known: QueueOffset | None) -> Taken:
        if known is None and op.low < op.begin < op.end:
            # It was proposed after the group's first take of the queue, which has failed: what that left would be lost.
            return _NOTHING
        pop, queue = self.pop, self._queue_for(key, op.begin, known)
        if queue is None:
            return Taken(is_full=True)
        if queue.ordered is not None:
            return _NOTHING
        before = len(queue)
        pop.lost_count += queue.remove_before(op.low)
        queue.cursor = max(queue.cursor, op.low)
        serial = max(pop.time_ms, queue.last_serial + 1)
        now_ms = pop.lease_time_ms
        deadline_ms = now_ms + op.invisible_ms
        offsets: list[int] = []
        attempts: list[int] = []
        for offset in op.again:
            row = queue.row_of(offset)
            if row >= 0 and queue.is_free(row, now_ms):
                offsets.append(offset)
                attempts.append(queue.take(row, serial, deadline_ms))
        for offset in op.passed:
            row = queue.row_of(offset)
            if row >= 0 and queue.is_free(row, now_ms):
                queue.remove(row)
        is_full = False
        if op.begin <= queue.cursor < op.end:
            fresh = op.fresh
            if queue.cursor > op.begin:
                fresh = [offset for offset in fresh if offset >= queue.cursor]
            room = min(IN_FLIGHT_OF_QUEUE_MAX - len(queue), IN_FLIGHT_MAX - pop.count + before - len(queue))
            is_full = len(fresh) > max(room, 0)
            queue.cursor = fresh[max(room, 0)] if is_full else op.end
            fresh = fresh[: max(room, 0)]
            queue.append(fresh, serial, deadline_ms)
            offsets += fresh
            attempts += [1] * len(fresh)
        if offsets:
            queue.last_serial = serial
        self._keep(key, queue, before, known)
        return Taken(serial, offsets, attempts, is_full)

    # ---------------------------------------------------------------------------------------------------------- acks

    def _done(self, key: PopKey, op: Done, known: QueueOffset) -> tuple[AckOutcome, ...]:
        queue = self.pop.own(key)
        if queue is None:
            return tuple([_outcome_without_row(offset, known.offset) for offset in op.offsets])
        before = len(queue)
        if op.offsets and op.serial and queue.remove_lease(op.offsets, op.serial):
            self._keep(key, queue, before, known)
            return (AckOutcome.ACKNOWLEDGED,) * len(op.offsets)
        outcomes: list[AckOutcome] = []
        for offset in op.offsets:
            row = queue.row_of(offset)
            if row < 0:
                outcomes.append(_outcome_without_row(offset, queue.cursor))
            elif queue.serial_of(row) == op.serial:
                queue.remove(row)
                outcomes.append(AckOutcome.ACKNOWLEDGED)
            else:
                outcomes.append(AckOutcome.STALE)
        self._keep(key, queue, before, known)
        return tuple(outcomes)

    def _extend(self, key: PopKey, op: Extend, known: QueueOffset) -> Extended:
        queue = self.pop.own(key)
        if queue is None:
            return Extended(_outcome_without_row(op.offset, known.offset))
        row = queue.row_of(op.offset)
        if row < 0:
            return Extended(_outcome_without_row(op.offset, queue.cursor))
        if queue.serial_of(row) != op.serial:
            return Extended(AckOutcome.STALE)
        serial = queue.last_serial = max(self.pop.time_ms, queue.last_serial + 1)
        queue.extend(row, serial, self.pop.lease_time_ms + op.invisible_ms, is_counted=op.is_counted)
        self.pop.settle(key, queue, len(queue))
        return Extended(AckOutcome.ACKNOWLEDGED, serial)

    # --------------------------------------------------------------------------------------------------------- moves

    def moved(self, effect: PopMoved) -> bool:
        """Finish a message whose copy was put; return False if another consumer has it: a defect.

        If it is not in flight any more, because its topic or group was deleted, or the offset of the group was changed,
        nothing is left to do.
        """
        key = PopKey(effect.group, effect.topic, effect.queue_id)
        queue, known = self.pop.own(key), self.offsets.get(*key)
        row = -1 if queue is None else queue.row_of(effect.offset)
        if queue is None or known is None or row < 0:
            return True
        if queue.serial_of(row) != effect.serial:
            return False
        before = len(queue)
        queue.remove(row)
        self._keep(key, queue, before, known)
        return True


def _outcome_without_row(offset: int, cursor: int) -> AckOutcome:
    """Return the outcome for a message that is not in flight: done, or never taken."""
    return AckOutcome.ALREADY_DONE if offset < cursor else AckOutcome.STALE


def _is_refused(result: PopResult) -> bool:
    if isinstance(result, Extended):
        return result.outcome is not AckOutcome.ACKNOWLEDGED
    # A take may have moved the cursor only.
    return not isinstance(result, Taken) and AckOutcome.ACKNOWLEDGED not in result
