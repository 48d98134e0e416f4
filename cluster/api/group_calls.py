"""The calls of consumer groups: committed offsets, membership, queue locks."""

from __future__ import annotations

import asyncio
from operator import attrgetter
from typing import TYPE_CHECKING, Final, cast

from cluster.api.answers import DONE, refusal
from cluster.api.message_columns import check_lengths
from cluster.broker.group_members import SILENCE_MS_MAX, GroupMembers, JoinedMember
from cluster.broker.queue_locks import LOCK_MS, QueueLocks
from cluster.process.cooperative import run_cooperatively
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.request_bounds import BROKER_BOUNDS, LOCK_QUEUES_MAX
from cluster.protocol.wire.filters import expression_of
from cluster.state.commands import CommitOffsets, QueueOffset, ResetOffsets
from cluster.state.features import WITH_OWNERS
from cluster.state.order.owners import OWNED_PER_COMMAND_MAX, OwnQueues
from cluster.state.verdicts import CommitOutcome
from cluster.v1 import broker_pb2 as pb
from dledger.errors import DLedgerError
from dledger.service.request_guard import BoundsCheck
from store.errors import IllegalRequest, StoreError
from store.maintenance.background import monotonic_ms
from store.model.message import QueueKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from cluster.broker.core import BrokerCore
    from cluster.protocol.topic_config import TopicConfig
    from cluster.replica.port import ReplicaStatus
    from store.steps import Steps

NO_OFFSET: Final = -1
# Maximum offsets of one command, which is checked, written and applied in one iteration of the loop: 10 us each.
_OFFSETS_PER_TURN: Final = 1_024
# The time for the consumers of a group to find a new leader, before it sends the members and grants locks.
GATHER_MS: Final = 3_000
_MS_PER_S: Final = 1000


class GroupCalls:
    """The calls of consumers about their groups."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self.members = GroupMembers()
        method = pb.DESCRIPTOR.services_by_name["BrokerService"].methods_by_name["JoinGroup"]
        self._check_bounds = BoundsCheck(method, BROKER_BOUNDS)
        self._locks = QueueLocks()
        self._stays: set[_Membership] = set()
        self._current_term = _CurrentTerm(core.replica.status())
        core.replica.when_status_changes(self._status_changed)

    def _status_changed(self) -> None:
        """Drop the state that a new leader rebuilds: the members of groups, and the queue locks."""
        status = self._core.replica.status()
        if self._current_term.is_of(status):
            return
        self._current_term = _CurrentTerm(status)
        # Another leader may have granted the locks of an earlier term to other consumers.
        self._locks.clear()
        for stay in self._stays:
            stay.news.set()

    def gathering_ms(self, group: str) -> int:
        """Return the milliseconds that this leader still waits for a group's consumers; 0: it does not wait.

        Without the wait, the first consumer to join would take the queues that the others are still reading.
        """
        left_ms = self._current_term.began_ms + GATHER_MS - monotonic_ms()
        has_consumed = any(True for _ in self._core.replica.state.offsets(group))
        return left_ms if left_ms > 0 and has_consumed else 0

    # ---------------------------------------------------------------------------------------------------- offsets

    async def commit(self, request: pb.CommitOffsetRequest) -> pb.CommitOffsetResponse:
        """Commit the consumed offsets of a group.

        Raises:
            StoreError, DLedgerError: nothing was stored, unless the error's certainty is unknown.
        """
        check_lengths("queue_ids and offsets", request.queue_ids, request.offsets)
        offsets = await run_cooperatively(
            _offsets_of(request.topic, request.queue_ids, request.offsets, request.reset_counts)
        )
        await self._core.check_current()
        topic = self._core.known_topic(request.topic)
        if await run_cooperatively(self._beyond_end(topic, offsets)) is not None:
            # Messages acknowledged just now may not be dispatched yet.
            await self._core.confirm()
            beyond = await run_cooperatively(self._beyond_end(topic, offsets))
            if beyond is not None:
                raise RequestFailed(Reason.OFFSET_BEYOND_END, beyond)
        await self._core.ensure_group(request.group)
        outcomes: dict[int, CommitOutcome] = {}
        for begin in range(0, len(offsets), _OFFSETS_PER_TURN):
            piece = offsets[begin : begin + _OFFSETS_PER_TURN]
            outcomes |= await self._change(CommitOffsets(request.group, tuple(piece)))
        numbers = cast("list[pb.CommitOutcome.ValueType]", [outcomes[each.queue_id] for each in offsets])
        return pb.CommitOffsetResponse(answer=DONE, outcomes=numbers)

    def _beyond_end(self, topic: TopicConfig, offsets: Sequence[QueueOffset]) -> Steps[str | None]:
        """Return a description of the first offset that is beyond the end of its queue; None if none is.

        Raises:
            RequestFailed: UNKNOWN_QUEUE.
        """
        store, count = self._core.replica.store, max(topic.read_queues, topic.write_queues)
        for _, queue_id, offset, _ in offsets:
            yield
            self._core.check_queue(topic, queue_id, count)
            end = store.max_offset(topic.name, queue_id)
            if offset > end:
                return f"queue {queue_id} of topic {topic.name!r} ends at {end}, found {offset}. Nothing was stored"
        return None

    async def reset(self, request: pb.ResetOffsetRequest) -> pb.ChangeResponse:
        """Set offsets of a group, forwards or backwards.

        Raises:
            StoreError, DLedgerError: nothing was set, unless the error's certainty is unknown.
        """
        await self._core.check_current()
        await self._core.ensure_group(request.group)
        topic = self._core.known_topic(request.topic)
        check_lengths("queue_ids and offsets", request.queue_ids, request.offsets)
        asked = await run_cooperatively(_offsets_of(request.topic, request.queue_ids, request.offsets, ()))
        offsets = await run_cooperatively(self._counted(request.group, topic, asked))
        is_changed = False
        for begin in range(0, len(offsets), _OFFSETS_PER_TURN):
            piece = offsets[begin : begin + _OFFSETS_PER_TURN]
            outcomes = await self._change(ResetOffsets(request.group, tuple(piece)))
            is_changed = is_changed or CommitOutcome.COMMITTED in outcomes.values()
        return pb.ChangeResponse(answer=DONE, is_changed=is_changed)

    def _counted(self, group: str, topic: TopicConfig, offsets: Sequence[QueueOffset]) -> Steps[list[QueueOffset]]:
        """Return the offsets with the current reset counts of the group's offsets.

        Raises:
            RequestFailed: UNKNOWN_QUEUE.
        """
        state, count, found = self._core.replica.state, max(topic.read_queues, topic.write_queues), []
        for each in offsets:
            yield
            self._core.check_queue(topic, each.queue_id, count)
            kept = state.offset(group, each.topic, each.queue_id)
            found.append(each._replace(reset_count=0 if kept is None else kept.reset_count))
        return found

    async def _change(self, command: CommitOffsets | ResetOffsets) -> dict[int, CommitOutcome]:
        """Change offsets of one topic; return the outcome of each, by queue."""
        applied = await self._core.change(command)
        # The outcomes are in the order of the encoded command.
        queue_ids = sorted(each.queue_id for each in command.offsets)
        return dict(zip(queue_ids, applied.outcomes, strict=True))

    async def fetch(self, request: pb.FetchOffsetRequest) -> pb.FetchOffsetResponse:
        """Return the consumed offsets of a group.

        Raises:
            RequestFailed: this node does not lead, or there is no such topic.
        """
        self._core.check_leading()
        # A new leader may not have applied offsets committed at the previous leader.
        await self._core.confirm()
        found = await run_cooperatively(self._kept(request))
        return await run_cooperatively(_fetch_response(found, has_topics=not request.topic))

    def _kept(self, request: pb.FetchOffsetRequest) -> Steps[list[QueueOffset]]:
        """Return the requested offsets.

        Raises:
            RequestFailed: UNKNOWN_TOPIC.
        """
        state, found = self._core.replica.state, []
        if request.queue_ids:
            self._core.known_topic(request.topic)
            for each in request.queue_ids:
                yield
                kept = state.offset(request.group, request.topic, each)
                found.append(kept or QueueOffset(request.topic, each, NO_OFFSET))
            return found
        by_topic: dict[str, list[QueueOffset]] = {}
        for kept in tuple(state.offsets(request.group)):
            yield
            if request.topic in ("", kept.topic):
                by_topic.setdefault(kept.topic, []).append(kept)
        for topic in sorted(by_topic):
            yield
            found += sorted(by_topic[topic], key=attrgetter("queue_id"))
        return found

    # ------------------------------------------------------------------------------------------------------ locks

    async def lock(self, request: pb.LockQueuesRequest) -> pb.LockQueuesResponse:
        """Lock queues for one consumer of the group; its locks end with its membership, unless they are kept.

        Raises:
            IllegalRequest, RequestFailed: nothing was locked.
        """
        queues = await self._queues_of(request)
        self._check_lockable(request)
        if request.is_kept:
            # The holder counts from its request: this node must have been the leader after it.
            await self._core.confirm()
        now_ms = monotonic_ms()
        free = [each for each in queues if not self._is_owned_by_another(request, each, now_ms)]
        locked = self._locks.lock(request.group, request.client_id, free, now_ms)
        if request.is_kept:
            await self._own(request, locked)
        named = [pb.QueueId(topic=each.topic, queue_id=each.queue_id) for each in locked]
        return pb.LockQueuesResponse(answer=DONE, locked=named, lock_ms=LOCK_MS)

    def _check_lockable(self, request: pb.LockQueuesRequest) -> None:
        """Raise unless the consumer may lock queues now.

        Raises:
            RequestFailed: LEADER_NOT_READY, NOT_IN_GROUP, UNSUPPORTED.
        """
        if request.is_kept and request.is_unjoined:
            # Without a membership, only the holder in the log protects it from a new leader's other consumers.
            self._core.check_feature(WITH_OWNERS, "locks of consumers that have not joined")
            return
        gathering_ms = self.gathering_ms(request.group)
        if gathering_ms:
            message = f"this new leader waits {gathering_ms} ms more for the group's consumers to join; retry then"
            raise RequestFailed(Reason.LEADER_NOT_READY, message)
        if request.client_id not in self.members.members(request.group):
            # Otherwise a consumer that has left the group could block the others.
            message = f"consumer {request.client_id!r} is not in group {request.group!r}: join it first"
            raise RequestFailed(Reason.NOT_IN_GROUP, message)

    async def unlock(self, request: pb.LockQueuesRequest) -> pb.ChangeResponse:
        """Release a consumer's queue locks.

        Raises:
            IllegalRequest, RequestFailed: nothing was released.
        """
        await self._check_locks(request)
        # Not checked: the topic may have been deleted, or have fewer queues than when they were locked.
        queues = [QueueKey(each.topic, each.queue_id) for each in request.queues]
        is_changed = self._locks.unlock(request.group, request.client_id, queues)
        owners = self._core.replica.state.owners
        owned = [each for each in queues if owners.owner(request.group, each) == request.client_id]
        if owned:
            await self._change_owners(request, owned, is_owner=False)
            is_changed = True
        return pb.ChangeResponse(answer=DONE, is_changed=is_changed)

    def _is_owned_by_another(self, request: pb.LockQueuesRequest, queue: QueueKey, now_ms: int) -> bool:
        """Return whether an earlier leader may have granted a lock to another consumer that is still valid."""
        owner = self._core.replica.state.owners.owner(request.group, queue)
        return owner not in ("", request.client_id) and now_ms < self._current_term.began_ms + LOCK_MS

    async def _own(self, request: pb.LockQueuesRequest, locked: Sequence[QueueKey]) -> None:
        """Note in the log that the consumer holds locks, unless the log says so already.

        Raises:
            RequestFailed, StoreError, DLedgerError: the consumer must not use the locks.
        """
        state = self._core.replica.state
        new = [each for each in locked if state.owners.owner(request.group, each) != request.client_id]
        # Before all nodes have this level, a new leader does not know the locks.
        if new and state.feature_level >= WITH_OWNERS:
            await self._change_owners(request, new, is_owner=True)

    async def _change_owners(
        self, request: pb.LockQueuesRequest, queues: Sequence[QueueKey], *, is_owner: bool
    ) -> None:
        for begin in range(0, len(queues), OWNED_PER_COMMAND_MAX):
            piece = tuple(queues[begin : begin + OWNED_PER_COMMAND_MAX])
            await self._core.change(OwnQueues(request.group, request.client_id, piece, is_owner))

    def _release(self, group: str, client_id: str) -> None:
        """Release the locks of a consumer that left, except those that only their time ends."""
        owners = self._core.replica.state.owners
        held = self._locks.held(group, client_id)
        self._locks.unlock(group, client_id, [each for each in held if owners.owner(group, each) != client_id])

    async def _queues_of(self, request: pb.LockQueuesRequest) -> list[QueueKey]:
        await self._check_locks(request)
        for each in request.queues:
            topic = self._core.known_topic(each.topic)
            self._core.check_queue(topic, each.queue_id, topic.read_queues)
        return [QueueKey(each.topic, each.queue_id) for each in request.queues]

    async def _check_locks(self, request: pb.LockQueuesRequest) -> None:
        await self._core.check_current()
        await self._core.ensure_group(request.group)
        if not request.client_id:
            raise IllegalRequest("client_id", "the id of the consumer", "none")
        if not 1 <= len(request.queues) <= LOCK_QUEUES_MAX:
            raise IllegalRequest("queues", f"1 to {LOCK_QUEUES_MAX}", str(len(request.queues)))

    # ---------------------------------------------------------------------------------------------------- members

    async def join(self, requests: AsyncIterator[pb.JoinGroupRequest]) -> AsyncIterator[pb.JoinGroupResponse]:
        """Keep a consumer in its group while it sends heartbeats; send it the members at each change.

        The end of the stream releases the consumer's locks that are not kept (`cluster.broker.queue_locks`): a consumer
        that lost its stream delivers nothing until it has its locks again.
        """
        stay = _Membership(self._core, self.members, self.gathering_ms, self._check_bounds)
        self._stays.add(stay)
        listening = asyncio.create_task(stay.listen(requests))
        try:
            async for response in stay.updates():
                yield response
        finally:
            self._stays.discard(stay)
            listening.cancel()
            if stay.leave():
                self._release(stay.group, stay.client_id)


def _fetch_response(found: Sequence[QueueOffset], *, has_topics: bool) -> Steps[pb.FetchOffsetResponse]:
    response = pb.FetchOffsetResponse()
    for each in found:
        yield
        if has_topics:
            response.topics.append(each.topic)
        response.queue_ids.append(each.queue_id)
        response.offsets.append(each.offset)
        response.reset_counts.append(each.reset_count)
    return response


def _offsets_of(
    topic: str, queue_ids: Sequence[int], offsets: Sequence[int], reset_counts: Sequence[int]
) -> Steps[list[QueueOffset]]:
    """Return the rows of a request.

    Raises:
        IllegalRequest: the lists differ in length, or a queue occurs twice.
    """
    if reset_counts:
        check_lengths("queue_ids and reset_counts", queue_ids, reset_counts)
    found: dict[int, QueueOffset] = {}
    for row, (queue_id, offset) in enumerate(zip(queue_ids, offsets, strict=True)):
        yield
        found[queue_id] = QueueOffset(topic, queue_id, offset, reset_counts[row] if reset_counts else 0)
    if len(found) < len(queue_ids):
        raise IllegalRequest("queue_ids", "each queue once", "a queue twice")
    return list(found.values())


class _CurrentTerm:
    """A period in which this node is leader, or is not, without interruption."""

    def __init__(self, status: ReplicaStatus) -> None:
        self._term, self._is_leading = status.term, status.is_leading
        self.began_ms = monotonic_ms()

    def is_of(self, status: ReplicaStatus) -> bool:
        """Return whether `status` belongs to the same period."""
        return (self._term, self._is_leading) == (status.term, status.is_leading)


class _Membership:
    """One consumer's membership in its group: the state of a JoinGroup stream.

    Attributes:
        group: name of the group; empty before the first request.
        news: set when there is a change to send or to check.
    """

    def __init__(
        self,
        core: BrokerCore,
        members: GroupMembers,
        gathering_ms: Callable[[str], int],
        check_bounds: Callable[[pb.JoinGroupRequest], None],
    ) -> None:
        self.group = ""
        self.news = asyncio.Event()
        self._core = core
        self._members = members
        self._gathering_ms = gathering_ms
        self._check_bounds = check_bounds
        self._member: JoinedMember | None = None
        self._error: StoreError | DLedgerError | None = None
        self._is_over = False

    async def listen(self, requests: AsyncIterator[pb.JoinGroupRequest]) -> None:
        """Handle the consumer's requests until its stream ends."""
        iterator = aiter(requests)
        try:
            while True:
                async with asyncio.timeout(SILENCE_MS_MAX / _MS_PER_S):
                    await self._on_request(await anext(iterator))
        except (StoreError, DLedgerError) as error:
            self._error = error
        except TimeoutError:
            silence = f"nothing was received for {SILENCE_MS_MAX // _MS_PER_S} s; join again"
            self._error = RequestFailed(Reason.TOO_MANY_WAITERS, silence)
        except StopAsyncIteration:
            pass
        finally:
            self._is_over = True
            self.news.set()

    async def _on_request(self, request: pb.JoinGroupRequest) -> None:
        self._check_bounds(request)
        await self._core.check_current()
        await self._core.ensure_group(request.group)
        self._core.check_consumer(request.group)
        subscriptions = {each.topic: expression_of(each) for each in request.subscriptions}
        if self._member is None:
            member = JoinedMember(request.client_id, request.instance, subscriptions, monotonic_ms(), self.news.set)
            self._members.join(request.group, member)
            self.group, self._member = request.group, member
            return
        if (request.group, request.client_id) != (self.group, self._member.client_id):
            raise IllegalRequest("group and client_id", f"{self.group} and {self._member.client_id}", request.group)
        self._member.last_message_ms = monotonic_ms()
        self._member.subscriptions = subscriptions

    @property
    def client_id(self) -> str:
        """The client id of the member; empty before the consumer has sent it."""
        return "" if self._member is None else self._member.client_id

    async def updates(self) -> AsyncIterator[pb.JoinGroupResponse]:
        """Yield the members of the group at each change; the last response has the reason if the broker ends it."""
        while True:
            await self.news.wait()
            self.news.clear()
            if self._is_over:
                break
            try:
                self._core.check_leading()
            except RequestFailed as failure:
                self._error = failure
                break
            if self._member is None:
                continue
            gathering_ms = self._gathering_ms(self.group)
            if gathering_ms:
                asyncio.get_running_loop().call_later(gathering_ms / _MS_PER_S, self.news.set)
                continue
            if self._members.members(self.group).get(self._member.client_id) is not self._member:
                self._error = RequestFailed(Reason.CLIENT_ID_IN_USE, "a newer process with this client id has joined")
                break
            yield pb.JoinGroupResponse(
                client_ids=self._members.client_ids(self.group), version=self._members.version(self.group)
            )
        if self._error is not None:
            yield pb.JoinGroupResponse(answer=refusal(self._core, self._error))

    def leave(self) -> bool:
        """Leave the group; return whether the consumer is out of it: no newer process with its id has joined."""
        return self._member is not None and self._members.leave(self.group, self._member)
