"""Requests for messages: 12 by key or unique key, 33 by physical offset, 321 units of a queue.

Records are those of the log, unchanged. A message by its offset is read on this node, whichever stored it: clients ask
the node in the message's id, which may be no leader any more. Source: RocketMQ `QueryMessageProcessor`.
"""

# ruff: noqa: ARG002  (every handler gets the request and the client)
from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from cluster.protocol.errors import Reason, RequestFailed
from cluster.remoting.admin.answers import BODY_BYTES_MAX, LIMIT_S, NAME_LENGTH_MAX, answer
from cluster.remoting.command import Rejected, RemotingCode, Response
from cluster.remoting.fields import bool_of, int_of, text_of
from cluster.remoting.records import committed_record
from cluster.v1 import broker_pb2 as pb
from store.model.message import QueueKey

if TYPE_CHECKING:
    from cluster.broker.core import BrokerCore
    from cluster.fronts.leader_link import LeaderLink
    from cluster.remoting.command import Request
    from cluster.remoting.front import Handler, RemotingClient

_LONG_MAX: Final = (1 << 63) - 1
_KEY_LENGTH_MAX: Final = 32_767
_MESSAGES_MAX: Final = 64
_UNITS_MAX: Final = 1_000
_SIZE: Final = struct.Struct(">i")


class AdminMessages:
    """Handlers of requests for messages.

    Args:
        core: of this node.
        link: to the leader.
    """

    def __init__(self, core: BrokerCore, link: LeaderLink) -> None:
        self._core = core
        self._link = link

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request codes."""
        return {12: self._by_key, 33: self._by_offset, 321: self._units}

    async def _by_key(self, request: Request, client: RemotingClient) -> Response:
        fields = request.fields
        topic, key = text_of(fields, "topic", NAME_LENGTH_MAX), text_of(fields, "key", _KEY_LENGTH_MAX)
        begin_ms = int_of(fields, "beginTimestamp", -_LONG_MAX, _LONG_MAX, 0)
        end_ms = int_of(fields, "endTimestamp", -_LONG_MAX, _LONG_MAX, 0)
        count = int_of(fields, "maxNum", 0, _LONG_MAX, _MESSAGES_MAX)
        try:
            if bool_of(fields, "_UNIQUE_KEY_QUERY"):
                by_id = pb.QueryByIdRequest(unique_key=key, topic=topic, form=pb.MESSAGE_FORM_RECORDS)
                found = await self._link.call(lambda stub: stub.QueryById, by_id, LIMIT_S)
            else:
                by_key = pb.QueryByKeyRequest(
                    topic=topic,
                    key=key,
                    max_messages=min(count, _MESSAGES_MAX),
                    begin_ms=max(begin_ms, 0),
                    end_ms=max(end_ms, 0),
                    form=pb.MESSAGE_FORM_RECORDS,
                )
                found = await self._link.call(lambda stub: stub.QueryByKey, by_key, LIMIT_S)
        except RequestFailed as failure:
            if failure.reason is Reason.NO_MESSAGE:
                raise _no_message(key) from failure
            raise
        if not found.records:
            raise _no_message(key)
        end = {
            "indexLastUpdatePhyoffset": str(self._core.replica.store.derived.dispatcher.offset),
            "indexLastUpdateTimestamp": str(self._core.clock_ms()),
        }
        return Response(fields=end, body=whole_records(found.records, BODY_BYTES_MAX))

    async def _by_offset(self, request: Request, client: RemotingClient) -> Response:
        return Response(body=committed_record(self._core, int_of(request.fields, "offset", 0, _LONG_MAX)))

    async def _units(self, request: Request, client: RemotingClient) -> Response:
        topic = text_of(request.fields, "topic", NAME_LENGTH_MAX)
        queue_id = int_of(request.fields, "queueId", 0, (1 << 31) - 1)
        index = int_of(request.fields, "index", -_LONG_MAX, _LONG_MAX, 0)
        count = int_of(request.fields, "count", 0, (1 << 31) - 1, 10)
        queue = self._core.replica.store.derived.queues.get(QueueKey(topic, queue_id))
        if queue is None:
            raise Rejected(RemotingCode.SYSTEM_ERROR, f"topic {topic!r} has no message in queue {queue_id}")
        begin = min(max(index, queue.min_offset), queue.max_offset)
        units = queue.unit_tuples(begin, min(count, _UNITS_MAX))
        return answer(
            {
                "filterData": "null",
                "maxQueueIndex": queue.max_offset,
                "minQueueIndex": queue.min_offset,
                "queueData": [
                    {"eval": False, "physicOffset": offset, "physicSize": size, "tagsCode": code}
                    for offset, size, code in units
                ],
            }
        )


def whole_records(records: bytes, size_bytes_max: int) -> bytes:
    """Return the first records of several that are together at most so large; each begins with its size."""
    end = 0
    while end < len(records):
        (size,) = _SIZE.unpack_from(records, end)
        if end + size > size_bytes_max:
            break
        end += size
    return records[:end]


def _no_message(key: str) -> Rejected:
    return Rejected(RemotingCode.QUERY_NOT_FOUND, f"no message with the key {key[:80]!r} was found")
