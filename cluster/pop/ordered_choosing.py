"""Chooses messages of a queue for a consumer of a group that consumes in order: at most one of each message group.

| the queue | is consumed |
| --- | --- |
| has messages that were taken without order, and the group is ordered now | without order, until these are done |
| has messages that were taken in order, and the group is not ordered any more | in order, until these are done |
| anything else | as the group's setting says |

First come messages whose leases have ended, then those whose predecessor is done, then new ones. New messages that must
wait for another one of their message group are read once: they are taken note of with the take (`OrderedTake.fresh`),
512 with each, until the queue has 10,000; so the queue is not read again while a message group is blocked.

One take of a queue is proposed at a time: another consumer gets messages of other queues, and is woken when it ends.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Final

from cluster.pop.choosing import Chooser, PopChoice
from cluster.state.pop.ops import Taken
from cluster.state.pop.ordered_applying import ORDERED_MAX, live_lease
from cluster.state.pop.ordered_take import KEY_END, NO_ATTEMPT, NO_GROUP, Fresh, OrderedTake
from cluster.state.pop.state import IN_FLIGHT_MAX, IN_FLIGHT_OF_QUEUE_MAX, PopKey
from store.model.message import SHARDING_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from cluster.pop.choosing import Budget
    from cluster.replica.port import Replica
    from cluster.state.pop.ops import PopResult
    from cluster.state.pop.ordered import OrderedRows
    from cluster.state.pop.queue import PopQueue

# New messages of one take that wait, and bytes of theirs that are read.
WAITING_PER_TAKE_MAX: Final = 512
_WAITING_SIZE_BYTES_MAX: Final = 4 << 20
_READ_MAX: Final = 32


def key_of(text: str) -> int:
    """Return the key of a message group or an attempt id: 63 bits of a hash, the same in every process.

    Two message groups with one key only wait for each other. Without a text it is `NO_GROUP`, which is `NO_ATTEMPT`.
    """
    if not text:
        return NO_GROUP
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) % KEY_END or 1


class OrderedChooser(Chooser):
    """Chooses messages on one node, in order or not, as the group and the queue require.

    Args:
        replica: the node's.
        moving: returns the offsets in a queue that must not be chosen.
    """

    def __init__(self, replica: Replica, moving: Callable[[PopKey], Container[int]]) -> None:
        super().__init__(replica, moving)
        # Queues of which a take in order is proposed; True: another consumer has asked meanwhile.
        self._busy: dict[PopKey, bool] = {}

    def repeated(self, keys: Sequence[tuple[PopKey, str]], attempt: int, now_ms: int) -> Sequence[tuple[PopKey, str]]:
        """Return those queues, of the given ones, in which an attempt has a valid lease; all of them if there is none.

        Args:
            keys: the queues, with the origin of a choice.
            attempt: hash of the attempt id, or `NO_ATTEMPT`.
            now_ms: lease time.
        """
        if attempt == NO_ATTEMPT:
            return keys
        return [each for each in keys if self._lease_of(each[0], attempt, now_ms)] or keys

    def _lease_of(self, key: PopKey, attempt: int, now_ms: int) -> list[int]:
        """Return the offsets in a queue that a repeated attempt gets."""
        queue = self._replica.state.pop.queues.get(key)
        if queue is None or queue.ordered is None:
            return []
        moving = self._moving(key)
        return [each for each in live_lease(queue, queue.ordered, attempt, now_ms) if each not in moving]

    def choose_any(
        self,
        key: PopKey,
        expression: str,
        invisible_ms: int,
        now_ms: int,
        budget: Budget,
        origin: str,
        attempt: int,
    ) -> PopChoice:
        """Choose messages and reserve them; `ended` must be called with the result of the proposal.

        Args:
            key: the queue.
            expression: the filter.
            invisible_ms: for the take.
            now_ms: lease time.
            budget: what the consumer may still get; reduced.
            origin: of the choice.
            attempt: hash of the attempt id, or `NO_ATTEMPT`; only for queues that are consumed in order.

        Raises:
            store.errors.IllegalRequest: the expression is invalid.
        """
        state = self._replica.state
        group, queue = state.groups.get(key.group), state.pop.queues.get(key)
        wants_order = group is not None and group.is_orderly
        is_ordered = wants_order if queue is None else queue.ordered is not None
        if not is_ordered:
            return self.choose(key, expression, invisible_ms, now_ms, budget, origin, with_fresh=not wants_order)
        if key in self._busy:
            self._busy[key] = True
            end = self._replica.store.max_offset(key.topic, key.queue_id)
            return PopChoice(key, origin, wait_offset=end, is_ordered=True)
        choice = PopChoice(key, origin, is_ordered=True)
        self._choose_in_order(choice, expression, invisible_ms, now_ms, budget, attempt, with_fresh=wants_order)
        return choice

    def _choose_in_order(
        self,
        choice: PopChoice,
        expression: str,
        invisible_ms: int,
        now_ms: int,
        budget: Budget,
        attempt: int,
        *,
        with_fresh: bool,
    ) -> None:
        key = choice.key
        state, store = self._replica.state, self._replica.store
        known, queue = state.offset(*key), state.pop.queues.get(key)
        ordered = None if queue is None else queue.ordered
        low, high = store.min_offset(key.topic, key.queue_id), store.max_offset(key.topic, key.queue_id)
        cursor = low if known is None else known.offset if queue is None else queue.cursor
        begin = end = max(cursor, low)
        epoch = 0 if known is None else known.reset_count
        choice.wait_offset = max(begin, high)
        if queue is not None and ordered is not None:
            lease = self._lease_of(key, attempt, now_ms)
            if lease:
                self._read_again(choice, lease, expression, budget)
                choice.take = OrderedTake(*key, epoch, low, begin, begin, invisible_ms, attempt)
                self._busy[key] = False
                return
            if live_lease(queue, ordered, attempt, now_ms):
                # All of its messages are being moved.
                attempt = NO_ATTEMPT
            moving = self._moving(key)
            old = _continuing(queue, ordered, low, now_ms, min(budget.again, budget.count), moving)
            budget.again -= len(old)
            again, passed = self._read_again(choice, old, expression, budget)
        else:
            again, passed = [], []
        fresh: list[Fresh] = []
        if with_fresh:
            fresh, end = self._read_in_order(choice, ordered, begin, high, expression, budget)
        if again or passed or end > begin:
            choice.take = OrderedTake(
                *key, epoch, low, begin, end, invisible_ms, attempt, tuple(again), tuple(passed), tuple(fresh)
            )
            self._busy[key] = False

    def _read_in_order(
        self, choice: PopChoice, ordered: OrderedRows | None, begin: int, high: int, expression: str, budget: Budget
    ) -> tuple[list[Fresh], int]:
        """Read new messages; return those that are taken or must wait, and the new cursor."""
        key, state, offset = choice.key, self._replica.state, begin
        rows = 0 if ordered is None else len(ordered)
        of_all = min(ORDERED_MAX - state.pop.ordered_count, IN_FLIGHT_MAX - state.pop.count)
        room = min(IN_FLIGHT_OF_QUEUE_MAX - rows, of_all)
        fresh: list[Fresh] = []
        taken: set[int] = set()
        waiting_count = waiting_bytes = 0
        while offset < high and budget.count > 0 and budget.size_bytes > 0 and budget.scan > 0:
            if waiting_count >= WAITING_PER_TAKE_MAX or waiting_bytes >= _WAITING_SIZE_BYTES_MAX:
                break
            count = min(_READ_MAX, room - len(fresh))
            if count <= 0:
                choice.is_full = of_all <= len(fresh)
                break
            found = self._replica.store.get(key.topic, key.queue_id, offset, count, budget.size_bytes, expression)
            if found.next_begin_offset <= offset:
                break
            for message in found.messages:
                message_key = key_of(message.properties.get(SHARDING_KEY, ""))
                is_blocked = message_key in taken or (ordered is not None and ordered.is_blocked(message_key))
                is_wanted = not is_blocked and budget.count > 0 and budget.size_bytes > 0
                fresh.append(Fresh(message.queue_offset, message_key, is_wanted))
                if is_wanted:
                    taken.add(message_key)
                    self._give(choice, message, budget)
                else:
                    waiting_count += 1
                    waiting_bytes += message.size
            choice.skipped += found.skipped
            budget.scan -= found.next_begin_offset - offset
            offset = found.next_begin_offset
        return fresh, offset

    def ended(self, choice: PopChoice, result: PopResult | None) -> bool:
        """Release a reservation; return whether other consumers may find messages now."""
        take = choice.take
        if not isinstance(take, OrderedTake):
            return super().ended(choice, result)
        was_wanted = self._busy.pop(choice.key)
        return was_wanted or not isinstance(result, Taken) or len(result.offsets) < len(choice.messages)


def _continuing(
    queue: PopQueue, ordered: OrderedRows, low: int, now_ms: int, count: int, moving: Container[int]
) -> list[int]:
    """Return offsets of rows that may be taken, ascending: those that were taken before first, then those that wait."""
    free = [offset for offset in queue.free_offsets(now_ms) if offset >= low and offset not in moving][:count]
    ready = islice(ordered.ready, count - len(free))
    return sorted(free + [offset for offset in map(ordered.first_of, ready) if offset >= low])
