"""Sends and recalls: puts of the leader, and the answers with the ids that clients decode.

A put whose outcome is unknown is repeated until the limit, and recognised by its UNIQ_KEYs; then the answer is a code
that clients repeat. The codes 10, 11 and 12, by which RocketMQ says that a message may be stored, are never answered:
applications would have to repeat such a send themselves.

Source: RocketMQ `SendMessageProcessor`, `RecallMessageProcessor`.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.process.cooperative import Pace
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.recall_handle import decode_recall_handle
from cluster.protocol.topic_config import GroupConfig
from cluster.remoting.command import Rejected, RemotingCode, Response
from cluster.remoting.fields import text_of
from cluster.remoting.own_names import probe_topics
from cluster.remoting.producers.batches import BatchedMessage, decode_batch
from cluster.remoting.producers.headers import SendHeader, send_header
from cluster.remoting.producers.retried import is_dead, retried_properties
from cluster.remoting.producers.stored_properties import REGION_FIELDS
from cluster.v1 import broker_pb2 as pb
from commitlog.record.properties import decode_properties
from commitlog.record.timer_properties import DELAY_MS, DELAY_SEC, DELIVER_MS
from store.errors import IllegalMessage, IllegalRequest
from store.model.message import DELAY, TRANSACTION
from store.model.sys_flag import COMPRESSED, COMPRESSION_MASK, MULTI_TAGS, TRANSACTION_PREPARED_TYPE
from store.model.topics import AUTO_CREATE_TOPIC, DLQ_PREFIX, RETRY_PREFIX, check_topic, is_closed_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.broker.core import BrokerCore
    from cluster.fronts.leader_link import LeaderLink
    from cluster.remoting.command import Request
    from cluster.remoting.front import RemotingClient
    from cluster.remoting.producers.stored_properties import PropertyRule, StoredProperties

# Below the 3 s for which clients wait.
LIMIT_S: Final = 2.5
BODY_BYTES_MAX: Final = 4 << 20
# Of one put; a batch with more becomes several, one after the other.
PUT_MESSAGES_MAX: Final = 4_096
# Batches that are decoded at the same time.
BATCHES_MAX: Final = 16
_HALF_EXPECTED: Final = f"properties: expected {TRANSACTION}=true with the sysFlag of a transaction, and one message"
_DELAYS: Final = frozenset({DELAY, DELAY_SEC, DELAY_MS, DELIVER_MS})
_VERSION_1: Final = frozenset({10, 324})
_KEPT_BITS: Final = COMPRESSED | MULTI_TAGS | COMPRESSION_MASK
_HANDLE_LENGTH_MAX: Final = 1_024
_TOPIC_LENGTH_MAX: Final = 255


class _Target(NamedTuple):
    """Where messages are put."""

    topic: str
    queue_id: int


class _Stored(NamedTuple):
    """Puts of one send, in order."""

    ids: list[str]
    queue_id: int
    queue_offset: int
    recall_handle: str


class MessageSends:
    """The requests 10, 310, 320 and 370.

    Args:
        core: rules of the broker.
        link: to the leader.
        rule: completes properties.
    """

    def __init__(self, core: BrokerCore, link: LeaderLink, rule: PropertyRule) -> None:
        self._core = core
        self._link = link
        self._rule = rule
        self._turn = 0
        self._batches = asyncio.Semaphore(BATCHES_MAX)

    async def send(self, request: Request, _: RemotingClient) -> Response:
        """Store a message, or a batch.

        Raises:
            Rejected, RequestFailed: nothing was stored, unless the certainty is unknown.
        """
        header = send_header(request.fields, is_short=request.code not in _VERSION_1)
        try:
            return await self._send(header, request.body)
        except (IllegalMessage, IllegalRequest) as error:
            raise Rejected(RemotingCode.MESSAGE_ILLEGAL, str(error)) from error
        except RequestFailed as failure:
            # Clients repeat other codes, without success.
            if failure.reason is Reason.UNSUPPORTED:
                raise Rejected(RemotingCode.MESSAGE_ILLEGAL, failure.message) from failure
            raise

    async def _send(self, header: SendHeader, body: bytes) -> Response:
        deadline = time.monotonic() + LIMIT_S
        _check_name(header.topic)
        if len(body) > BODY_BYTES_MAX:
            raise Rejected(RemotingCode.MESSAGE_ILLEGAL, f"body: expected at most {BODY_BYTES_MAX} bytes")
        if header.topic.startswith(RETRY_PREFIX):
            header, target = await self._retried(header, deadline)
        else:
            target = _Target(header.topic, await self._queue(header, deadline))
        if header.is_batch:
            return await self._send_batch(header, target, body, deadline)
        messages = [BatchedMessage(header.flag, body, header.properties)]
        properties = [self._rule.stored(header.properties)]
        is_half = _is_half(properties[0].raw)
        if header.sys_flag & TRANSACTION_PREPARED_TYPE and not is_half:
            raise Rejected(RemotingCode.MESSAGE_ILLEGAL, _HALF_EXPECTED)
        stored = await self._put(header, target, messages, properties, deadline)
        return _response(header, stored, properties[0].unique_key, is_half=is_half)

    async def _send_batch(self, header: SendHeader, target: _Target, body: bytes, deadline: float) -> Response:
        """Store a batch; of all clients, only some at a time, because messages take more memory than their bytes.

        Raises:
            Rejected, RequestFailed: as `send`.
        """
        if header.sys_flag & TRANSACTION_PREPARED_TYPE:
            raise Rejected(RemotingCode.MESSAGE_ILLEGAL, _HALF_EXPECTED)
        # Each message has properties of its own, and a delay there; that of the batch would be lost.
        delays = sorted(_DELAYS & decode_properties(header.properties).keys())
        if delays:
            raise Rejected(RemotingCode.MESSAGE_ILLEGAL, f"batch: expected no delay of all messages, found {delays[0]}")
        try:
            async with asyncio.timeout(_left_s(deadline)):
                await self._batches.acquire()
        except TimeoutError:
            raise Rejected(RemotingCode.SYSTEM_BUSY, "too many batches are being stored; nothing was done") from None
        try:
            messages, properties, pace = decode_batch(body), [], Pace()
            for each in messages:
                properties.append(self._rule.stored(each.properties))
                await pace.yield_if_due()
            stored = await self._put(header, target, messages, properties, deadline)
        finally:
            self._batches.release()
        return _response(header, stored, properties[0].unique_key, is_half=False)

    async def _put(
        self,
        header: SendHeader,
        target: _Target,
        messages: Sequence[BatchedMessage],
        properties: Sequence[StoredProperties],
        deadline: float,
    ) -> _Stored:
        ids: list[str] = []
        first = pb.PutResponse()
        for begin in range(0, len(messages), PUT_MESSAGES_MAX):
            part = messages[begin : begin + PUT_MESSAGES_MAX]
            put = pb.PutRequest(
                topic=target.topic,
                queue_ids=[target.queue_id],
                bodies=[each.body for each in part],
                properties=[each.raw for each in properties[begin : begin + PUT_MESSAGES_MAX]],
                flags=[each.flag for each in part],
                sys_flags=[header.sys_flag & _KEPT_BITS],
                born_timestamps=[header.born_ms],
                reconsume_times=[header.reconsume_times] * len(part) if header.reconsume_times else (),
            )
            stored = await self._link.put(put, _left_s(deadline))
            first = stored if not begin else first
            ids += _message_ids(stored)
        queue_id = first.queue_ids[0] if first.queue_ids else target.queue_id
        return _Stored(ids, queue_id, first.queue_offsets[0], next(iter(first.recall_handles), ""))

    async def _queue(self, header: SendHeader, deadline: float) -> int:
        """Return the queue of a message, whose topic is created if the client may do that, or if tools expect it.

        Raises:
            RequestFailed: UNKNOWN_TOPIC; or the leader does not answer.
        """
        topic = self._core.replica.state.topics.get(header.topic)
        queues = None if topic is None else topic.write_queues
        is_made = queues is None and await self._create_expected(header, deadline)
        if queues is None and not is_made and self._core.options.auto_create_topic_enable:
            # The put itself would create the topic, whatever topic the send names for that.
            queues = await self._queues_at_leader(header.topic, deadline)
        if header.queue_id >= 0:
            return header.queue_id
        if queues is None:
            queues = await self._queues_at_leader(header.topic, deadline)
        self._turn += 1
        return self._turn % max(queues, 1)

    async def _create_expected(self, header: SendHeader, deadline: float) -> bool:
        """Create the topic of a send if that may be; return whether it exists now for certain."""
        name, options = header.topic, self._core.options
        if name in probe_topics(options):
            await self._create(name, 1, deadline)
        elif options.auto_create_topic_enable and header.default_topic == AUTO_CREATE_TOPIC:
            count = options.default_topic_queue_nums
            await self._create(name, min(header.default_queues or count, count), deadline)
        else:
            return False
        return True

    async def _queues_at_leader(self, name: str, deadline: float) -> int:
        """Return the number of queues of a topic, as the leader has it."""
        request = pb.ListTopicsRequest(topic=name)
        found = await self._link.call(lambda stub: stub.ListTopics, request, _left_s(deadline))
        return found.topics[0].write_queues

    async def _retried(self, header: SendHeader, deadline: float) -> tuple[SendHeader, _Target]:
        """Return the header and the place of a message that a consumer returns.

        Raises:
            Rejected: there is no such group, or it is a batch.
        """
        if header.is_batch:
            raise Rejected(RemotingCode.MESSAGE_ILLEGAL, "batch: expected an ordinary topic, found a retry topic")
        name = header.topic.removeprefix(RETRY_PREFIX)
        group = self._core.replica.state.groups.get(name)
        if group is None:
            if not self._core.options.auto_create_subscription_group:
                raise Rejected(RemotingCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"there is no group {name[:80]!r}")
            group = GroupConfig(name)
        is_lost = is_dead(group, header.reconsume_times, header.max_reconsume_times, header.properties)
        properties = retried_properties(header.properties, is_dead_letter=is_lost)
        target = _Target(DLQ_PREFIX + name, 0) if is_lost else _Target(header.topic, max(header.queue_id, 0))
        if target.topic not in self._core.replica.state.topics:
            await self._create(target.topic, 1 if is_lost else group.retry_queues, deadline)
        return header._replace(properties=properties), target

    async def _create(self, name: str, queues: int, deadline: float) -> None:
        """Create a topic; one that exists stays as it is."""
        topic = pb.Topic(name=name, read_queues=queues, write_queues=queues, permission=6)
        request = pb.SetTopicRequest(topic=topic, is_new=True)
        try:
            await self._link.call(lambda stub: stub.SetTopic, request, _left_s(deadline))
        except RequestFailed as failure:
            if failure.reason is not Reason.TOPIC_EXISTS:
                raise

    async def recall(self, request: Request, _: RemotingClient) -> Response:
        """Take a message back that waits for its time.

        Raises:
            Rejected: ILLEGAL_OPERATION: it does not wait, or the handle is not valid.
            RequestFailed: it is not certain that it is recalled.
        """
        topic = text_of(request.fields, "topic", _TOPIC_LENGTH_MAX)
        handle = text_of(request.fields, "recallHandle", _HANDLE_LENGTH_MAX)
        try:
            unique_key = decode_recall_handle(handle).unique_key
            recall = pb.RecallMessageRequest(topic=topic, recall_handle=handle)
            found = await self._link.call(lambda stub: stub.RecallMessage, recall, LIMIT_S)
        except IllegalRequest as error:
            raise Rejected(RemotingCode.ILLEGAL_OPERATION, str(error)) from error
        except RequestFailed as failure:
            if failure.reason is Reason.ILLEGAL_REQUEST:
                raise Rejected(RemotingCode.ILLEGAL_OPERATION, failure.message) from failure
            raise
        if found.outcome != pb.RECALL_OUTCOME_RECALLED:
            raise Rejected(RemotingCode.ILLEGAL_OPERATION, "the message does not wait: it was delivered, or deleted")
        return Response(fields={"msgId": unique_key})


def _check_name(topic: str) -> None:
    try:
        check_topic(topic)
    except IllegalMessage as error:
        raise Rejected(RemotingCode.INVALID_PARAMETER, str(error)) from error
    if is_closed_topic(topic):
        raise Rejected(RemotingCode.NO_PERMISSION, f"topic {topic!r} is one of the broker itself: choose another one")


def _is_half(properties: bytes) -> bool:
    mark = TRANSACTION.encode()
    return mark in properties and decode_properties(properties).get(TRANSACTION, "").lower() == "true"


def _left_s(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.0)


def _message_ids(stored: pb.PutResponse) -> list[str]:
    """Return the offset message id of each message: address, port and physical offset, in hexadecimal digits."""
    hosts = stored.store_hosts or [stored.store_host] * len(stored.physical_offsets)
    pairs = zip(hosts, stored.physical_offsets, strict=True)
    return [f"{host.hex().upper()}{offset:016X}" for host, offset in pairs]


def _response(header: SendHeader, stored: _Stored, unique_key: str, *, is_half: bool) -> Response:
    fields = {
        "msgId": ",".join(stored.ids),
        # The producer of a transaction gets the queue that it asked for.
        "queueId": str(header.queue_id if is_half else stored.queue_id),
        "queueOffset": str(stored.queue_offset),
        **REGION_FIELDS,
    }
    if not header.is_batch:
        fields["transactionId"] = unique_key
    if stored.recall_handle:
        fields["recallHandle"] = stored.recall_handle
    return Response(fields=fields)
