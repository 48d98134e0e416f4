"""QueryByKey, QueryById, QueryByTime and Offsets: queries for messages and offsets."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from cluster.api.answers import report_damaged, report_skipped
from cluster.api.message_columns import fill_columns, records_of
from cluster.process.cooperative import run_cooperatively
from cluster.protocol.errors import Reason, RequestFailed
from cluster.v1 import broker_pb2 as pb
from store.access.get_message import GetStatus
from store.access.message_query import FOREVER_MS
from store.errors import CorruptData, IllegalRequest
from store.model.topics import is_closed_topic
from store.queues.offset_by_time import Boundary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.broker.core import BrokerCore
    from cluster.protocol.topic_config import TopicConfig
    from store.access.message_store import MessageStore
    from store.model.message import StoredMessage
    from store.steps import Steps

KEY_COUNT_MAX: Final = 64
TIME_COUNT_MAX: Final = 1_000
_COUNT_DEFAULT: Final = 32
_SIZE_BYTES_MAX: Final = 4 << 20
# Of one read, between which other calls are served.
_READ_SIZE_BYTES_MAX: Final = 1 << 20
# Queue and offset at which a query by time continues.
_CURSOR: Final = struct.Struct(">iq")
# Reads without a result in one query by time, after which it answers with the messages found so far.
_READS_MAX: Final = 64


class QueryCalls:
    """The calls that find messages."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core

    @property
    def _store(self) -> MessageStore:
        return self._core.replica.store

    async def by_key(self, request: pb.QueryByKeyRequest) -> pb.QueryResponse:
        """Return the newest messages that have a key.

        Raises:
            IllegalRequest, RequestFailed: the request cannot be answered.
        """
        await self._core.confirm()
        self._core.readable_topic(request.topic)
        if not request.key:
            raise IllegalRequest("key", "one word of KEYS, or a UNIQ_KEY", "none")
        count = _count(request.max_messages, KEY_COUNT_MAX)
        end_ms = request.end_ms or FOREVER_MS
        # In steps: a client can give a million keys the slot of another.
        result = await run_cooperatively(
            self._store.query_by_key_steps(request.topic, request.key, count, request.begin_ms, end_ms)
        )
        response = _query_response(tuple(reversed(result.messages)), request.form)
        response.is_truncated = not result.is_complete
        response.skipped.extend(report_damaged(self._core, request.topic, result.damaged))
        return response

    async def by_id(self, request: pb.QueryByIdRequest) -> pb.QueryResponse:
        """Return the message with an id.

        Raises:
            IllegalRequest, RequestFailed, store.errors.CorruptData: the request cannot be answered.
        """
        await self._core.confirm()
        is_truncated = False
        if request.WhichOneof("id") == "unique_key":
            self._core.readable_topic(request.topic)
            result = await run_cooperatively(
                self._store.query_by_unique_key_steps(request.topic, request.unique_key, KEY_COUNT_MAX)
            )
            messages: Sequence[StoredMessage] = tuple(reversed(result.messages))
            is_truncated = not result.is_complete
            what = f"topic {request.topic!r} has no message with the UNIQ_KEY {request.unique_key!r}"
            if not result.is_complete:
                what = f"no message with the UNIQ_KEY {request.unique_key!r} was found, but the search ended early"
            if result.damaged and not messages:
                report_damaged(self._core, request.topic, result.damaged)
                first = result.damaged[0]
                raise CorruptData(first.path, first.position, first.expected, first.found)
        else:
            found = self._store.message_by_id(request.message_id)
            # Internal records of the broker are not served to clients.
            messages = (found,) if found is not None and not is_closed_topic(found.topic) else ()
            what = f"this broker does not have message {request.message_id}: it expired, or belongs to another broker"
        if not messages:
            raise RequestFailed(Reason.NO_MESSAGE, what)
        response = _query_response(messages, request.form)
        response.is_truncated = is_truncated
        return response

    async def by_time(self, request: pb.QueryByTimeRequest) -> pb.QueryByTimeResponse:
        """Return messages that were stored in a time range, queue by queue.

        Raises:
            IllegalRequest, RequestFailed: the request cannot be answered.
        """
        await self._core.confirm()
        queue_ids = self._queue_ids(self._core.readable_topic(request.topic), request.queue_ids)
        count = _count(request.max_messages, TIME_COUNT_MAX)
        end_ms = request.end_ms or FOREVER_MS
        if request.begin_ms < 0 or end_ms < request.begin_ms:
            raise IllegalRequest("begin_ms, end_ms", "a time range", f"{request.begin_ms} to {request.end_ms}")
        if not queue_ids:
            return pb.QueryByTimeResponse()
        first = _read_cursor(request.cursor, queue_ids)
        # In steps: each of them may read a megabyte, or search a queue.
        return await run_cooperatively(self._time_steps(request, queue_ids, first, count, end_ms))

    def _time_steps(
        self, request: pb.QueryByTimeRequest, queue_ids: Sequence[int], first: tuple[int, int], count: int, end_ms: int
    ) -> Steps[pb.QueryByTimeResponse]:
        """Read queues from a place on, until enough is found; a step is one read.

        Args:
            request: whose topic and fields are valid.
            queue_ids: of the request, in order.
            first: queue and offset to begin with; -1: the offset of the begin time.
            count: most messages to return.
            end_ms: end of the time range.
        """
        first_queue_id, offset = first
        response = pb.QueryByTimeResponse()
        found: list[StoredMessage] = []
        size_bytes, reads = 0, 0
        for queue_id in queue_ids[queue_ids.index(first_queue_id) :]:
            if offset < 0:
                offset = self._store.offset_by_time(request.topic, queue_id, request.begin_ms)
            while True:
                if len(found) >= count or size_bytes >= _SIZE_BYTES_MAX or reads >= _READS_MAX:
                    return _time_response(response, found, request.form, _CURSOR.pack(queue_id, offset))
                yield
                space = min(_SIZE_BYTES_MAX - size_bytes, _READ_SIZE_BYTES_MAX)
                result = self._store.get(request.topic, queue_id, offset, count - len(found), space)
                reads += 1
                meant = [each for each in result.messages if request.begin_ms <= each.store_timestamp < end_ms]
                found += meant
                size_bytes += sum(each.size for each in meant)
                # Their timestamps are not known: they may be in the range.
                response.skipped.extend(report_skipped(self._core, request.topic, queue_id, result.skipped))
                is_at_end = result.next_begin_offset <= offset and result.status is not GetStatus.OFFSET_TOO_SMALL
                offset = result.next_begin_offset
                if is_at_end or any(each.store_timestamp >= end_ms for each in result.messages):
                    break
            offset = -1
        return _time_response(response, found, request.form, b"")

    async def offsets(self, request: pb.OffsetsRequest) -> pb.OffsetsResponse:
        """Return the first and the end offset of queues.

        Raises:
            IllegalRequest, RequestFailed: the request cannot be answered.
        """
        await self._core.confirm()
        queue_ids = self._queue_ids(self._core.known_topic(request.topic), request.queue_ids)
        topic, store = request.topic, self._store
        boundary = Boundary.UPPER if request.boundary == pb.TIME_BOUNDARY_UPPER else Boundary.LOWER
        response = pb.OffsetsResponse(queue_ids=queue_ids)

        def look() -> Steps[None]:
            for each in queue_ids:
                yield
                if request.timestamp_ms:
                    by_time = store.offset_by_time(topic, each, request.timestamp_ms, boundary)
                    response.offsets_by_time.append(by_time)
                response.min_offsets.append(store.min_offset(topic, each))
                response.max_offsets.append(store.max_offset(topic, each))
                response.earliest_timestamps.append(store.earliest_message_time(topic, each))

        # In steps: a topic may have thousands of queues, each of which is searched.
        await run_cooperatively(look())
        return response

    def _queue_ids(self, topic: TopicConfig, asked: Sequence[int]) -> list[int]:
        """Return the queues of a request: those that it lists, or all."""
        count = max(topic.read_queues, topic.write_queues)
        for queue_id in asked:
            self._core.check_queue(topic, queue_id, count)
        return list(asked) or list(range(count))


def _count(asked: int, maximum: int) -> int:
    if asked < 0:
        raise IllegalRequest("max_messages", "at least 0", str(asked))
    return min(asked or _COUNT_DEFAULT, maximum)


def _read_cursor(cursor: bytes, queue_ids: Sequence[int]) -> tuple[int, int]:
    """Return the queue to begin with, and the offset in it; -1: the offset of the begin time."""
    if not cursor:
        return queue_ids[0], -1
    if len(cursor) == _CURSOR.size:
        queue_id, offset = _CURSOR.unpack(cursor)
        if queue_id in queue_ids and offset >= 0:
            return queue_id, offset
    raise IllegalRequest("cursor", "the cursor of the last response, with the same queues", cursor.hex()[:80])


def _query_response(messages: Sequence[StoredMessage], form: int) -> pb.QueryResponse:
    if form == pb.MESSAGE_FORM_RECORDS:
        return pb.QueryResponse(records=records_of(messages))
    response = pb.QueryResponse()
    fill_columns(response.columns, messages)
    return response


def _time_response(
    response: pb.QueryByTimeResponse, messages: Sequence[StoredMessage], form: int, cursor: bytes
) -> pb.QueryByTimeResponse:
    if form == pb.MESSAGE_FORM_RECORDS:
        response.records = records_of(messages)
    else:
        fill_columns(response.columns, messages)
    response.cursor = cursor
    return response
