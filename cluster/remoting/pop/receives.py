"""200050 POP_MESSAGE, 200052 PEEK_MESSAGE, 200054 NOTIFICATION, 200055 POLLING_INFO: messages for pop consumers.

| result of the leader | answer to 200050 |
| --- | --- |
| messages | 0, with their records and handles |
| none until the poll time has passed, or this node stops | 210 POLLING_TIMEOUT |
| too many readers wait, here or at the leader | 209 POLLING_FULL; the client asks again after 1 s |

Whether a group consumes in order is its setting, not the request's: a request for order by a group without it is
refused, because its messages would come in any order.

Source: RocketMQ `PopMessageProcessor`, `PeekMessageProcessor`, `NotificationProcessor`, `PollingInfoProcessor`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from cluster.client.consumer.received import records_of
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.handle_bounds import ATTEMPT_ID_LENGTH_MAX
from cluster.protocol.wire.filters import filter_fields
from cluster.remoting.clients import Subscription
from cluster.remoting.command import Rejected, RemotingCode, Request, Response
from cluster.remoting.consumers.bodies import EXPRESSION_LENGTH_MAX
from cluster.remoting.consumers.filters import checked_filter
from cluster.remoting.consumers.offsets import YOUNG_MS
from cluster.remoting.fields import bool_of, int_of, text_of
from cluster.remoting.holds import HOLD_S_MAX, PIECE_S, holder_of
from cluster.remoting.pop.answers import pop_answer
from cluster.state.pop.ops import INVISIBLE_MS_MAX
from cluster.state.pop.state import PopKey
from cluster.v1 import broker_pb2 as pb
from dledger.service.limits.fair_shares import FairShares
from store.errors import StoreError
from store.model.topics import RETRY_TOPIC_LENGTH_MAX

if TYPE_CHECKING:
    from cluster.broker.core import BrokerCore
    from cluster.fronts.leader_link import LeaderLink
    from cluster.remoting.front import RemotingClient
    from cluster.remoting.holds import Holds

COUNT_MAX: Final = 32
INVISIBLE_MS_MIN: Final = 1_000
# Requests that wait at the leader: of one group and topic, and of all, in fair shares of addresses.
HELD_MAX: Final = 100
ALL_HELD_MAX: Final = 200
# Queues that are looked at for the start of a group, and for the rest of an answer.
_QUEUES_MAX: Final = 256
_LIMIT_S: Final = 2.5
_ANY_QUEUE: Final = -1
_FROM_END: Final = 1
_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1
_FULL: Final = frozenset({Reason.TOO_MANY_WAITERS, Reason.OVERLOADED})


class PopMessages:
    """The calls that give messages, or look at them.

    Args:
        core: of this node.
        link: to the leader.
        holds: of the calls that wait.
    """

    def __init__(self, core: BrokerCore, link: LeaderLink, holds: Holds) -> None:
        self._core = core
        self._link = link
        self._holds = holds
        # Requests that wait, by group and topic.
        self._held: dict[tuple[str, str], int] = {}
        self._held_all = FairShares(ALL_HELD_MAX)

    async def pop(self, request: Request, client: RemotingClient) -> Response:
        """Give messages to a consumer.

        Raises:
            Rejected, RequestFailed: nothing was taken, or it is given again after its invisible time.
        """
        fields, wanted = request.fields, _wanted(request)
        wanted.max_messages = int_of(fields, "maxMsgNums", 1, COUNT_MAX)
        wanted.invisible_ms = int_of(fields, "invisibleTime", INVISIBLE_MS_MIN, INVISIBLE_MS_MAX)
        is_from_end = int_of(fields, "initMode", 0, 1, 0) == _FROM_END
        if fields.get("attemptId"):
            wanted.attempt_id = text_of(fields, "attemptId", ATTEMPT_ID_LENGTH_MAX)
        expression = checked_filter(_subscription(request, wanted.topic))
        filters = filter_fields(expression)
        wanted.tags, wanted.sql = filters["tags"], filters["sql"]
        if bool_of(fields, "order"):
            self._check_ordered(wanted.group)
        try:
            wanted.is_from_end = is_from_end and await self._is_old(wanted.group, wanted.topic)
            found = await self._received(wanted, _poll_s(request), holder_of(client))
        except RequestFailed as failure:
            if failure.reason in _FULL:
                raise Rejected(RemotingCode.POLLING_FULL, failure.message, self._no_message(wanted)) from failure
            raise
        if not found.handles:
            return Response(RemotingCode.POLLING_TIMEOUT, self._no_message(wanted), remark="no new message")
        try:
            answer = pop_answer(records_of(found.records, wanted.topic), found.handles, found.attempts)
        except StoreError as error:
            raise Rejected(RemotingCode.SYSTEM_ERROR, str(error)) from error
        return Response(fields={**answer.fields, "restNum": str(self._rest(wanted))}, body=answer.body)

    async def peek(self, request: Request, _: RemotingClient) -> Response:
        """Return messages that a pop would give now, and take none.

        Raises:
            Rejected, RequestFailed: there is no answer.
        """
        wanted = _wanted(request)
        wanted.max_messages = int_of(request.fields, "maxMsgNums", 1, COUNT_MAX)
        wanted.is_peek = True
        found = await self._holds.call(lambda stub: stub.Receive, wanted, 0.0)
        fields = self._no_message(wanted)
        if not found.records:
            return Response(RemotingCode.PULL_NOT_FOUND, fields, remark="no new message")
        return Response(fields=fields, body=found.records)

    async def notify(self, request: Request, client: RemotingClient) -> Response:
        """Answer once a group has a message to take, or the poll time has passed.

        Raises:
            Rejected, RequestFailed: there is no answer.
        """
        wanted = _wanted(request)
        wanted.max_messages, wanted.is_peek = 1, True
        is_full = False
        has_message = False
        try:
            has_message = bool((await self._received(wanted, _poll_s(request), holder_of(client))).records)
        except Rejected as error:
            if error.code != RemotingCode.POLLING_FULL:
                raise
            is_full = True
        except RequestFailed as failure:
            if failure.reason not in _FULL:
                raise
            is_full = True
        return Response(fields={"hasMsg": _text(has_message), "pollingFull": _text(is_full)})

    async def polling(self, request: Request, _: RemotingClient) -> Response:
        """Return how often a group waits for messages of a topic at this node.

        Raises:
            Rejected: INVALID_PARAMETER.
        """
        wanted = _wanted(request)
        return Response(fields={"pollingNum": str(self._held.get((wanted.group, wanted.topic), 0))})

    # ------------------------------------------------------------------------------------------------------- internal

    async def _received(self, wanted: pb.ReceiveRequest, hold_s: float, holder: str) -> pb.ReceiveResponse:
        """Receive until there is a message, or the hold is over.

        Raises:
            Rejected: POLLING_FULL: too many wait at this node.
            RequestFailed: no leader has answered.
        """
        place = (wanted.group, wanted.topic)
        held = self._held.get(place, 0)
        if hold_s <= 0 or held >= HELD_MAX or not self._held_all.take(holder, 1):
            found = await self._holds.call(lambda stub: stub.Receive, wanted, 0.0)
            if hold_s > 0 and not found.records:
                text = f"{held} requests of group {wanted.group!r} wait here for topic {wanted.topic!r}"
                raise Rejected(RemotingCode.POLLING_FULL, text, self._no_message(wanted))
            return found
        self._held[place] = held + 1
        deadline = time.monotonic() + hold_s
        try:
            while True:
                wait_s = 0.0 if self._holds.is_stopping else max(min(deadline - time.monotonic(), PIECE_S), 0.0)
                found = await self._holds.call(lambda stub: stub.Receive, wanted, wait_s)
                if found.records or wait_s == 0 or self._holds.is_stopping:
                    return found
        finally:
            self._held_all.give_back(holder, 1)
            self._held[place] -= 1
            if not self._held[place]:
                del self._held[place]

    async def _is_old(self, group: str, topic: str) -> bool:
        """Return whether a group without offsets in a topic has missed messages for longer than it may.

        Otherwise it misses none: those of a young topic are there before its first consumer asks.

        Raises:
            RequestFailed: no leader has answered.
        """
        state = self._core.replica.state
        known = state.topics.get(topic)
        queue_ids = range(0 if known is None else known.read_queues)[:_QUEUES_MAX]
        if any(state.offset(group, topic, each) is not None for each in queue_ids):
            return False
        asked = pb.OffsetsRequest(topic=topic, queue_ids=queue_ids)
        found = await self._link.call(lambda stub: stub.Offsets, asked, _LIMIT_S)
        now_ms = self._core.clock_ms()
        queues = zip(found.min_offsets, found.max_offsets, found.earliest_timestamps, strict=True)
        return any(low > 0 or (high > 0 and now_ms - earliest > YOUNG_MS) for low, high, earliest in queues)

    def _check_ordered(self, group: str) -> None:
        known = self._core.replica.state.groups.get(group)
        if known is None or not known.is_orderly:
            text = f"group {group!r} does not consume in order: set consumeMessageOrderly of the group first"
            raise Rejected(RemotingCode.ILLEGAL_OPERATION, text)

    def _no_message(self, wanted: pb.ReceiveRequest) -> dict[str, str]:
        """Return the fields of an answer without messages; clients read these numbers in any case."""
        numbers = {"popTime": self._core.clock_ms(), "invisibleTime": wanted.invisible_ms, "reviveQid": 0, "restNum": 0}
        return {name: str(value) for name, value in numbers.items()}

    def _rest(self, wanted: pb.ReceiveRequest) -> int:
        """Return the number of messages that no consumer of a group has had yet, as this node knows it."""
        state, store = self._core.replica.state, self._core.replica.store
        topic = state.topics.get(wanted.topic)
        queue_ids = wanted.queue_ids or range(0 if topic is None else topic.read_queues)
        rest = 0
        for queue_id in queue_ids[:_QUEUES_MAX]:
            queue = state.pop.queues.get(PopKey(wanted.group, wanted.topic, queue_id))
            known = state.offset(wanted.group, wanted.topic, queue_id)
            cursor = queue.cursor if queue is not None else 0 if known is None else known.offset
            low, high = store.min_offset(wanted.topic, queue_id), store.max_offset(wanted.topic, queue_id)
            rest += max(high - max(cursor, low), 0)
        return rest


def _wanted(request: Request) -> pb.ReceiveRequest:
    """Return the request to our service, with what all requests have.

    Raises:
        Rejected: INVALID_PARAMETER.
    """
    fields = request.fields
    queue_id = int_of(fields, "queueId", _ANY_QUEUE, _INT_MAX, _ANY_QUEUE)
    return pb.ReceiveRequest(
        group=text_of(fields, "consumerGroup", RETRY_TOPIC_LENGTH_MAX),
        topic=text_of(fields, "topic", RETRY_TOPIC_LENGTH_MAX),
        queue_ids=[] if queue_id == _ANY_QUEUE else [queue_id],
        # Of requests that take nothing.
        invisible_ms=INVISIBLE_MS_MIN,
        form=pb.MESSAGE_FORM_RECORDS,
    )


def _subscription(request: Request, topic: str) -> Subscription:
    expression = request.fields.get("exp", "") or "*"
    if len(expression) > EXPRESSION_LENGTH_MAX:
        text = f"exp: at most {EXPRESSION_LENGTH_MAX} characters, found {len(expression)}"
        raise Rejected(RemotingCode.SUBSCRIPTION_PARSE_FAILED, text)
    return Subscription(topic, expression, is_sql=request.fields.get("expType", "").upper() == "SQL92")


def _poll_s(request: Request) -> float:
    return min(int_of(request.fields, "pollTime", 0, _LONG_MAX, 0) / 1_000, HOLD_S_MAX)


def _text(value: bool) -> str:
    return "true" if value else "false"
