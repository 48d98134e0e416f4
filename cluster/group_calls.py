"""How far groups have consumed, who is in them, and which queues their consumers hold for themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, cast

from cluster.broker_commands import CommitOffsets, QueueOffset, ResetOffsets
from cluster.broker_core import DONE, BrokerCore
from cluster.broker_state import CommitOutcome
from cluster.errors import Reason, RequestFailed
from cluster.group_members import SILENCE_MS_MAX, GroupMembers, Member
from cluster.message_columns import check_lengths
from cluster.queue_locks import LOCK_MS, QueueLocks
from cluster.replica import Standing
from cluster.v1 import broker_pb2 as pb
from dledger.errors import DLedgerError
from store.errors import IllegalRequest, StoreError
from store.message import QueueKey
from store.store_upkeep import monotonic_ms

NO_OFFSET: Final = -1
LOCK_QUEUES_MAX: Final = 4_096
# How long the consumers of a group have to find a new leader, before it says who is in the group and gives out locks.
GATHER_MS: Final = 3_000
_MS_PER_S: Final = 1000


class GroupCalls:
    """The calls of consumers about their groups."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self.members = GroupMembers()
        self._locks = QueueLocks()
        self._stays: set[_Stay] = set()
        self._reign = _Reign(core.replica.standing())
        core.replica.when_standing_changes(self._standing_changed)

    def _standing_changed(self) -> None:
        """Give up what another leader has to say now: who is in which group, and who holds which queues."""
        standing = self._core.replica.standing()
        if self._reign.is_of(standing):
            return
        self._reign = _Reign(standing)
        # Those of an earlier reign may have been given away elsewhere.
        self._locks.clear()
        for stay in self._stays:
            stay.news.set()

    def gathering_ms(self, group: str) -> int:
        """Return how long this leader still waits for consumers of a group, because it had some in an earlier reign.

        Else the first one that comes would take the others' queues, which they are reading still.
        """
        left_ms = self._reign.began_ms + GATHER_MS - monotonic_ms()
        has_consumed = any(True for _ in self._core.replica.state.offsets(group))
        return left_ms if left_ms > 0 and has_consumed else 0

    # ---------------------------------------------------------------------------------------------------- offsets

    async def commit(self, request: pb.CommitOffsetRequest) -> pb.CommitOffsetResponse:
        """Keep how far a group has consumed.

        Raises:
            StoreError, DLedgerError: nothing was kept, unless the error leaves that open.
        """
        offsets = self._offsets_of(request.topic, request.queue_ids, request.offsets, request.reset_counts)
        await self._core.check_current()
        topic = self._core.known_topic(request.topic)
        for each in offsets:
            self._core.check_queue(topic, each.queue_id, max(topic.read_queues, topic.write_queues))
            await self._check_not_beyond_end(each)
        await self._core.known_group(request.group)
        outcomes = await self._change(CommitOffsets(request.group, tuple(offsets)))
        numbers = cast("list[pb.CommitOutcome.ValueType]", [outcomes[each.queue_id] for each in offsets])
        return pb.CommitOffsetResponse(answer=DONE, outcomes=numbers)

    async def _check_not_beyond_end(self, offset: QueueOffset) -> None:
        """Raise unless the queue reaches to the offset, also with what was acknowledged a moment ago.

        Raises:
            RequestFailed: OFFSET_BEYOND_END.
            StoreError, DLedgerError: see `Replica.confirm`.
        """
        topic, queue_id, store = offset.topic, offset.queue_id, self._core.replica.store
        if offset.offset > store.max_offset(topic, queue_id):
            await self._core.confirm()
            end = store.max_offset(topic, queue_id)
            if offset.offset > end:
                message = f"queue {queue_id} of topic {topic!r} ends at {end}, found {offset.offset}. Nothing was kept"
                raise RequestFailed(Reason.OFFSET_BEYOND_END, message)

    async def reset(self, request: pb.ResetOffsetRequest) -> pb.ChangeResponse:
        """Set offsets of a group, forwards or back.

        Raises:
            StoreError, DLedgerError: nothing was set, unless the error leaves that open.
        """
        await self._core.check_current()
        await self._core.known_group(request.group)
        topic = self._core.known_topic(request.topic)
        state = self._core.replica.state
        offsets = []
        for each in self._offsets_of(request.topic, request.queue_ids, request.offsets, ()):
            self._core.check_queue(topic, each.queue_id, max(topic.read_queues, topic.write_queues))
            kept = state.offset(request.group, each.topic, each.queue_id)
            offsets.append(each._replace(reset_count=0 if kept is None else kept.reset_count))
        outcomes = await self._change(ResetOffsets(request.group, tuple(offsets)))
        return pb.ChangeResponse(answer=DONE, is_changed=CommitOutcome.COMMITTED in outcomes.values())

    @staticmethod
    def _offsets_of(
        topic: str, queue_ids: Sequence[int], offsets: Sequence[int], reset_counts: Sequence[int]
    ) -> list[QueueOffset]:
        check_lengths("queue_ids and offsets", queue_ids, offsets, *([reset_counts] if reset_counts else []))
        counts = reset_counts or [0] * len(offsets)
        return [QueueOffset(topic, *row) for row in zip(queue_ids, offsets, counts, strict=True)]

    async def _change(self, command: CommitOffsets | ResetOffsets) -> dict[int, CommitOutcome]:
        """Change offsets of one topic; return what became of each, by queue."""
        applied = await self._core.change(command)
        # The outcomes are in order of the command's bytes.
        queue_ids = sorted(each.queue_id for each in command.offsets)
        return dict(zip(queue_ids, applied.outcomes, strict=True))

    async def fetch(self, request: pb.FetchOffsetRequest) -> pb.FetchOffsetResponse:
        """Return how far a group has consumed.

        Raises:
            RequestFailed: this node does not lead, or there is no such topic.
        """
        self._core.check_leading()
        # A new leader may have to learn yet what was committed at the one before.
        await self._core.confirm()
        state = self._core.replica.state
        if request.queue_ids:
            self._core.known_topic(request.topic)
            found = [
                state.offset(request.group, request.topic, each) or QueueOffset(request.topic, each, NO_OFFSET)
                for each in request.queue_ids
            ]
        else:
            found = sorted(each for each in state.offsets(request.group) if request.topic in ("", each.topic))
        return pb.FetchOffsetResponse(
            topics=[] if request.topic else [each.topic for each in found],
            queue_ids=[each.queue_id for each in found],
            offsets=[each.offset for each in found],
            reset_counts=[each.reset_count for each in found],
        )

    # ------------------------------------------------------------------------------------------------------ locks

    async def lock(self, request: pb.LockQueuesRequest) -> pb.LockQueuesResponse:
        """Give queues to one consumer of the group alone; what it holds ends with its stay.

        Raises:
            IllegalRequest, RequestFailed: nothing was given.
        """
        queues = await self._queues_of(request)
        gathering_ms = self.gathering_ms(request.group)
        if gathering_ms:
            message = f"the group's consumers have {gathering_ms} ms yet to come to this new leader; ask again"
            raise RequestFailed(Reason.LEADER_NOT_READY, message)
        if request.client_id not in self.members.members(request.group):
            # Else one that is out already could keep the others from its queues.
            message = f"consumer {request.client_id!r} is not in group {request.group!r}: join it first"
            raise RequestFailed(Reason.NOT_IN_GROUP, message)
        locked = self._locks.lock(request.group, request.client_id, queues, monotonic_ms())
        named = [pb.QueueId(topic=each.topic, queue_id=each.queue_id) for each in locked]
        return pb.LockQueuesResponse(answer=DONE, locked=named, lock_ms=LOCK_MS)

    async def unlock(self, request: pb.LockQueuesRequest) -> pb.ChangeResponse:
        """Take queues back from a consumer.

        Raises:
            IllegalRequest, RequestFailed: nothing was taken.
        """
        queues = await self._queues_of(request)
        is_changed = self._locks.unlock(request.group, request.client_id, queues)
        return pb.ChangeResponse(answer=DONE, is_changed=is_changed)

    async def _queues_of(self, request: pb.LockQueuesRequest) -> list[QueueKey]:
        await self._core.check_current()
        await self._core.known_group(request.group)
        if not request.client_id:
            raise IllegalRequest("client_id", "the id of the consumer", "none")
        if not 1 <= len(request.queues) <= LOCK_QUEUES_MAX:
            raise IllegalRequest("queues", f"1 to {LOCK_QUEUES_MAX}", str(len(request.queues)))
        for each in request.queues:
            topic = self._core.known_topic(each.topic)
            self._core.check_queue(topic, each.queue_id, topic.read_queues)
        return [QueueKey(each.topic, each.queue_id) for each in request.queues]

    # ---------------------------------------------------------------------------------------------------- members

    async def join(self, requests: AsyncIterator[pb.JoinGroupRequest]) -> AsyncIterator[pb.JoinGroupResponse]:
        """Keep a consumer in its group as long as it sends; say who is in it at each change.

        When the stream ends, so do the consumer's locks: a consumer whose stream was lost hands nothing out before it
        has its locks anew.
        """
        stay = _Stay(self._core, self.members, self.gathering_ms)
        self._stays.add(stay)
        listening = asyncio.create_task(stay.listen(requests))
        try:
            async for response in stay.tell():
                yield response
        finally:
            self._stays.discard(stay)
            listening.cancel()
            if stay.leave():
                self._locks.unlock_all(stay.group, stay.client_id)


class _Reign:
    """The time in which this node leads, or does not, without a break."""

    def __init__(self, standing: Standing) -> None:
        self._term, self._is_leading = standing.term, standing.is_leading
        self.began_ms = monotonic_ms()

    def is_of(self, standing: Standing) -> bool:
        """Return whether it goes on."""
        return (self._term, self._is_leading) == (standing.term, standing.is_leading)


class _Stay:
    """One consumer's stay in its group.

    Attributes:
        group: which one; empty before the consumer has said it.
        news: set when there is something to tell, or to look at.
    """

    def __init__(self, core: BrokerCore, members: GroupMembers, gathering_ms: Callable[[str], int]) -> None:
        self.group = ""
        self.news = asyncio.Event()
        self._core = core
        self._members = members
        self._gathering_ms = gathering_ms
        self._member: Member | None = None
        self._error: StoreError | DLedgerError | None = None
        self._is_over = False

    async def listen(self, requests: AsyncIterator[pb.JoinGroupRequest]) -> None:
        """Take what the consumer sends, until it sends no more."""
        iterator = aiter(requests)
        try:
            while True:
                async with asyncio.timeout(SILENCE_MS_MAX / _MS_PER_S):
                    await self._heard(await anext(iterator))
        except (StoreError, DLedgerError) as error:
            self._error = error
        except TimeoutError:
            silence = f"nothing was heard for {SILENCE_MS_MAX // _MS_PER_S} s; join again"
            self._error = RequestFailed(Reason.TOO_MANY_WAITERS, silence)
        except StopAsyncIteration:
            pass
        finally:
            self._is_over = True
            self.news.set()

    async def _heard(self, request: pb.JoinGroupRequest) -> None:
        await self._core.check_current()
        await self._core.known_group(request.group)
        self._core.check_consumer(request.group)
        subscriptions = {each.topic: each.tags for each in request.subscriptions}
        if self._member is None:
            member = Member(request.client_id, request.instance, subscriptions, monotonic_ms(), self.news.set)
            self._members.join(request.group, member)
            self.group, self._member = request.group, member
            return
        if (request.group, request.client_id) != (self.group, self._member.client_id):
            raise IllegalRequest("group and client_id", f"{self.group} and {self._member.client_id}", request.group)
        self._member.heard_ms = monotonic_ms()
        self._member.subscriptions = subscriptions

    @property
    def client_id(self) -> str:
        """Who stays; empty before the consumer has said it."""
        return "" if self._member is None else self._member.client_id

    async def tell(self) -> AsyncIterator[pb.JoinGroupResponse]:
        """Yield who is in the group, at each change; the last one says why the stay ends, if it has to."""
        while True:
            await self.news.wait()
            self.news.clear()
            if self._is_over:
                break
            try:
                self._core.check_leading()
            except RequestFailed as refusal:
                self._error = refusal
                break
            if self._member is None:
                continue
            gathering_ms = self._gathering_ms(self.group)
            if gathering_ms:
                asyncio.get_running_loop().call_later(gathering_ms / _MS_PER_S, self.news.set)
                continue
            if self._members.members(self.group).get(self._member.client_id) is not self._member:
                self._error = RequestFailed(Reason.CLIENT_ID_IN_USE, "a new life of this consumer has joined since")
                break
            yield pb.JoinGroupResponse(
                client_ids=self._members.client_ids(self.group), version=self._members.version(self.group)
            )
        if self._error is not None:
            yield pb.JoinGroupResponse(answer=self._core.refusal(self._error))

    def leave(self) -> bool:
        """Be in the group no longer; return whether this life of the consumer was the last that was in it."""
        return self._member is not None and self._members.leave(self.group, self._member)
