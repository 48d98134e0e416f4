"""Moves messages out of what is in flight: dead letters, and those that hold the floor of their queue for long.

| condition, the first that applies to a message that is taken again | where its copy is put |
| --- | --- |
| the topic is one of dead letters | nowhere: it is given |
| consumers have had it as often as the group allows (`cluster.retries.rule`) | dead letters of the group |
| the cursor is a million messages ahead of it | retry topic of group and topic |
| the log's last record is an hour younger, and consumers have had it twice | retry topic of group and topic |

The message is taken first, by a lease of the leader itself: so no consumer can acknowledge it any more, and none has
it. Then its copy is put, whose effect is that the message is done (`cluster.state.effects.PopMoved`): there is no
moment at which it is in both places, or in none. While a put is pending, or its outcome unknown, the message is not
chosen again, also after the end of its lease; another leader has applied the put, or it will never be in the log. A
move that fails is tried again when the lease has ended.

A message in the retry topic of group and topic is received as one of the topic; if it is old again, it is put to the
end of the same topic, before retention deletes it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

from cluster.delivery.own_puts import OwnPuts
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import TopicConfig
from cluster.retries.copies import moved_copy
from cluster.retries.rule import Destination, destination_of
from cluster.state.commands import SetTopic
from cluster.state.effects import PopMoved
from cluster.state.pop.queues import PopKey
from cluster.state.verdicts import CommandVerdict
from dledger.errors import DLedgerError
from store.errors import Certainty, IllegalMessage, StoreError
from store.model.topics import DLQ_PREFIX, RETRY_PREFIX, RETRY_TOPIC_LENGTH_MAX, is_retry_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from cluster.pop.choosing import PopChoice
    from cluster.replica.port import Replica
    from commitlog.record.record import Record
    from store.model.message import Message, StoredMessage

# When a message that is taken again holds the floor for too long.
DISTANCE_MAX: Final = 1_000_000
AGE_MS_MAX: Final = 60 * 60 * 1_000
HAD_MIN: Final = 2
# Bytes of records whose copies are pending.
PENDING_SIZE_BYTES_MAX: Final = 16 << 20
# Until it is examined again whether a put with an unknown outcome is decided.
_PAUSE_S: Final = 0.5

logger = logging.getLogger(__name__)


def pop_retry_topic(group: str, topic: str) -> str | None:
    """Return the retry topic of a pop group and a topic; None: it has none.

    Two pairs of group and topic may have the same one: each message has its topic as the property RETRY_TOPIC.

    Source: RocketMQ `KeyBuilder.buildPopRetryTopicV1`.
    """
    name = f"{RETRY_PREFIX}{group}_{topic}"
    return None if is_retry_topic(topic) or len(name) > RETRY_TOPIC_LENGTH_MAX else name


class Move(NamedTuple):
    """A message to move.

    Attributes:
        effect: of its copy.
        destination: where it goes.
        copy: the message to put.
        size_bytes: of its record.
    """

    effect: PopMoved
    destination: Destination
    copy: Message
    size_bytes: int


class MoveCounts(Protocol):
    """Counters: messages that were moved to a retry topic, and to dead letters."""

    pop_moved: int
    pop_dead: int

    def count_dead_letter(self, group: str) -> None:
        """Count a dead letter of a group."""
        ...


class Moves:
    """The moves of one node.

    Args:
        replica: the node's.
        counts: of the metrics.
        moved: called with group and topic after moves.
    """

    def __init__(self, replica: Replica, counts: MoveCounts, moved: Callable[[str, str], None]) -> None:
        self._replica = replica
        self._counts = counts
        self._moved = moved
        self._moving: dict[PopKey, set[int]] = {}
        self._size_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def moving(self, key: PopKey) -> Container[int]:
        """Return the offsets in a queue that must not be chosen: their copies may still be put."""
        return self._moving.get(key, ())

    def check_room(self) -> None:
        """Raise if too much is being moved for another receive.

        Raises:
            RequestFailed: LEADER_PENDING_FULL; nothing was taken.
        """
        if self._size_bytes >= PENDING_SIZE_BYTES_MAX:
            detail = f"{self._size_bytes} bytes of dead letters and retries wait to be replicated"
            raise RequestFailed(Reason.LEADER_PENDING_FULL, detail)

    def move_of(self, choice: PopChoice, message: StoredMessage, serial: int, attempts: int) -> Move | None:
        """Return the move of a message that was just taken; None: it is given to the consumer.

        Args:
            choice: of its queue.
            message: the message.
            serial: of the new lease.
            attempts: number of takes in this queue, this one included.
        """
        key = choice.key
        had = attempts - 1 + had_before(message)
        destination = self._destination(choice, message, attempts - 1, had)
        if destination is None:
            return None
        known = self._replica.state.topics.get(destination.topic)
        if known is not None and not known.is_writable:
            return None
        effect = PopMoved(key.group, key.topic, key.queue_id, message.queue_offset, serial)
        try:
            copy = moved_copy(cast("Record", message), effect, destination, had)
        except IllegalMessage as error:
            logger.warning("pop_not_moved group=%s topic=%s: %s", key.group, key.topic, error)
            return None
        return Move(effect, destination, copy, message.size)

    def _destination(self, choice: PopChoice, message: StoredMessage, had_here: int, had: int) -> Destination | None:
        key, state = choice.key, self._replica.state
        group = state.groups.get(key.group)
        if group is None or had < 1 or key.topic.startswith(DLQ_PREFIX):
            return None
        dead = destination_of(group, had - 1, maximum=None, level=1)
        if dead.is_dead:
            return dead
        if choice.is_ordered:
            # Later messages of its message group would overtake it.
            return None
        retry = pop_retry_topic(key.group, choice.origin or key.topic)
        queue = state.pop.queues.get(key)
        if retry is None or queue is None:
            return None
        is_far = had_here >= 1 and queue.cursor - message.queue_offset > DISTANCE_MAX
        # By the clock of the log's timestamps, as for retention.
        age_ms = self._replica.store.log.last_store_timestamp - message.store_timestamp
        is_old = had_here >= HAD_MIN and age_ms > AGE_MS_MAX
        return Destination(retry, 1, 0) if is_far or is_old else None

    # ----------------------------------------------------------------------------------------------------------- puts

    def begin(self, moves: Sequence[Move], topic: str) -> None:
        """Put copies, in a task.

        Args:
            moves: of one group.
            topic: that its consumers receive from.
        """
        for each in moves:
            self._moving.setdefault(_key_of(each.effect), set()).add(each.effect.offset)
            self._size_bytes += each.size_bytes
        task = asyncio.get_running_loop().create_task(self._run(moves, topic))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, moves: Sequence[Move], topic: str) -> None:
        group = moves[0].effect.group
        try:
            for destination in {each.destination for each in moves}:
                await self._create(destination)
            await self._put(moves)
        except (RequestFailed, StoreError, DLedgerError) as error:
            logger.warning("pop_not_moved group=%s topic=%s error=%r", group, topic, str(error))
        finally:
            for each in moves:
                self._size_bytes -= each.size_bytes
                key = _key_of(each.effect)
                self._moving[key].discard(each.effect.offset)
                if not self._moving[key]:
                    del self._moving[key]
            self._moved(group, topic)

    async def _create(self, destination: Destination) -> None:
        if destination.topic in self._replica.state.topics:
            return
        topic = TopicConfig(destination.topic, destination.queues, destination.queues)
        applied = await self._replica.change(SetTopic(topic, is_new=True))
        if not applied.is_done and applied.verdict is not CommandVerdict.TOPIC_EXISTS:
            raise RequestFailed(Reason[applied.verdict.name], applied.detail)

    async def _put(self, moves: Sequence[Move]) -> None:
        """Put the copies; return when it is known whether they are put.

        Raises:
            RequestFailed, StoreError, DLedgerError: they are not.
        """
        puts, term = OwnPuts(self._replica), self._replica.status().term
        try:
            await puts.put([each.copy for each in moves])
        except RequestFailed as failure:
            if failure.certainty is not Certainty.UNKNOWN:
                raise
        finally:
            await self._decided(puts, term)
        for each in moves:
            self._count(each)

    def _count(self, move: Move) -> None:
        queue = self._replica.state.pop.queues.get(_key_of(move.effect))
        if queue is not None and queue.row_of(move.effect.offset) >= 0:
            # The outcome was unknown, and it is not put.
            return
        if move.destination.is_dead:
            self._counts.pop_dead += 1
            self._counts.count_dead_letter(move.effect.group)
        else:
            self._counts.pop_moved += 1

    async def _decided(self, puts: OwnPuts, term: int) -> None:
        """Wait until the puts of a term are applied, or never will be: this node serves no later term before."""
        while self._replica.status().term == term:
            try:
                await puts.decided()
            except (RequestFailed, StoreError, DLedgerError):
                await asyncio.sleep(_PAUSE_S)
            else:
                return

    async def stop(self) -> None:
        """Cancel what is pending."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


def _key_of(effect: PopMoved) -> PopKey:
    return PopKey(effect.group, effect.topic, effect.queue_id)


def had_before(message: StoredMessage) -> int:
    """Return how often consumers had a message before it was put to its retry topic; 0 in other topics."""
    return cast("Record", message).reconsume_times if message.topic.startswith(RETRY_PREFIX) else 0
