"""11 PULL_MESSAGE, 361 LITE_PULL_MESSAGE: reads of the leader, held while there is no message.

| result of the leader | answer |
| --- | --- |
| messages | 0, with the stored records unchanged |
| none at the end of the queue | 19 |
| messages that the filter rejects, or deleted ones | 20, with a later offset |
| an offset out of the queue | 21, with the next valid one; of one below 0, with the first |
| (the group's offset was set by an operator meanwhile) | 21, with that one |

Each answer names the node from which the consumer is to pull next (`cluster.remoting.names.pull_nodes`). When this node
stops it answers its held pulls with 19 (`cluster.remoting.holds`).

Source: RocketMQ `PullMessageProcessor`, `PullRequestHoldService`, `MQClientAPIImpl`.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from cluster.protocol.wire.filters import filter_fields
from cluster.remoting.clients import Subscription
from cluster.remoting.command import Rejected, RemotingCode, Request, Response
from cluster.remoting.consumers.bodies import EXPRESSION_LENGTH_MAX
from cluster.remoting.consumers.filters import checked_filter
from cluster.remoting.fields import int_of, text_of
from cluster.remoting.holds import HOLD_S_MAX, PIECE_S, Holds, holder_of
from cluster.v1 import broker_pb2 as pb
from dledger.service.limits.fair_shares import FairShares
from store.errors import StoreError
from store.model.topics import RETRY_TOPIC_LENGTH_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.broker.core import BrokerCore
    from cluster.fronts.leader_link import LeaderLink
    from cluster.remoting.clients import ClientTable
    from cluster.remoting.consumers.offsets import Offsets
    from cluster.remoting.consumers.resets import OffsetResets
    from cluster.remoting.front import RemotingClient
    from cluster.remoting.names.pull_nodes import PullNodes
    from store.dispatch.long_polls import Waiter

# Holds at the leader, in fair shares of addresses: there they take places of this node's calls, sends included.
HELD_MAX: Final = 200
# Others are held here until this node's queue has a message. At most, in fair shares of addresses:
WAITERS_MAX: Final = 10_000
# What is held beyond looks at the queue in this interval, and every hold whether its group was reset.
LOOK_S: Final = 1.0
# Reads at the leader that do not wait, of one address at the same time.
READS_MAX: Final = 32
_COUNT_MAX: Final = 1_024
_SIZE_BYTES_MAX: Final = 4 << 20
_TAG: Final = "TAG"
_SQL92: Final = "SQL92"
_KIND_SHOWN: Final = 80
_COMMIT, _SUSPEND, _HAS_SUBSCRIPTION = 1, 2, 4
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1

_EMPTY: Final = frozenset(
    {
        pb.GET_STATUS_OFFSET_OVERFLOW_ONE,
        pb.GET_STATUS_NO_MATCHED_LOGIC_QUEUE,
        pb.GET_STATUS_NO_MESSAGE_IN_QUEUE,
        pb.GET_STATUS_OFFSET_FOUND_NULL,
    }
)
_MOVED: Final = frozenset({pb.GET_STATUS_OFFSET_OVERFLOW_BADLY, pb.GET_STATUS_OFFSET_TOO_SMALL})


class Pulls:
    """The pulls of consumers.

    Args:
        core: of this node.
        link: to the leader.
        clients: of this node.
        offsets: takes offsets that come with pulls.
        resets: of offsets, which clients follow by their pulls.
        nodes: names the node from which a consumer is to pull next.
    """

    def __init__(
        self,
        core: BrokerCore,
        link: LeaderLink,
        clients: ClientTable,
        offsets: Offsets,
        resets: OffsetResets,
        *,
        nodes: PullNodes,
    ) -> None:
        self._core = core
        self._nodes = nodes
        self._holds = Holds(link)
        self._clients = clients
        self._offsets = offsets
        self._resets = resets
        self._held = FairShares(HELD_MAX)
        self._waiters = FairShares(WAITERS_MAX)
        # By address; each is kept by the pulls that use it.
        self._rooms: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def stop(self) -> None:
        """Answer all held pulls now, and hold no more."""
        self._holds.stop()

    async def pull(self, request: Request, client: RemotingClient) -> Response:
        """Return messages of a queue.

        Raises:
            Rejected, RequestFailed: the client pulls again after 1 s.
        """
        fields = request.fields
        flags = int_of(fields, "sysFlag", 0, _INT_MAX, 0)
        group = text_of(fields, "consumerGroup", RETRY_TOPIC_LENGTH_MAX)
        offset = int_of(fields, "queueOffset", -_LONG_MAX, _LONG_MAX)
        read = pb.GetRequest(
            topic=text_of(fields, "topic", RETRY_TOPIC_LENGTH_MAX),
            queue_id=int_of(fields, "queueId", 0, _INT_MAX),
            offset=max(offset, 0),
            max_messages=min(int_of(fields, "maxMsgNums", 1, _INT_MAX), _COUNT_MAX),
            max_bytes=min(int_of(fields, "maxMsgBytes", 1, _INT_MAX, _SIZE_BYTES_MAX), _SIZE_BYTES_MAX),
            form=pb.MESSAGE_FORM_RECORDS,
            group=group,
        )
        expression = checked_filter(self._subscription(request, group, read.topic, flags))
        wanted = filter_fields(expression)
        read.tags, read.sql = wanted["tags"], wanted["sql"]
        if flags & _COMMIT:
            commit_offset = int_of(fields, "commitOffset", -1, _LONG_MAX, -1)
            if commit_offset >= 0:
                await self._offsets.commit_soon(group, read.topic, read.queue_id, commit_offset)
        hold_s = 0.0
        if flags & _SUSPEND and offset >= 0:
            hold_s = min(int_of(fields, "suspendTimeoutMillis", 0, _LONG_MAX, 0) / 1_000, HOLD_S_MAX)
        moved = self._resets.next_offset(group, read.topic, read.queue_id)
        found = await self._read(read, expression, hold_s if moved is None else 0.0, holder_of(client))
        if moved is None:
            # Of a reset during the hold.
            moved = self._resets.next_offset(group, read.topic, read.queue_id)
        next_node = self._nodes.next_id(is_stopping=self._holds.is_stopping)
        if moved is not None:
            return _moved_answer(moved, found, next_node, "OFFSET_RESET")
        if offset < 0:
            return _moved_answer(found.min_offset, found, next_node, "OFFSET_TOO_SMALL")
        return _answer(offset, found, next_node)

    def _subscription(self, request: Request, group: str, topic: str, flags: int) -> Subscription:
        """Return the subscription of the topic for this pull.

        Raises:
            Rejected: SUBSCRIPTION_NOT_EXIST, SUBSCRIPTION_NOT_LATEST: until the next heartbeat;
                SUBSCRIPTION_PARSE_FAILED.
        """
        fields = request.fields
        if flags & _HAS_SUBSCRIPTION:
            expression = fields.get("subscription", "") or "*"
            if len(expression) > EXPRESSION_LENGTH_MAX:
                text = f"subscription: at most {EXPRESSION_LENGTH_MAX} characters, found {len(expression)}"
                raise Rejected(RemotingCode.SUBSCRIPTION_PARSE_FAILED, text)
            kind = fields.get("expressionType", "").upper() or _TAG
            if kind not in (_TAG, _SQL92):
                text = f"expressionType: expected {_TAG} or {_SQL92}, found {kind[:_KIND_SHOWN]!r}"
                raise Rejected(RemotingCode.SUBSCRIPTION_PARSE_FAILED, text)
            return Subscription(topic, expression, is_sql=kind == _SQL92)
        found = self._clients.consumers_of(group)
        known = None if found is None else found.subscriptions.get(topic)
        if known is None:
            raise Rejected(
                RemotingCode.SUBSCRIPTION_NOT_EXIST, f"group {group!r} has no subscription of topic {topic!r} here"
            )
        version = int_of(fields, "subVersion", 0, _LONG_MAX, 0)
        if known.version < version:
            raise Rejected(RemotingCode.SUBSCRIPTION_NOT_LATEST, f"topic {topic!r}: the subscription is older here")
        return known

    async def _read(self, read: pb.GetRequest, expression: str, hold_s: float, holder: str) -> pb.GetResponse:
        """Read until there is a result, or the hold is over.

        Raises:
            RequestFailed: no leader has answered.
        """
        deadline = time.monotonic() + hold_s
        room = self._rooms.setdefault(holder, asyncio.Semaphore(READS_MAX))
        is_at_leader = hold_s > 0 and self._held.take(holder, 1)
        try:
            while True:
                left_s = max(deadline - time.monotonic(), 0.0)
                wait_s = 0.0 if self._holds.is_stopping or not is_at_leader else min(left_s, PIECE_S)
                found = await self._get(read, wait_s, room)
                if found.status not in _EMPTY or found.next_offset > read.offset:
                    return found
                if self._resets.is_behind(read.group, read.topic, read.queue_id):
                    return found
                if self._holds.is_stopping or time.monotonic() >= deadline:
                    return found
                if not is_at_leader:
                    await self._look(read, expression, deadline, holder)
        finally:
            if is_at_leader:
                self._held.give_back(holder, 1)

    async def _get(self, read: pb.GetRequest, wait_s: float, room: asyncio.Semaphore) -> pb.GetResponse:
        """Read once at the leader."""
        if wait_s:
            return await self._holds.call(lambda stub: stub.Get, read, wait_s)
        async with room:
            return await self._holds.call(lambda stub: stub.Get, read, 0.0)

    async def _look(self, read: pb.GetRequest, expression: str, deadline: float, holder: str) -> None:
        """Wait until this node has a message for a pull, or stops, the deadline has passed, or the group was reset."""
        store, alarm = self._core.replica.store, asyncio.Event()
        with self._holds.alarming(alarm), self._notified(read, expression, holder, alarm):
            while not alarm.is_set() and store.max_offset(read.topic, read.queue_id) <= read.offset:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or self._resets.is_behind(read.group, read.topic, read.queue_id):
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, LOOK_S)):
                        await alarm.wait()

    @contextmanager
    def _notified(self, read: pb.GetRequest, expression: str, holder: str, alarm: asyncio.Event) -> Iterator[None]:
        """Set an event when a message is dispatched here that a pull may want, if there is a place for the wait."""
        if not self._waiters.take(holder, 1):
            yield
            return
        waiter: Waiter | None = None
        try:
            # Without a place in the store, and if that has stopped, the pull looks by itself.
            with suppress(StoreError):
                store = self._core.replica.store
                waiter = store.wait(read.topic, read.queue_id, read.offset, alarm.set, expression)
            yield
        finally:
            if waiter is not None:
                waiter.cancel()
            self._waiters.give_back(holder, 1)


def _answer(offset: int, found: pb.GetResponse, next_node: int) -> Response:
    """Return the answer to a pull from `offset`."""
    next_offset = found.next_offset
    if found.status == pb.GET_STATUS_FOUND:
        code = RemotingCode.SUCCESS
    elif found.status in _MOVED:
        code = RemotingCode.PULL_OFFSET_MOVED
    elif next_offset > offset:
        code = RemotingCode.PULL_RETRY_IMMEDIATELY
    else:
        # An answer 20 with the same offset would make the client repeat its pull at once, again and again.
        code, next_offset = RemotingCode.PULL_NOT_FOUND, offset
    remark = pb.GetStatus.Name(found.status).removeprefix("GET_STATUS_")
    return Response(code, _pull_fields(next_offset, found, next_node), found.records, remark)


def _moved_answer(offset: int, found: pb.GetResponse, next_node: int, remark: str) -> Response:
    """Return the answer to a pull that must continue at `offset`, because of a reset or as its own is in no queue."""
    return Response(RemotingCode.PULL_OFFSET_MOVED, _pull_fields(offset, found, next_node), remark=remark)


def _pull_fields(next_offset: int, found: pb.GetResponse, next_node: int) -> dict[str, str]:
    return {
        "nextBeginOffset": str(next_offset),
        "minOffset": str(found.min_offset),
        "maxOffset": str(found.max_offset),
        "suggestWhichBrokerId": str(next_node),
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }
