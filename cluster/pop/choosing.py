"""Chooses messages of one queue for a consumer: first those whose leases have ended, then new ones.

The choice is made from the applied state and from what is proposed already (reserved): so two consumers of one leader
are never given the same message, and the state, which checks again, refuses nothing. Messages that the filter rejects,
and those that cannot be read, are passed over with the take.

In a retry topic of pop consumption, those of another topic are passed over, too (`cluster.pop.moving`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cluster.state.pop.ops import Take, Taken, runs_of
from cluster.state.pop.state import IN_FLIGHT_MAX, IN_FLIGHT_OF_QUEUE_MAX
from commitlog.record.properties import decode_properties
from store.model.message import RETRY_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from cluster.replica.port import Replica
    from cluster.state.pop.ops import PopResult
    from cluster.state.pop.ordered_take import OrderedTake
    from cluster.state.pop.state import PopKey
    from store.access.skipped_messages import Skip
    from store.model.message import StoredMessage

# Units of one queue that are looked at for one choice: a filter that rejects nearly everything must not stall others.
SCAN_MAX: Final = 10_000
# Each of them may need a read of its own.
AGAIN_MAX: Final = 64


@dataclass(slots=True)
class Budget:
    """What a consumer may still get in one call.

    Attributes:
        count: messages.
        size_bytes: bytes of records.
        scan: units that may be looked at.
        again: messages whose leases have ended that may be looked at.
    """

    count: int
    size_bytes: int
    scan: int = SCAN_MAX
    again: int = AGAIN_MAX


def _is_of_another_topic(message: StoredMessage, topic: str) -> bool:
    """Return whether a message in a retry topic came from another topic; RocketMQ's do not say."""
    return decode_properties(message.properties_raw).get(RETRY_TOPIC, topic) != topic


@dataclass(slots=True)
class _Reserved:
    """What is proposed for one queue; `count`: the number of proposed operations."""

    epoch: int
    cursor: int
    count: int = 0
    fresh_count: int = 0
    again: set[int] = field(default_factory=set)


@dataclass(slots=True)
class PopChoice:
    """The choice in one queue.

    Attributes:
        key: the queue.
        origin: the topic that the consumer wants, if the queue is one of its retry topic; else empty.
        take: the operation to propose; None: there is nothing to take or to pass over.
        messages: that it takes, by offset.
        skipped: that it passes over although they may match.
        wait_offset: new messages have this offset or later ones.
        is_full: there are new messages, but too many are in flight.
        is_ordered: the queue is consumed in order, so an acknowledgement may let another message follow.
        reserved: what is reserved in the queue, the take included; internal.
    """

    key: PopKey
    origin: str = ""
    take: Take | OrderedTake | None = None
    messages: dict[int, StoredMessage] = field(default_factory=dict)
    skipped: list[Skip] = field(default_factory=list)
    wait_offset: int = 0
    is_full: bool = False
    is_ordered: bool = False
    reserved: _Reserved | None = None


class Chooser:
    """Chooses messages on one node.

    Args:
        replica: the node's.
        moving: returns the offsets in a queue that must not be chosen.
    """

    def __init__(self, replica: Replica, moving: Callable[[PopKey], Container[int]]) -> None:
        self._replica = replica
        self._moving = moving
        self._reserved: dict[PopKey, _Reserved] = {}
        self._reserved_count = 0

    def choose(
        self,
        key: PopKey,
        expression: str,
        invisible_ms: int,
        now_ms: int,
        budget: Budget,
        origin: str = "",
        *,
        with_fresh: bool = True,
    ) -> PopChoice:
        """Choose messages and reserve them; `ended` must be called with the result of the proposal.

        Args:
            key: the queue.
            expression: the filter.
            invisible_ms: for the take.
            now_ms: lease time.
            budget: what the consumer may still get; reduced.
            origin: of the choice.
            with_fresh: whether new messages may be chosen, too.

        Raises:
            store.errors.IllegalRequest: the expression is invalid.
        """
        state, store = self._replica.state, self._replica.store
        known, queue, reserved = state.offset(*key), state.pop.queues.get(key), self._reserved.get(key)
        epoch = 0 if known is None else known.reset_count
        if reserved is not None and reserved.epoch != epoch:
            reserved = None
        low, high = store.min_offset(key.topic, key.queue_id), store.max_offset(key.topic, key.queue_id)
        cursor = low if known is None else known.offset if queue is None else queue.cursor
        begin = max(cursor, low, 0 if reserved is None else reserved.cursor)
        choice = PopChoice(key, origin, wait_offset=max(begin, high))
        if queue is not None:
            taken, moving = () if reserved is None else reserved.again, self._moving(key)
            free = [
                each for each in queue.free_offsets(now_ms) if each not in taken and each >= low and each not in moving
            ][: budget.again]
            budget.again -= len(free)
        else:
            free = []
        again, passed = self._read_again(choice, free, expression, budget)
        room = IN_FLIGHT_OF_QUEUE_MAX - (0 if queue is None else len(queue))
        room = min(room, IN_FLIGHT_MAX - state.pop.count - self._reserved_count)
        room -= 0 if reserved is None else reserved.fresh_count
        fresh, end = self._read_fresh(choice, begin, high if with_fresh else begin, expression, room, budget)
        if again or passed or end > begin:
            self._reserve(choice, Take(*key, epoch, low, begin, end, invisible_ms, again, passed, fresh))
        return choice

    def _read_again(
        self, choice: PopChoice, free: Sequence[int], expression: str, budget: Budget
    ) -> tuple[list[int], list[int]]:
        """Read messages whose leases have ended; return the offsets to take, and those to pass over."""
        key = choice.key
        again: list[int] = []
        passed: list[int] = []
        for first, length in runs_of(free):
            offset, end = first, first + length
            while offset < end and budget.count > 0 and budget.size_bytes > 0:
                count = min(budget.count, end - offset)
                found = self._replica.store.get(key.topic, key.queue_id, offset, count, budget.size_bytes, expression)
                read_end = min(found.next_begin_offset, end)
                if read_end <= offset:
                    break
                for message in found.messages:
                    if message.queue_offset < read_end:
                        again.append(message.queue_offset)
                        self._give(choice, message, budget)
                choice.skipped += [each for each in found.skipped if each.begin < read_end]
                passed += [each for each in range(offset, read_end) if each not in choice.messages]
                offset = read_end
        return again, passed

    def _read_fresh(
        self, choice: PopChoice, begin: int, high: int, expression: str, room: int, budget: Budget
    ) -> tuple[list[int], int]:
        """Read new messages; return the offsets to take, and the new cursor."""
        key, offset = choice.key, begin
        fresh: list[int] = []
        while offset < high and budget.count > 0 and budget.size_bytes > 0 and budget.scan > 0:
            count = min(budget.count, room - len(fresh))
            if count <= 0:
                choice.is_full = True
                break
            found = self._replica.store.get(key.topic, key.queue_id, offset, count, budget.size_bytes, expression)
            if found.next_begin_offset <= offset:
                break
            messages = found.messages
            if choice.origin:
                messages = [each for each in messages if not _is_of_another_topic(each, choice.origin)]
            offsets = [each.queue_offset for each in messages]
            fresh += offsets
            choice.messages.update(zip(offsets, messages, strict=True))
            budget.count -= len(messages)
            budget.size_bytes -= sum([each.size for each in messages])
            choice.skipped += found.skipped
            budget.scan -= found.next_begin_offset - offset
            offset = found.next_begin_offset
        return fresh, offset

    @staticmethod
    def _give(choice: PopChoice, message: StoredMessage, budget: Budget) -> None:
        choice.messages[message.queue_offset] = message
        budget.count -= 1
        budget.size_bytes -= message.size

    # --------------------------------------------------------------------------------------------------- reservations

    def _reserve(self, choice: PopChoice, take: Take) -> None:
        reserved = self._reserved.get(choice.key)
        if reserved is None or reserved.epoch != take.epoch:
            # What is proposed for an earlier epoch will be refused.
            reserved = self._reserved[choice.key] = _Reserved(take.epoch, take.end)
        reserved.cursor = take.end
        reserved.count += 1
        reserved.fresh_count += len(take.fresh)
        reserved.again.update(take.again, take.passed)
        self._reserved_count += len(take.fresh)
        choice.take, choice.reserved = take, reserved

    def ended(self, choice: PopChoice, result: PopResult | None) -> bool:
        """Release a reservation; return whether messages of it may be chosen again.

        Args:
            choice: with a take.
            result: of the take; None: it failed, or its outcome is unknown.
        """
        take, reserved = choice.take, choice.reserved
        assert take is not None
        assert reserved is not None
        self._reserved_count -= len(take.fresh)
        reserved.count -= 1
        reserved.fresh_count -= len(take.fresh)
        reserved.again.difference_update(take.again, take.passed)
        if not reserved.count and self._reserved.get(choice.key) is reserved:
            del self._reserved[choice.key]
        is_free = not isinstance(result, Taken) or len(result.offsets) < len(take.again) + len(take.fresh)
        if is_free:
            # The takes that are proposed after it begin beyond what it left, and get nothing. If the next choice began
            # after them, it would be refused, too, and so on for as long as consumers ask.
            reserved.cursor = 0
        return is_free
