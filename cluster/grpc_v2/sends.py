"""SendMessage, RecallMessage, EndTransaction: from the clients' messages to puts of the leader.

The id of a transaction has the place of its half message after the client's id of the message, so every node, also
after a change of the leader, can end it: `<message id>@<half offset>.<physical offset>`, in hexadecimal digits.

| RPC | calls of our service |
| --- | --- |
| SendMessage | Put |
| RecallMessage | RecallMessage |
| EndTransaction | EndTransaction |

Source: RocketMQ `SendMessageActivity`, `EndTransactionActivity`, `RecallMessageActivity`.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.grpc_v2.names import topic_name
from cluster.grpc_v2.outgoing import STORED_SIZE_MAX, outgoing
from cluster.grpc_v2.status_codes import CodedRefusal, ok, unknown_topic
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.recall_handle import decode_recall_handle
from cluster.rocketmq_v2 import messaging_pb2 as mq
from cluster.v1 import broker_pb2 as pb
from store.errors import IllegalRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cluster.fronts.leader_link import LeaderLink
    from cluster.grpc_v2.outgoing import CheckedMessage
    from cluster.grpc_v2.topics import KnownTopics

_TRANSACTION_ID: Final = re.compile(r"(.+)@([0-9a-f]{1,16})\.([0-9a-f]{1,16})", re.ASCII | re.DOTALL)
_OFFSET_END: Final = 1 << 63
_MS_PER_S: Final = 1_000
# Of one send; that of a put.
_BODIES_BYTES_MAX: Final = 8 << 20
# Larger bodies are decompressed in a thread.
_QUICK_BYTES: Final = 64 << 10
_ENDS: Final = {mq.COMMIT: pb.TRANSACTION_END_COMMIT, mq.ROLLBACK: pb.TRANSACTION_END_ROLLBACK}


class TransactionPlace(NamedTuple):
    """Where a transaction is.

    Attributes:
        message_id: the client's id of its message.
        half_offset: in the half topic.
        physical_offset: in the log.
    """

    message_id: str
    half_offset: int
    physical_offset: int


def encode_transaction_id(place: TransactionPlace) -> str:
    """Return the id of a transaction."""
    return f"{place.message_id}@{place.half_offset:x}.{place.physical_offset:x}"


def decode_transaction_id(text: str) -> TransactionPlace:
    """Return the place of a transaction.

    Raises:
        CodedRefusal: INVALID_TRANSACTION_ID.
    """
    found = _TRANSACTION_ID.fullmatch(text)
    if found is not None:
        place = TransactionPlace(found[1], int(found[2], 16), int(found[3], 16))
        if max(place.half_offset, place.physical_offset) < _OFFSET_END:
            return place
    raise CodedRefusal(
        mq.INVALID_TRANSACTION_ID, f"transaction_id: expected that of a sent message, found {text[:80]!r}"
    )


class Sends:
    """The calls of producers.

    Args:
        link: to the leader.
        topics: of the broker.
        clock_ms: the wall clock, milliseconds since 1970.
        delay_max_s: the longest time for which a message may wait, in seconds.
        turn: number of the first queue; that of each node is another one.
    """

    def __init__(
        self, link: LeaderLink, topics: KnownTopics, clock_ms: Callable[[], int], delay_max_s: int, turn: int
    ) -> None:
        self._link = link
        self._topics = topics
        self._clock_ms = clock_ms
        self._delay_max_s = delay_max_s
        # Of messages without a group: one queue after the other.
        self._turn = turn

    async def send(self, request: mq.SendMessageRequest, limit_s: float) -> mq.SendMessageResponse:
        """Store messages; several are one entry in the answer, as in RocketMQ.

        Raises:
            CodedRefusal, RequestFailed: nothing was stored, unless the certainty is unknown.
        """
        names = {topic_name(message.topic) for message in request.messages}
        if len(names) != 1:
            raise CodedRefusal(
                mq.MESSAGE_CORRUPTED, f"messages: expected some, of one topic, found {len(names)} topics"
            )
        name = names.pop()
        if any(map(_is_slow, request.messages)):
            messages = await asyncio.to_thread(self._checked, request, name)
        else:
            messages = self._checked(request, name)
        topic = await self._topics.topic(name, limit_s)
        if len({message.is_half for message in messages}) > 1:
            raise CodedRefusal(mq.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "messages: only some are transactional")
        put = pb.PutRequest(
            topic=name,
            queue_ids=self._queues(messages, max(topic.write_queues, 1)),
            bodies=[message.body for message in messages],
            properties=[message.properties for message in messages],
            born_timestamps=[message.born_ms or self._clock_ms() for message in messages],
            sys_flags=[message.sys_flag for message in messages],
        )
        try:
            stored = await self._link.put(put, limit_s)
        except RequestFailed as failure:
            if failure.reason is Reason.UNKNOWN_TOPIC:
                raise unknown_topic(name) from failure
            raise
        return _sent(messages, stored)

    def _checked(self, request: mq.SendMessageRequest, topic: str) -> list[CheckedMessage]:
        latest_ms = self._clock_ms() + self._delay_max_s * _MS_PER_S
        messages: list[CheckedMessage] = []
        size_bytes = 0
        for message in request.messages:
            # A small body in GZIP may be a thousand times as large.
            messages.append(outgoing(message, topic, latest_ms))
            size_bytes += messages[-1].size_bytes
            if size_bytes > _BODIES_BYTES_MAX:
                text = f"messages: expected at most {_BODIES_BYTES_MAX} bytes of uncompressed bodies"
                raise CodedRefusal(mq.MESSAGE_BODY_TOO_LARGE, text)
        return messages

    def _queues(self, messages: Sequence[CheckedMessage], count: int) -> list[int]:
        """Return the queue of each message: of a group always the same one, whatever node is asked."""
        self._turn += 1
        return [
            zlib.crc32(message.message_group.encode()) % count if message.message_group else self._turn % count
            for message in messages
        ]

    async def recall(self, request: mq.RecallMessageRequest, limit_s: float) -> mq.RecallMessageResponse:
        """Take a message back that waits for its time.

        Raises:
            CodedRefusal, RequestFailed: it is not certain that it is recalled.
        """
        name = topic_name(request.topic)
        try:
            handle = decode_recall_handle(request.recall_handle)
        except IllegalRequest as error:
            raise CodedRefusal(mq.BAD_REQUEST, str(error)) from error
        recall = pb.RecallMessageRequest(topic=name, recall_handle=request.recall_handle)
        await self._link.call(lambda stub: stub.RecallMessage, recall, limit_s)
        return mq.RecallMessageResponse(status=ok(), message_id=handle.unique_key)

    async def end_transaction(self, request: mq.EndTransactionRequest, limit_s: float) -> mq.EndTransactionResponse:
        """End a transaction; a resolution that is not known yet changes nothing.

        Raises:
            CodedRefusal, RequestFailed: INVALID_TRANSACTION_ID; it is unknown, or has another end.
        """
        name = topic_name(request.topic)
        place = decode_transaction_id(request.transaction_id)
        end = _ENDS.get(request.resolution)
        if end is not None:
            ended = pb.EndTransactionRequest(
                topic=name,
                producer_group=name,
                half_offset=place.half_offset,
                physical_offset=place.physical_offset,
                transaction_id=place.message_id,
                end=end,
            )
            await self._link.call(lambda stub: stub.EndTransaction, ended, limit_s)
        return mq.EndTransactionResponse(status=ok())


def _is_slow(message: mq.Message) -> bool:
    """Return whether the body of a message must be compressed, or decompressed, outside of the event loop."""
    is_packed = message.system_properties.body_encoding == mq.GZIP
    return len(message.body) > (_QUICK_BYTES if is_packed else STORED_SIZE_MAX)


def _sent(messages: Sequence[CheckedMessage], stored: pb.PutResponse) -> mq.SendMessageResponse:
    message_id = ",".join(message.message_id for message in messages)
    # For other messages RocketMQ repeats the id, and clients rely on it.
    transaction_id = message_id
    if messages[0].is_half:
        place = TransactionPlace(messages[0].message_id, stored.queue_offsets[0], stored.physical_offsets[0])
        transaction_id = encode_transaction_id(place)
    entry = mq.SendResultEntry(
        status=ok(),
        message_id=message_id,
        transaction_id=transaction_id,
        offset=stored.queue_offsets[0],
        recall_handle=next(iter(stored.recall_handles), ""),
    )
    return mq.SendMessageResponse(status=ok(), entries=[entry])
