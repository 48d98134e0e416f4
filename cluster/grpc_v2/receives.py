"""ReceiveMessage, AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue: pop consumption of the leader.

The number of a queue in a request is only a wish, as in RocketMQ: a consumer that chooses a queue at random would wait
at an empty one while others have messages. So every receive takes messages of all queues. A group that consumes in
order gets one message of each message group at a time, and a receive with the `attempt_id` of an earlier one gets the
same messages.

| RPC | calls of our service |
| --- | --- |
| ReceiveMessage | Receive |
| AckMessage | Acknowledge |
| ChangeInvisibleDuration | ChangeInvisible |
| ForwardMessageToDeadLetterQueue | Get, ReturnMessage, Acknowledge |

Source: RocketMQ `ReceiveMessageActivity`, `AckMessageActivity`, `ChangeInvisibleDurationActivity`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from cluster.client.consumer.received import records_of
from cluster.grpc_v2.delivered import delivered, timestamp
from cluster.grpc_v2.names import group_name, topic_name
from cluster.grpc_v2.renewal_table import INVISIBLE_MS, Key
from cluster.grpc_v2.status_codes import CodedRefusal, ok, unknown_topic
from cluster.pop.handles import decode_handle
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.wire.filters import filter_fields
from cluster.rocketmq_v2 import messaging_pb2 as mq
from cluster.v1 import broker_pb2 as pb
from dledger.service.limits.fair_shares import FairShares
from store.errors import IllegalMessage, IllegalRequest, StoreError
from store.model.read_filter import Sql92, parse_filter
from store.model.sys_flag import COMPRESSED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from google.protobuf.duration_pb2 import Duration

    from cluster.client.routing.broker_nodes import Method, ResponseT
    from cluster.fronts.leader_link import LeaderLink
    from cluster.grpc_v2.renewal_table import FrontConsumer
    from cluster.grpc_v2.renewing import Renewing
    from cluster.pop.handles import Handle

BATCH_MAX: Final = 32
_INVISIBLE_MS_MIN: Final = 10_000
_INVISIBLE_MS_MAX: Final = 12 * 3_600_000
_WAIT_S_MAX: Final = 20.0
# An answer must arrive before the client's deadline.
_ANSWER_S: Final = 0.5
# Between two messages of a stream, so that large bodies do not keep the loop from other work.
_BYTES_PER_TURN: Final = 1 << 20
_NEVER: Final = -1
# Waits at the leader, in fair shares of addresses: there they take places of this node's calls, sends included.
WAITS_MAX: Final = 120
# Others wait here, and ask the leader each second.
POLL_S: Final = 1.0
_QUICK_BYTES: Final = 4 << 10

logger = logging.getLogger(__name__)


class Receives:
    """The calls of consumers.

    Args:
        link: to the leader.
        renewing: of the messages of push consumers.
        clock_ms: the wall clock, milliseconds since 1970.
    """

    def __init__(self, link: LeaderLink, renewing: Renewing, clock_ms: Callable[[], int]) -> None:
        self._link = link
        self._renewing = renewing
        self._clock_ms = clock_ms
        self._waits = FairShares(WAITS_MAX)

    async def receive(
        self, request: mq.ReceiveMessageRequest, consumer: FrontConsumer, holder: str, limit_s: float
    ) -> AsyncIterator[mq.ReceiveMessageResponse]:
        """Yield a status, then messages, then the time.

        Args:
            request: of a simple consumer, or of a push consumer: `auto_renew`.
            consumer: that gets them.
            holder: the address by which its waits, and the messages that are renewed for it, are counted.
            limit_s: of the call.

        Raises:
            CodedRefusal, RequestFailed: nothing was taken, or it is given again after its invisible time.
        """
        taken = _taken(request)
        response = await self._received(taken, holder, _wait_s(request, limit_s), limit_s)
        try:
            records = records_of(response.records, taken.topic)
        except StoreError as error:
            raise CodedRefusal(mq.INTERNAL_SERVER_ERROR, str(error)) from error
        if not records:
            yield mq.ReceiveMessageResponse(status=mq.Status(code=mq.MESSAGE_NOT_FOUND, message="no new message"))
        else:
            yield mq.ReceiveMessageResponse(status=ok())
        sent_bytes, given = 0, []
        for record, handle, attempt in zip(records, response.handles, response.attempts, strict=True):
            sent_bytes += record.size
            if sent_bytes > _BYTES_PER_TURN:
                sent_bytes = 0
                await asyncio.sleep(0)
            make = partial(delivered, record, request.message_queue.topic, handle=handle, attempt=attempt)
            try:
                # A small body may expand to megabytes.
                is_quick = not record.sys_flag & COMPRESSED or len(record.body) <= _QUICK_BYTES
                message = make() if is_quick else await asyncio.to_thread(make)
            except StoreError as error:
                # A dead letter after its last attempt; the other messages are not kept by it.
                logger.info("message_unreadable topic=%s id=%s: %s", taken.topic, record.message_id, error)
                continue
            given.append((handle, attempt))
            yield mq.ReceiveMessageResponse(message=message)
        yield mq.ReceiveMessageResponse(delivery_timestamp=timestamp(self._clock_ms()))
        # A client that has ended the stream before has not got all: they are given again.
        if request.auto_renew:
            for handle, attempt in given:
                self._renewing.add(Key(taken.group, taken.topic, handle), consumer, attempt, holder)

    async def _received(
        self, taken: pb.ReceiveRequest, holder: str, wait_s: float, limit_s: float
    ) -> pb.ReceiveResponse:
        """Take messages; wait at the leader for some, or, if this front waits there enough already, here.

        Raises:
            CodedRefusal, RequestFailed: as `receive`.
        """
        deadline = time.monotonic() + limit_s
        if wait_s and self._waits.take(holder, 1):
            try:
                taken.wait_ms = int(wait_s * 1_000)
                return await self._call(lambda stub: stub.Receive, taken, limit_s, wait_s)
            finally:
                self._waits.give_back(holder, 1)
        end = time.monotonic() + wait_s
        while True:
            left_s = max(deadline - time.monotonic(), 0.0)
            response = await self._call(lambda stub: stub.Receive, taken, left_s)
            pause_s = min(end - time.monotonic(), POLL_S)
            if response.handles or pause_s <= 0:
                return response
            await asyncio.sleep(pause_s)

    async def acknowledge(self, request: mq.AckMessageRequest, limit_s: float) -> mq.AckMessageResponse:
        """Acknowledge messages, each for itself.

        Raises:
            CodedRefusal, RequestFailed: it is not certain that any is acknowledged; the call may be repeated.
        """
        group, topic = group_name(request.group), topic_name(request.topic)
        if not request.entries:
            raise CodedRefusal(mq.BAD_REQUEST, "entries: expected at least one, found none")
        codes = [_refusal_of(entry.receipt_handle) for entry in request.entries]
        good = [entry.receipt_handle for entry, code in zip(request.entries, codes, strict=True) if code is None]
        outcomes: Sequence[pb.AckOutcome.ValueType] = ()
        if good:
            outcomes = await self._acknowledged([Key(group, topic, handle) for handle in good], limit_s)
        results = iter(outcomes)
        response = mq.AckMessageResponse()
        for entry, refused in zip(request.entries, codes, strict=True):
            status = refused or _ack_status(next(results))
            response.entries.add(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status)
        first = response.entries[0].status
        is_same = all(entry.status.code == first.code for entry in response.entries)
        response.status.CopyFrom(first if is_same else mq.Status(code=mq.MULTIPLE_RESULTS, message="see each entry"))
        return response

    async def _acknowledged(self, keys: Sequence[Key], limit_s: float) -> Sequence[pb.AckOutcome.ValueType]:
        """Acknowledge messages of one group and topic, and renew them no longer; return the outcome of each."""
        handles = [await self._renewing.current(key) for key in keys]
        request = pb.AcknowledgeRequest(group=keys[0].group, topic=keys[0].topic, handles=handles)
        outcomes = (await self._call(lambda stub: stub.Acknowledge, request, limit_s)).outcomes
        for key in keys:
            self._renewing.table.remove(key)
        return outcomes

    async def change_invisible(
        self, request: mq.ChangeInvisibleDurationRequest, limit_s: float
    ) -> mq.ChangeInvisibleDurationResponse:
        """Change the time for which a message is invisible; the next delivery counts as another attempt.

        Raises:
            CodedRefusal, RequestFailed: it is not certain that it is changed.
        """
        group, topic = group_name(request.group), topic_name(request.topic)
        invisible_ms = _milliseconds(request.invisible_duration)
        if not 0 <= invisible_ms <= _INVISIBLE_MS_MAX:
            text = f"invisible_duration: expected 0 to 12 h, found {invisible_ms} ms"
            raise CodedRefusal(mq.ILLEGAL_INVISIBLE_TIME, text)
        _handle_of(request.receipt_handle)
        key = Key(group, topic, request.receipt_handle)
        handle = await self._renewing.current(key)
        changed = pb.ChangeInvisibleRequest(group=group, topic=topic, handle=handle, invisible_ms=invisible_ms)
        response = await self._call(lambda stub: stub.ChangeInvisible, changed, limit_s)
        # A push consumer does so when it failed to process the message.
        self._renewing.table.remove(key)
        return mq.ChangeInvisibleDurationResponse(
            status=_ack_status(response.outcome), receipt_handle=response.handle or request.receipt_handle
        )

    async def forward_to_dead_letters(
        self, request: mq.ForwardMessageToDeadLetterQueueRequest, limit_s: float
    ) -> mq.ForwardMessageToDeadLetterQueueResponse:
        """Make a message a dead letter of its group, and acknowledge it.

        Raises:
            CodedRefusal, RequestFailed: it is not certain that both are done; the call may be repeated.
        """
        group, topic = group_name(request.group), topic_name(request.topic)
        handle = _handle_of(request.receipt_handle)
        read = pb.GetRequest(
            topic=topic,
            queue_id=handle.queue_id,
            offset=handle.offset,
            max_messages=1,
            form=pb.MESSAGE_FORM_COLUMNS,
        )
        found = (await self._call(lambda stub: stub.Get, read, limit_s)).columns
        if list(found.queue_offsets[:1]) == [handle.offset]:
            returned = pb.ReturnMessageRequest(
                group=group,
                topic=topic,
                queue_id=handle.queue_id,
                queue_offset=handle.offset,
                physical_offset=found.physical_offsets[0],
                delay_level=_NEVER,
            )
            await self._call(lambda stub: stub.ReturnMessage, returned, limit_s)
        await self._acknowledged([Key(group, topic, request.receipt_handle)], limit_s)
        return mq.ForwardMessageToDeadLetterQueueResponse(status=ok())

    async def _call(
        self,
        method: Method[ResponseT],
        request: pb.ReceiveRequest
        | pb.AcknowledgeRequest
        | pb.ChangeInvisibleRequest
        | pb.GetRequest
        | pb.ReturnMessageRequest,
        limit_s: float,
        wait_s: float = 0.0,
    ) -> ResponseT:
        try:
            return await self._link.call(method, request, limit_s, wait_s)
        except RequestFailed as failure:
            if failure.reason is Reason.UNKNOWN_TOPIC:
                raise unknown_topic(request.topic) from failure
            raise


def _wait_s(request: mq.ReceiveMessageRequest, limit_s: float) -> float:
    """Return the time to wait for a message, in seconds: the answer must come before the client's deadline."""
    asked_s = limit_s
    if request.HasField("long_polling_timeout"):
        asked_s = max(_milliseconds(request.long_polling_timeout), 0) / 1_000
    return max(min(asked_s, limit_s - _ANSWER_S, _WAIT_S_MAX), 0.0)


def _taken(request: mq.ReceiveMessageRequest) -> pb.ReceiveRequest:
    """Return the request to our service, without a wait.

    Raises:
        CodedRefusal: a field is not permitted.
    """
    group, topic = group_name(request.group), topic_name(request.message_queue.topic)
    invisible_ms = _milliseconds(request.invisible_duration)
    if request.auto_renew:
        invisible_ms = INVISIBLE_MS
    if not _INVISIBLE_MS_MIN <= invisible_ms <= _INVISIBLE_MS_MAX:
        text = f"invisible_duration: expected 10 s to 12 h, found {invisible_ms} ms"
        raise CodedRefusal(mq.ILLEGAL_INVISIBLE_TIME, text)
    if request.batch_size < 1:
        raise CodedRefusal(mq.BAD_REQUEST, f"batch_size: expected at least 1, found {request.batch_size}")
    return pb.ReceiveRequest(
        group=group,
        topic=topic,
        max_messages=min(request.batch_size, BATCH_MAX),
        invisible_ms=invisible_ms,
        form=pb.MESSAGE_FORM_RECORDS,
        attempt_id=request.attempt_id,
        **filter_fields(_expression(request.filter_expression)),
    )


def _expression(given: mq.FilterExpression) -> str:
    """Return the checked expression of a filter; without one all messages are wanted.

    Raises:
        CodedRefusal: ILLEGAL_FILTER_EXPRESSION.
    """
    expression = Sql92(given.expression) if given.type == mq.SQL else given.expression or "*"
    try:
        parse_filter(expression)
    except (IllegalMessage, IllegalRequest) as error:
        raise CodedRefusal(mq.ILLEGAL_FILTER_EXPRESSION, str(error)) from error
    return expression


def _milliseconds(duration: Duration) -> int:
    return duration.seconds * 1_000 + duration.nanos // 1_000_000


def _handle_of(text: str) -> Handle:
    """Return the content of a receipt handle.

    Raises:
        CodedRefusal: INVALID_RECEIPT_HANDLE, after which clients do not repeat the request.
    """
    try:
        return decode_handle(text)
    except IllegalRequest as error:
        raise CodedRefusal(mq.INVALID_RECEIPT_HANDLE, str(error)) from error


def _refusal_of(handle: str) -> mq.Status | None:
    try:
        _handle_of(handle)
    except CodedRefusal as refusal:
        return mq.Status(code=refusal.code, message=refusal.text)
    return None


def _ack_status(outcome: pb.AckOutcome.ValueType) -> mq.Status:
    if outcome == pb.ACK_OUTCOME_STALE:
        return mq.Status(code=mq.INVALID_RECEIPT_HANDLE, message="the message was given to another consumer since")
    return ok()
