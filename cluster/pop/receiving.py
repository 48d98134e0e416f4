"""Takes messages for consumers, and acknowledges them: each answer follows the commit of its operations.

A message is read before it is taken, so nothing is taken that this node cannot read. If a call is cancelled after its
operation was proposed, its messages stay invisible until their deadline, as after any lost answer.

A message that consumers have had as often as its group allows, or that holds the floor for long, is moved instead of
given (`cluster.pop.moving`). Those in the retry topic of group and topic are received as messages of the topic.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from cluster.pop.attempts import AttemptsUnderWay
from cluster.pop.choosing import Budget, PopChoice
from cluster.pop.clock import LogClock
from cluster.pop.handles import Handle, encode_handle, encode_handles
from cluster.pop.moving import MoveCounts, Moves, had_before, pop_retry_topic
from cluster.pop.ordered_choosing import OrderedChooser
from cluster.pop.outage import Outage
from cluster.pop.polls import GroupTopic, Polls
from cluster.pop.writing import PopWriter
from cluster.state.pop.ops import AckOutcome, Done, Extend, Extended, PopOp, PopResult, Take, Taken
from cluster.state.pop.ordered_take import NO_ATTEMPT
from cluster.state.pop.queue import NEVER_MS
from cluster.state.pop.state import PopKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cluster.pop.moving import Move
    from cluster.replica.port import Replica
    from store.access.skipped_messages import Skip
    from store.model.message import StoredMessage

COUNT_MAX: Final = 256
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
        is_peek: whether the messages are only looked at.
    """

    group: str
    topic: str
    queue_ids: Sequence[int]
    expression: str
    count_max: int
    invisible_ms: int
    wait_s: float
    attempt: int = NO_ATTEMPT
    is_peek: bool = False


class Given(NamedTuple):
    """A message for a consumer; `attempt`: how often consumers have had it, this time included."""

    message: StoredMessage
    handle: str
    attempt: int


class PopAnswer(NamedTuple):
    """The answer to a consumer.

    Attributes:
        given: the messages; their handles are empty if they are only looked at.
        skipped: messages that were passed over although they may match, by queue.
        full_queue: a queue that has messages, but too many in flight; None: there is none.
    """

    given: Sequence[Given] = ()
    skipped: Sequence[tuple[PopKey, Skip]] = ()
    full_queue: int | None = None


class PopCounts(MoveCounts, Protocol):
    """Counters: messages that were taken, that had been taken before, acknowledged ones, and stale handles."""

    pop_taken: int
    pop_redelivered: int
    pop_acknowledged: int
    pop_stale: int


class _Lease(NamedTuple):
    topic: str
    queue_id: int
    epoch: int
    serial: int


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
        self._writer = PopWriter(replica, self._clock, Outage(replica, time.monotonic))
        self._polls = Polls(replica.store, self._lease_now_ms)
        self._moves = Moves(replica, counts, lambda group, topic: self._polls.wake(GroupTopic(group, topic)))
        self._chooser = OrderedChooser(replica, self._moves.moving)
        self._attempts = AttemptsUnderWay()

    async def stop(self) -> None:
        """Cancel what is being proposed."""
        await self._moves.stop()
        await self._writer.stop()

    def _lease_now_ms(self) -> int:
        return self._clock.now_ms() - self._replica.state.pop.pause_ms

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
        skipped: list[tuple[PopKey, Skip]] = []
        while True:
            # New messages go to another node if this one no longer leads.
            self._replica.serving_puts()
            check()
            self._moves.check_room()
            # A repeated receive gets what the first one takes.
            await self._attempts.ended(wanted.group, wanted.topic, wanted.attempt)
            choices = await self._choose(wanted)
            takes = [each for each in choices if each.take is not None]
            seen = [Given(message, "", 0) for each in takes for message in each.messages.values()]
            if wanted.is_peek and seen:
                self._takes_ended(wanted, takes, None)
                return PopAnswer(seen)
            given, is_refused = await self._taken(wanted, takes)
            skipped += [(each.key, skip) for each in takes for skip in each.skipped]
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
        now_ms = self._lease_now_ms()
        keys = self._chooser.repeated(list(self._keys(wanted)), wanted.attempt, now_ms)
        for number, (key, origin) in enumerate(keys, 1):
            try:
                choice = self._chooser.choose_any(
                    key, wanted.expression, wanted.invisible_ms, now_ms, budget, origin, wanted.attempt
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

    def _keys(self, wanted: Wanted) -> Iterator[tuple[PopKey, str]]:
        """Yield the queues to look at, and for that of the retry topic the topic of its messages."""
        retry = pop_retry_topic(wanted.group, wanted.topic)
        known = None if retry is None else self._replica.state.topics.get(retry)
        if known is not None and known.is_readable:
            yield PopKey(wanted.group, known.name, 0), wanted.topic
        for queue_id in wanted.queue_ids:
            yield PopKey(wanted.group, wanted.topic, queue_id), ""

    async def _taken(self, wanted: Wanted, choices: Sequence[PopChoice]) -> tuple[list[Given], bool]:
        """Propose the takes; return the messages that they got, and whether a limit of the state refused some."""
        ops = [each.take for each in choices if each.take is not None]
        if not ops:
            return [], False
        self._attempts.begin(wanted.group, wanted.topic, wanted.attempt)
        given: list[Given] = []
        results = await self._writer.submit(ops, partial(self._takes_applied, wanted, choices, given))
        is_refused = any(isinstance(each, Taken) and each.is_full for each in results)
        self._counts.pop_taken += len(given)
        self._counts.pop_redelivered += sum(each.attempt > 1 for each in given)
        return given, is_refused

    def _takes_applied(
        self, wanted: Wanted, choices: Sequence[PopChoice], given: list[Given], results: Sequence[PopResult] | None
    ) -> None:
        """Give and move what takes got, before their reservations are released.

        A lease may have ended before its take is applied. If the move began only after the release, a consumer that
        asks between the two would be given the message, or it would be moved twice.
        """
        if results is not None:
            moves: list[Move] = []
            for choice, result in zip(choices, results, strict=True):
                assert isinstance(result, Taken), result
                assert choice.take is not None
                choice.is_full |= result.is_full
                self._give(wanted, choice, choice.take.epoch, result, given, moves)
            if moves:
                self._moves.begin(moves, wanted.topic)
        self._takes_ended(wanted, choices, results)

    def _give(
        self, wanted: Wanted, choice: PopChoice, epoch: int, taken: Taken, given: list[Given], moves: list[Move]
    ) -> None:
        """Append each message of a take to those that are given, or to those that are moved instead."""
        if choice.is_ordered:
            # Of a repeated take: what cannot be read any more, or is moved, is left out.
            pairs = [each for each in zip(taken.offsets, taken.attempts, strict=True) if each[0] in choice.messages]
            taken = taken._replace(offsets=[each for each, _ in pairs], attempts=[each for _, each in pairs])
        if not taken.offsets:
            return
        key, is_retry, first = choice.key, bool(choice.origin), taken.offsets[0]
        lease = Handle(first, taken.serial, wanted.invisible_ms, epoch, is_retry, self._broker, key.queue_id, first)
        handles = encode_handles(lease, taken.offsets)
        messages = map(choice.messages.__getitem__, taken.offsets)
        if not is_retry and max(taken.attempts) == 1:
            given += map(Given, messages, handles, taken.attempts)
            return
        for message, handle, attempts in zip(messages, handles, taken.attempts, strict=True):
            attempt = attempts
            if attempts > 1 or is_retry:
                move = self._moves.move_of(choice, message, taken.serial, attempts)
                if move is not None:
                    moves.append(move)
                    continue
                attempt += had_before(message)
            given.append(Given(message, handle, attempt))

    def _takes_ended(self, wanted: Wanted, choices: Sequence[PopChoice], results: Sequence[PopResult] | None) -> None:
        name, is_free = GroupTopic(wanted.group, wanted.topic), False
        self._attempts.end(wanted.group, wanted.topic, wanted.attempt)
        for number, choice in enumerate(choices):
            is_free |= self._chooser.ended(choice, None if results is None else results[number])
        if is_free:
            self._polls.wake(name)
        else:
            self._polls.deadline(name, self._replica.state.pop.lease_time_ms + wanted.invisible_ms)

    def _next_deadline_ms(self, choices: Sequence[PopChoice]) -> int | None:
        queues, now_ms = self._replica.state.pop.queues, self._lease_now_ms()
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
        # By what handles say of their lease.
        known = {each[:-1]: each for each in handles}
        lease_of = {head: self._lease(group, topic, each) for head, each in known.items()}
        leases: dict[_Lease, list[int]] = {}
        for each in handles:
            leases.setdefault(lease_of[each[:-1]], []).append(each.offset)
        ops = [Done(group, *lease, tuple(sorted(set(offsets)))) for lease, offsets in leases.items()]
        queues = {PopKey(group, lease.topic, lease.queue_id) for lease in leases}
        results = await self._writer.submit(ops, partial(self._acks_ended, GroupTopic(group, topic), queues))
        outcomes: dict[_Lease, dict[int, AckOutcome]] = {}
        for lease, op, result in zip(leases, ops, results, strict=True):
            assert not isinstance(result, Taken | Extended), result
            outcomes[lease] = dict(zip(op.offsets, result, strict=True))
            self._counts.pop_acknowledged += result.count(AckOutcome.ACKNOWLEDGED)
            self._counts.pop_stale += result.count(AckOutcome.STALE)
        return [outcomes[lease_of[each[:-1]]][each.offset] for each in handles]

    def _acks_ended(self, name: GroupTopic, queues: set[PopKey], results: Sequence[PopResult] | None) -> None:
        if results is not None:
            self._polls.wake_acknowledged(name, queues)

    async def change_invisible(
        self, group: str, topic: str, handle: Handle, invisible_ms: int, *, is_counted: bool
    ) -> tuple[AckOutcome, str]:
        """Change the time until which a message is invisible, from now on; return the outcome, and the new handle.

        Raises:
            RequestFailed, StoreError, DLedgerError: nothing was changed, unless the error's certainty is unknown.
        """
        lease = self._lease(group, topic, handle)
        op = Extend(group, *lease, handle.offset, invisible_ms, is_counted=is_counted)
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
            self._polls.deadline(name, self._replica.state.pop.lease_time_ms + invisible_ms)

    def _lease(self, group: str, topic: str, handle: Handle) -> _Lease:
        """Return the lease that a handle means."""
        if handle.is_retry:
            topic = pop_retry_topic(group, topic) or topic
        known = self._replica.state.offset(group, topic, handle.queue_id)
        epoch = handle.epoch_near(0 if known is None else known.reset_count)
        return _Lease(topic, handle.queue_id, epoch, handle.serial)


def _nothing_ended(_results: Sequence[PopResult] | None) -> None:
    """Do nothing: nothing was reserved."""
