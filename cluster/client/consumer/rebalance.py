"""Assigns the queues of a group's topics to its consumers, and acquires and revokes queues as the assignment changes.

Every consumer computes the same assignment from the ordered queues and the ordered members, as the first broker of the
topic reports them. The lock of a queue at its broker controls the handover: the consumer that loses the queue stops
reading, lets the program finish the delivered messages, commits, and unlocks; the new one waits for the lock. So a
rebalance repeats no message. With `is_orderly` nothing is delivered without the lock; otherwise a consumer waits for
the lock for at most `handover_limit_s`, and continues to read while a new leader does not know its lock yet.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from cluster.client.consumer.allocation import ALLOCATIONS
from cluster.client.consumer.group_member import GroupMember
from cluster.client.consumer.group_offsets import ConsumerLocks, GroupOffsets
from cluster.client.consumer.queue_reader import QueueReader, ReaderRules
from cluster.client.consumer.repeated_warnings import RepeatedWarnings
from cluster.client.consumer.unread_topics import UnreadTopics
from cluster.client.routing.queue_choice import BrokerQueue, readable_queues
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.wire.filters import filter_fields
from cluster.v1.broker_pb2 import JoinGroupRequest, Subscription
from dledger.earliest_timer import EarliestTimer
from store.access.skipped_messages import SkipCause
from store.model.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from cluster.client.consumer.options import ConsumerOptions
    from cluster.client.routing.connection import BrokerConnection
    from cluster.protocol.skipped_messages import SkippedMessages

logger = logging.getLogger(__name__)

# At a new leader all consumers lock their queues again at the same time; a consumer that acquires a queue gives the
# consumer that still reads it this much time to lock it first.
_HANDOVER_S = 0.3
# A consumer that waits for a queue to be released requests the lock again after half of the time for which it has
# waited so far, within these bounds.
_LOCK_RETRY_S = (0.1, 1.0)
# The consumer that acquires a queue waits this much longer than the one that releases it.
_HANDOVER_MARGIN_S = 1.0
# The retry interval for a lock that another consumer still holds, and for a topic that is not known yet.
_RETRY_S = 1.0
# The interval at which a retry topic that does not exist is looked up: its first message has a delay of ten seconds.
_RETRY_TOPIC_S = 5.0
# A stream is reopened if it was silent for this long although its queue has more messages.
SILENCE_S = 15.0


class Rebalancer:
    """The queues that one consumer reads. For use by one event loop.

    Args:
        group: name of the group.
        client_id: id of the consumer in the group.
        subscriptions: tags expressions by topic, or `Sql92`.
        options: settings of the consumer.
        connection: routes and nodes.
        on_ready: called with a reader that has messages to take, or a failure to report.
        on_refused: called when the consumer cannot join the group.
        on_failure: called with the reason why nothing of a topic is read, once per `options.no_route_limit_s`.

    Attributes:
        readers: the readers by queue.
        wanted: set when queues should be reassigned.
    """

    def __init__(
        self,
        group: str,
        client_id: str,
        subscriptions: Mapping[str, str],
        options: ConsumerOptions,
        connection: BrokerConnection,
        on_ready: Callable[[QueueReader], None],
        on_refused: Callable[[RequestFailed], None],
        on_failure: Callable[[RequestFailed], None],
    ) -> None:
        self.readers: dict[BrokerQueue, QueueReader] = {}
        self.wanted = asyncio.Event()
        self._client_id = client_id
        self._subscriptions = subscriptions
        self._options = options
        self._connection = connection
        self._on_ready = on_ready
        self._on_refused = on_refused
        self._is_shared = options.mode == "cluster"
        self._members: dict[str, GroupMember] = {}
        self._join = JoinGroupRequest(
            group=group,
            client_id=client_id,
            instance=secrets.randbits(63),
            subscriptions=[Subscription(topic=topic, **filter_fields(tags)) for topic, tags in subscriptions.items()],
        )
        self.offsets = GroupOffsets(group, connection.nodes, options.start, is_kept=self._is_shared)
        self._locks = ConsumerLocks(group, client_id, connection.nodes, is_kept=options.is_orderly)
        self._leaving: list[QueueReader] = []
        self._warnings = RepeatedWarnings(logger)
        self._unread = UnreadTopics(options.no_route_limit_s, on_failure)
        self._retry = EarliestTimer(self.wanted.set)
        # Queues that another consumer holds, each with the start of the wait for it on the monotonic clock.
        self._awaited: dict[BrokerQueue, float] = {}
        # Locks that were requested and not released, whether or not they were granted.
        self._asked_locks: set[BrokerQueue] = set()
        # The number of memberships that ended: locks granted during one may have ended with it.
        self._lefts = 0
        self._rules = ReaderRules(
            group,
            options.prefetch_messages,
            options.prefetch_size_bytes,
            is_locked=options.is_orderly,
            is_member=self._is_shared,
            on_skipped=options.on_skipped or _log_skipped,
        )

    # ---------------------------------------------------------------------------------------------------- assignment

    async def balance(self) -> None:
        """Reassign queues: revoke those now assigned to other members, acquire those assigned to this one."""
        mine: dict[BrokerQueue, str] = {}
        for topic, tags in self._subscriptions.items():
            for queue in await self._queues_of(topic):
                mine[queue] = tags
        for queue, reader in list(self.readers.items()):
            if queue not in mine or reader.failure is not None:
                await self._revoke(reader)
        await self.end_revoked()
        if self._is_shared and any(not reader.locked_until for reader in self.readers.values()):
            await self.renew_locks()
        new = [queue for queue in mine if queue not in self.readers]
        self._awaited = {queue: since_s for queue, since_s in self._awaited.items() if queue in mine}
        if new:
            await self._acquire(new, mine)
        self._unread.report(self.readers)

    def _left(self, broker: str) -> None:
        """Deliver nothing of a broker's queues until their locks are held again: they ended with the membership."""
        self._lefts += 1
        for reader in self.readers.values():
            if reader.queue.broker == broker:
                reader.locked_until = 0.0

    async def _lock(self, queues: Sequence[BrokerQueue]) -> dict[BrokerQueue, float]:
        """Request locks; return the end of each on the monotonic clock; 0: another consumer has it."""
        began, lefts = time.monotonic(), self._lefts
        held = await self._locks.lock(queues)
        if lefts != self._lefts:
            return {}
        return {queue: began + held_s if held_s else 0.0 for queue, held_s in held.items()}

    async def _queues_of(self, topic: str) -> Sequence[BrokerQueue]:
        """Return this consumer's queues of a topic; its current ones while the assignment is unknown."""
        held = [queue for queue in self.readers if queue.topic == topic]
        try:
            routes = await self._connection.find(topic)
        except RequestFailed as failure:
            if failure.reason is Reason.UNKNOWN_TOPIC and topic.startswith(RETRY_PREFIX):
                # The broker creates it for the first returned message.
                self._rebalance_soon(_RETRY_TOPIC_S)
            elif not held:
                # Retry soon if the failure may end without an operator, otherwise at the usual interval.
                if failure.is_worth_trying:
                    self._rebalance_soon()
                self._unread.failed(topic, failure)
            return held
        queues = readable_queues(routes)
        if not self._is_shared:
            return queues
        brokers = sorted({queue.broker for queue in queues})
        for broker in brokers:
            if broker not in self._members:
                self._members[broker] = GroupMember(
                    broker, self._connection.nodes, self._join, self.wanted.set, self._left, self._on_refused
                )
        for broker in brokers:
            client_ids = self._members[broker].client_ids
            if self._client_id in client_ids:
                self._unread.read(topic)
                return ALLOCATIONS[self._options.allocation](self._client_id, client_ids, queues)
        if not held:
            refusals = [str(self._members[broker].failure or "no answer yet") for broker in brokers]
            text = f"no broker admits the consumer to its group: {'; '.join(refusals) or 'none has a readable queue'}"
            self._unread.failed(topic, RequestFailed(Reason.NOT_REACHED, text), is_logged=False)
        return held

    def _rebalance_soon(self, delay_s: float = _RETRY_S) -> None:
        """Reassign a little later: once, after the shortest requested delay."""
        self._retry.after(delay_s)

    async def _acquire(self, queues: Sequence[BrokerQueue], tags: Mapping[BrokerQueue, str]) -> None:
        if any(len(member.client_ids) > 1 for member in self._members.values()):
            await asyncio.sleep(_HANDOVER_S)
        by_broker: dict[str, list[BrokerQueue]] = defaultdict(list)
        for queue in queues:
            by_broker[queue.broker].append(queue)
        # In parallel: a broker that does not answer must not delay the queues of the others.
        await asyncio.gather(*(self._acquire_at(broker, mine, tags) for broker, mine in by_broker.items()))

    async def _acquire_at(self, broker: str, queues: Sequence[BrokerQueue], tags: Mapping[BrokerQueue, str]) -> None:
        """Acquire queues of one broker."""
        locked_until: dict[BrokerQueue, float] = {}
        if self._is_shared:
            leaving = {reader.queue for reader in self._leaving}
            self._asked_locks.update(queues)
            held = await self._lock([queue for queue in queues if queue not in leaving])
            locked_until = {queue: until for queue, until in held.items() if until}
            queues = self._free(queues, locked_until)
        by_topic: dict[str, list[BrokerQueue]] = defaultdict(list)
        for queue in queues:
            by_topic[queue.topic].append(queue)
        for topic, together in by_topic.items():
            try:
                beginnings = await self.offsets.beginnings(broker, topic, [queue.queue_id for queue in together])
            except RequestFailed as failure:
                line = f"queues_not_taken_over broker={broker} topic={topic}: {failure}"
                self._warnings.failed((broker, topic), line)
                self._unread.failed(topic, failure, is_logged=False)
                self._rebalance_soon()
                continue
            self._warnings.succeeded((broker, topic))
            for queue in together:
                begin = beginnings.get(queue.queue_id)
                if begin is None:
                    # The topic was recreated with fewer queues, and the route is older.
                    self._rebalance_soon()
                    continue
                reader = QueueReader(
                    queue,
                    tags[queue],
                    begin.offset,
                    begin.reset_count,
                    self._connection.nodes,
                    self._rules,
                    self._on_ready,
                )
                reader.locked_until = locked_until.get(queue, 0.0)
                self.readers[queue] = reader

    def _free(self, queues: Sequence[BrokerQueue], locked: Collection[BrokerQueue]) -> list[BrokerQueue]:
        """Return the queues that may be read now: locked ones, and without `is_orderly` those whose wait is over."""
        now = time.monotonic()
        limit_s = self._options.handover_limit_s + _HANDOVER_MARGIN_S
        free = []
        for queue in queues:
            since_s = self._awaited.setdefault(queue, now)
            if queue in locked or (not self._options.is_orderly and now - since_s >= limit_s):
                del self._awaited[queue]
                free.append(queue)
        awaited = [self._awaited[queue] for queue in queues if queue in self._awaited]
        if awaited:
            least_s, most_s = _LOCK_RETRY_S
            self._rebalance_soon(min(max((now - max(awaited)) / 2, least_s), most_s))
        return free

    async def _revoke(self, reader: QueueReader) -> None:
        del self.readers[reader.queue]
        if not self._options.is_orderly:
            # The program may finish delivered messages until then.
            reader.locked_until = time.monotonic() + self._options.handover_limit_s
        # Before the wait, so that `close` commits the processed messages even if this task is cancelled.
        self._leaving.append(reader)
        await reader.stop()
        # Wake callers that wait until its messages may be delivered again: they never will be.
        self._on_ready(reader)

    async def end_revoked(self) -> None:
        """Commit the offsets of revoked queues; release their locks once none of their messages is in work."""
        leaving = tuple(self._leaving)
        if not leaving:
            return
        await self.offsets.commit(leaving)
        now = time.monotonic()
        ended = [each for each in leaving if not self._is_shared or _is_idle(each, now)]
        self._leaving = [each for each in self._leaving if each not in ended]
        if self._is_shared:
            queues = [each.queue for each in ended]
            await self._locks.unlock(queues)
            self._asked_locks.difference_update(queues)

    # ------------------------------------------------------------------------------------------------ periodic work

    async def commit(self) -> None:
        """Commit processed messages; a queue whose offset was reset since is read again from there."""
        await self.end_revoked()
        for reader in await self.offsets.commit(list(self.readers.values())):
            if self.readers.get(reader.queue) is reader:
                del self.readers[reader.queue]
                await reader.stop()
                self.wanted.set()

    @property
    def is_revoking(self) -> bool:
        """Whether another consumer may wait for a queue of this one."""
        return bool(self._leaving)

    async def renew_locks(self) -> None:
        """Renew the locks; with `is_orderly`, queues whose lock went to another consumer are revoked."""
        locked_until = await self._lock([*self.readers, *(reader.queue for reader in self._leaving)])
        for queue, reader in list(self.readers.items()):
            if locked_until.get(queue):
                reader.locked_until = locked_until[queue]
                self._on_ready(reader)
            elif queue in locked_until and self._options.is_orderly:
                logger.warning("lock_lost queue=%s", queue)
                await self._revoke(reader)
                self.wanted.set()
            elif queue not in locked_until and not reader.locked_until:
                self._rebalance_soon()

    def follow_leaders(self) -> None:
        """Reopen streams whose node is no longer the presumed leader."""
        leader = self._connection.nodes.leader
        for reader in self.readers.values():
            if reader.address not in ("", leader(reader.queue.broker)):
                reader.reopen()
        for member in self._members.values():
            if member.address not in ("", leader(member.broker)):
                member.reopen()

    async def reopen_silent(self) -> None:
        """Reopen streams that were silent although their queue has more messages: their connection is dead."""
        silent: dict[tuple[str, str], list[QueueReader]] = defaultdict(list)
        for reader in self.readers.values():
            if reader.silent_s >= SILENCE_S:
                silent[reader.queue.broker, reader.queue.topic].append(reader)
        for (broker, topic), readers in silent.items():
            try:
                ends = await self.offsets.ends(broker, topic, [reader.queue.queue_id for reader in readers])
            except RequestFailed as failure:
                if failure.reason in (Reason.ANSWER_LATE, Reason.NOT_REACHED):
                    for reader in readers:
                        reader.reopen()
                continue
            for reader in readers:
                if ends.get(reader.queue.queue_id, 0) > reader.next_offset:
                    reader.reopen()

    async def close(self) -> None:
        """Commit, unlock all queues, and leave the group."""
        self._retry.cancel()
        for reader in list(self.readers.values()):
            await self._revoke(reader)
        await self.offsets.commit(self._leaving)
        await self._locks.unlock(self._asked_locks)
        for member in self._members.values():
            await member.stop()


def _is_idle(reader: QueueReader, now_s: float) -> bool:
    """Return whether no message of a revoked queue is in work, or its handover limit has passed."""
    return reader.progress.is_settled or now_s >= reader.locked_until


def _log_skipped(skipped: SkippedMessages) -> None:
    """Log skipped messages; used if the program has no callback for them."""
    level = logging.ERROR if skipped.cause is SkipCause.DAMAGED else logging.WARNING
    logger.log(level, "messages_skipped %s", skipped)
