"""Takes messages for consumers, and acknowledges them: each answer follows the commit of its operations.

A message is read before it is taken, so nothing is taken that this node cannot read. If a call is cancelled after its
operation was proposed, its messages stay invisible until their deadline, as after any lost answer.

Dead letters: a message is given again however often it was taken. `Taken.attempts` is known in `PopReceiver._taken`,
where one that reached its group's maximum can be put elsewhere instead.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from cluster.pop.attempts import AttemptsUnderWay
from cluster.pop.choosing import Budget, PopChoice
from cluster.pop.clock import LogClock
from cluster.pop.handles import Handle, encode_handle
from cluster.pop.ordered_choosing import OrderedChooser
from cluster.pop.polls import GroupTopic, Polls
from cluster.pop.writing import PopWriter
from cluster.state.pop.ops import AckOutcome, Done, Extend, Extended, PopOp, PopResult, Take, Taken
from cluster.state.pop.ordered_take import NO_ATTEMPT
from cluster.state.pop.queue import NEVER_MS
from cluster.state.pop.state import PopKey

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cluster.replica.port import Replica
    from store.access.skipped_messages import Skip
    from store.model.message import StoredMessage

COUNT_MAX: Final = 32
SIZE_BYTES_MAX: Final = 4 << 20
# Queues from which one call takes, or in which it passes over messages.
_TAKES_MAX: Final = 64
# Queues that are looked at in one iteration of the event loop: 2 us each.
_QUEUES_PER_STEP: Final = 256
# Of one entry.
_BEGINS_MAX: Final = 512


class Wanted(NamedTuple):
    """What a consumer wants.

    Attributes:
        group: its group, which exists.
        topic: a readable topic.
        queue_ids: queues of the topic, in the order in which they are looked at.
        expression: the filter, valid.
        count_max: messages, 1 to `COUNT_MAX`.
        invisible_ms: time for which other consumers do not get them.
        wait_s: how long to wait for the first one.
        attempt: hash of the attempt id, or `NO_ATTEMPT`.
    """

    group: str
    topic: str
    queue_ids: Sequence[int]
    expression: str
    count_max: int
    invisible_ms: int
    wait_s: float
    attempt: int = NO_ATTEMPT


class Given(NamedTuple):
    """A message for a consumer; `attempt`: the number of times it was taken, this one included."""

    message: StoredMessage
    handle: str
    attempt: int


class PopAnswer(NamedTuple):
    """The answer to a consumer.

    Attributes:
        given: the messages.
        skipped: messages that were passed over although they may match, by queue.
        full_queue: a queue that has messages, but too many in flight; None: there is none.
    """

    given: Sequence[Given] = ()
    skipped: Sequence[tuple[int, Skip]] = ()
    full_queue: int | None = None


class PopCounts(Protocol):
    """Counters: messages that were taken, that had been taken before, acknowledged ones, and stale handles."""

    pop_taken: int
    pop_redelivered: int
    pop_acknowledged: int
    pop_stale: int


class PopReceiver:
    """The leader's side of pop consumption on one node.

    Args:
        replica: the node's.
        broker: name of the broker, for handles.
        wall_ms: the wall clock, milliseconds since 1970.
        counts: of the metrics.
    """

    def __init__(self, replica: Replica, broker: str, wall_ms: Callable[[], int], counts: PopCounts) -> None:
        self._replica = replica
        self._broker = broker
        self._counts = counts
        self._clock = LogClock(wall_ms, time.monotonic, lambda: replica.state.pop.time_ms)
        self._writer = PopWriter(replica, self._clock)
        self._chooser = OrderedChooser(replica)
        self._attempts = AttemptsUnderWay()
        self._polls = Polls(replica.store, self._clock.now_ms)

    async def stop(self) -> None:
        """Cancel what is being proposed."""
        await self._writer.stop()

    # -------------------------------------------------------------------------------------------------------- receive

    async def receive(self, wanted: Wanted, check: Callable[[], None]) -> PopAnswer:
        """Take messages; wait for one if there is none.

        Args:
            wanted: what the consumer wants.
            check: raises once group or topic may no longer be consumed.

        Raises:
            RequestFailed, StoreError, DLedgerError: nothing was taken, unless the error's certainty is unknown; then
                what was taken is given again after its invisible time.
        """
        end_s = time.monotonic() + wanted.wait_s
        skipped: list[tuple[int, Skip]] = []
        while True:
            # New messages go to another node if this one no longer leads.
            self._replica.serving_puts()
            check()
            # A repeated receive gets what the first one takes.
            await self._attempts.ended(wanted.group, wanted.topic, wanted.attempt)
            choices = await self._choose(wanted)
            takes = [each for each in choices if each.take is not None]
            given, is_refused = await self._taken(wanted, takes)
            skipped += [(each.key.queue_id, skip) for each in takes for skip in each.skipped]
            full = next((each.key.queue_id for each in choices if each.is_full), None)
            left_s = end_s - time.monotonic()
            if given or skipped or is_refused or left_s <= 0:
                return PopAnswer(given, skipped, full)
            if not takes:
                name = GroupTopic(wanted.group, wanted.topic)
                await self._polls.wait(name, choices, wanted.expression, self._next_deadline_ms(choices), left_s)

    async def _choose(self, wanted: Wanted) -> list[PopChoice]:
        budget = Budget(wanted.count_max, SIZE_BYTES_MAX)
        choices: list[PopChoice] = []
        takes = 0
        now_ms = self._clock.now_ms()
        queue_ids = self._chooser.repeated(wanted.group, wanted.topic, wanted.queue_ids, wanted.attempt, now_ms)
        for number, queue_id in enumerate(queue_ids, 1):
            key = PopKey(wanted.group, wanted.topic, queue_id)
            try:
                choice = self._chooser.choose_any(
                    key, wanted.expression, wanted.invisible_ms, now_ms, budget, wanted.attempt
                )
            except BaseException:
                self._takes_ended(wanted, [each for each in choices if each.take is not None], None)
                raise
            choices.append(choice)
            takes += choice.take is not None
            if budget.count <= 0 or budget.size_bytes <= 0 or budget.scan <= 0 or takes >= _TAKES_MAX:
                break
            if number % _QUEUES_PER_STEP == 0 and not takes:
                await asyncio.sleep(0)
        return choices

    async def _taken(self, wanted: Wanted, choices: Sequence[PopChoice]) -> tuple[list[Given], bool]:
        """Propose the takes; return the messages that they got, and whether a limit of the state refused some."""
        ops = [each.take for each in choices if each.take is not None]
        if not ops:
            return [], False
        self._attempts.begin(wanted.group, wanted.topic, wanted.attempt)
        results = await self._writer.submit(ops, partial(self._takes_ended, wanted, choices))
        given: list[Given] = []
        is_refused = False
        for choice, op, result in zip(choices, ops, results, strict=True):
            assert isinstance(result, Taken), result
            choice.is_full |= result.is_full
            is_refused |= result.is_full
            for offset, attempt in zip(result.offsets, result.attempts, strict=True):
                if offset not in choice.messages:
                    # Of a repeated take: it could not be read any more.
                    continue
                handle = Handle(
                    result.offsets[0],
                    result.serial,
                    wanted.invisible_ms,
                    op.epoch,
                    self._broker,
                    choice.key.queue_id,
                    offset,
                )
                given.append(Given(choice.messages[offset], encode_handle(handle), attempt))
        self._counts.pop_taken += len(given)
        self._counts.pop_redelivered += sum(each.attempt > 1 for each in given)
        return given, is_refused

    def _takes_ended(self, wanted: Wanted, choices: Sequence[PopChoice], results: Sequence[PopResult] | None) -> None:
        name, is_free = GroupTopic(wanted.group, wanted.topic), False
        self._attempts.end(wanted.group, wanted.topic, wanted.attempt)
        for number, choice in enumerate(choices):
            is_free |= self._chooser.ended(choice, None if results is None else results[number])
        if is_free:
            self._polls.wake(name)
        else:
            self._polls.deadline(name, self._replica.state.pop.time_ms + wanted.invisible_ms)

    def _next_deadline_ms(self, choices: Sequence[PopChoice]) -> int | None:
        queues, now_ms = self._replica.state.pop.queues, self._clock.now_ms()
        found = (queues[each.key].next_deadline_ms(now_ms) for each in choices if each.key in queues)
        return min((each for each in found if each is not None and each < NEVER_MS), default=None)

    async def begin_at_end(self, group: str, topic: str, queue_ids: Sequence[int]) -> None:
        """Set a group without offsets in a topic to the ends of all queues, in one entry if they are not very many.

        All at once: otherwise a queue would begin at its first message after the group has begun in another one.

        Raises:
            RequestFailed, StoreError, DLedgerError: see `receive`.
        """
        for begin in range(0, len(queue_ids), _BEGINS_MAX):
            ops: list[PopOp] = []
            for queue_id in queue_ids[begin : begin + _BEGINS_MAX]:
                low = self._replica.store.min_offset(topic, queue_id)
                end = max(low, self._replica.store.max_offset(topic, queue_id))
                ops.append(Take(group, topic, queue_id, 0, low, end, end, 0))
            await self._writer.submit(ops, _nothing_ended)

    # ----------------------------------------------------------------------------------------------------------- acks

    async def acknowledge(self, group: str, topic: str, handles: Sequence[Handle]) -> list[AckOutcome]:
        """Acknowledge messages; return the outcome for each handle.

        Raises:
            RequestFailed, StoreError, DLedgerError: nothing was acknowledged, unless the error's certainty is unknown;
                a repeated call has the same effect.
        """
        leases: dict[tuple[int, int, int], set[int]] = {}
        currents = {queue_id: self._epoch(group, topic, queue_id) for queue_id in {each.queue_id for each in handles}}
        places = [(each.queue_id, each.epoch_near(currents[each.queue_id]), each.serial) for each in handles]
        for place, each in zip(places, handles, strict=True):
            leases.setdefault(place, set()).add(each.offset)
        ops = [
            Done(group, topic, queue_id, epoch, serial, tuple(sorted(offsets)))
            for (queue_id, epoch, serial), offsets in leases.items()
        ]
        results = await self._writer.submit(ops, partial(self._acks_ended, GroupTopic(group, topic)))
        outcomes: dict[tuple[tuple[int, int, int], int], AckOutcome] = {}
        for place, op, result in zip(leases, ops, results, strict=True):
            assert isinstance(result, tuple), result
            for offset, outcome in zip(op.offsets, result, strict=True):
                assert isinstance(outcome, AckOutcome), outcome
                outcomes[place, offset] = outcome
        counted = list(outcomes.values())
        self._counts.pop_acknowledged += counted.count(AckOutcome.ACKNOWLEDGED)
        self._counts.pop_stale += counted.count(AckOutcome.STALE)
        return [outcomes[place, each.offset] for place, each in zip(places, handles, strict=True)]

    def _acks_ended(self, name: GroupTopic, results: Sequence[PopResult] | None) -> None:
        if results is not None:
            self._polls.wake_full(name)

    async def change_invisible(
        self, group: str, topic: str, handle: Handle, invisible_ms: int, *, is_counted: bool
    ) -> tuple[AckOutcome, str]:
        """Change the time until which a message is invisible, from now on; return the outcome, and the new handle.

        Raises:
            RequestFailed, StoreError, DLedgerError: nothing was changed, unless the error's certainty is unknown.
        """
        epoch = handle.epoch_near(self._epoch(group, topic, handle.queue_id))
        op = Extend(
            group, topic, handle.queue_id, epoch, handle.serial, handle.offset, invisible_ms, is_counted=is_counted
        )
        name = GroupTopic(group, topic)
        (result,) = await self._writer.submit([op], partial(self._extension_ended, name, invisible_ms))
        assert isinstance(result, Extended), result
        if result.outcome is not AckOutcome.ACKNOWLEDGED:
            self._counts.pop_stale += result.outcome is AckOutcome.STALE
            return result.outcome, ""
        changed = handle._replace(serial=result.serial, invisible_ms=invisible_ms, lease_offset=handle.offset)
        return result.outcome, encode_handle(changed)

    def _extension_ended(self, name: GroupTopic, invisible_ms: int, results: Sequence[PopResult] | None) -> None:
        if results is not None:
            self._polls.deadline(name, self._replica.state.pop.time_ms + invisible_ms)

    def _epoch(self, group: str, topic: str, queue_id: int) -> int:
        known = self._replica.state.offset(group, topic, queue_id)
        return 0 if known is None else known.reset_count


def _nothing_ended(_results: Sequence[PopResult] | None) -> None:
    """Do nothing: nothing was reserved."""
