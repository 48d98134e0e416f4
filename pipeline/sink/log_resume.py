"""Finds the rows of a partition that an earlier attempt stored; used by `exactlyOnce`.

A broker recognises a UNIQ_KEY in its dedupe window. The window is bounded, and a failed query may be restarted days
later. So the writer also queries the key index of the brokers, which contains every key in the log:

1. The chunk with the partition's first row is sent first, and no other chunk is sent before it is answered. So if the
   first row is not stored, no row is: a partition that is written for the first time needs one query.
2. If the first row is stored, each chunk is looked up before it is sent. A chunk is stored completely or not at all,
   unless rows are divided into chunks in another way than before (the number of queues has changed). In that case the
   first chunk is stored in part, unless its rows went to a single queue before as well. After a chunk that is stored in
   part, rows are looked up one by one.

Messages of an earlier attempt that are still in flight are in neither the log nor the index yet; the window recognises
them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self

from cluster.client.routing.connection import BrokerConnection, Endpoints
from cluster.protocol.errors import Reason, RequestFailed
from cluster.v1.broker_pb2 import (
    MESSAGE_FORM_COLUMNS,
    BrokerStatusRequest,
    BrokerStatusResponse,
    GetRequest,
    QueryByIdRequest,
)
from commitlog.record.properties import RawProperties
from pipeline.common.errors import BadOption
from store.model.message import UNIQUE_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.client.routing.broker_nodes import BrokerNodes
    from cluster.client.routing.queue_choice import BrokerQueue
    from dledger.security.settings import Security

_TIMEOUT_S: Final = 30.0
_QUESTIONS_MAX: Final = 64


class StoredRows:
    """Queries the brokers of a writer for stored rows. Used in the writer's event loop, with `async with`.

    Args:
        endpoints, name_servers, security: see `cluster.client.producer.producer.Producer`.
    """

    def __init__(self, endpoints: Endpoints, name_servers: Endpoints, security: Security) -> None:
        self._connection = BrokerConnection(endpoints, name_servers, security)
        self._is_cut_alike = True

    async def __aenter__(self) -> Self:
        """Return itself."""
        await self._connection.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close all connections."""
        await self._connection.__aexit__(*error)

    async def check_broker(self, queue: BrokerQueue) -> None:
        """Check that a broker can find messages by key.

        Raises: BadOption: the broker has no dedupe window, or no key index. RequestFailed: the broker does not answer.
        """
        nodes = await self._nodes(queue)
        status: BrokerStatusResponse = await nodes.call(
            queue.broker, lambda stub: stub.Status, BrokerStatusRequest(), _TIMEOUT_S
        )
        if not status.dedupe_window_count or not status.is_index_enabled:
            lacking = "dedupe_window_count = 0" if status.is_index_enabled else "message_index_enable = false"
            remedy = "Set it on all nodes of that broker, or leave exactlyOnce out: messages may come twice then"
            expected = f"a broker {queue.broker} that recognises messages"
            raise BadOption("exactlyOnce", expected, lacking, remedy)

    async def stored(self, queue: BrokerQueue, keys: Sequence[str]) -> set[str]:
        """Return the UNIQ_KEYs of a chunk whose messages are stored.

        Args:
            queue: target of the chunk.
            keys: UNIQ_KEYs of all its messages, in order.

        Raises:
            RequestFailed: the broker does not answer.
        """
        if not self._is_cut_alike:
            return await self._stored_singly(queue, keys)
        first = await self._place(queue, keys[0])
        if first is None:
            if len(keys) == 1 or await self._place(queue, keys[-1]) is None:
                return set()
            self._is_cut_alike = False
            return await self._stored_singly(queue, keys)
        found = await self._keys_from(queue, *first, len(keys))
        # A restored message may have no key.
        missing = [key for key in keys if key and key not in found]
        self._is_cut_alike = not missing
        return found.intersection(keys) | await self._stored_singly(queue, missing)

    async def is_stored(self, queue: BrokerQueue, key: str) -> bool:
        """Return whether the message with this UNIQ_KEY is in the log.

        Raises:
            RequestFailed: the broker does not answer.
        """
        return await self._place(queue, key) is not None

    async def _stored_singly(self, queue: BrokerQueue, keys: Sequence[str]) -> set[str]:
        found: set[str] = set()
        for begin in range(0, len(keys), _QUESTIONS_MAX):
            part = keys[begin : begin + _QUESTIONS_MAX]
            answers = await asyncio.gather(*(self.is_stored(queue, key) for key in part))
            found.update(key for key, is_stored in zip(part, answers, strict=True) if is_stored)
        return found

    async def _place(self, queue: BrokerQueue, key: str) -> tuple[int, int] | None:
        """Return the queue and the offset of a message; None: the message is not stored, or has no key."""
        if not key:
            return None
        nodes = await self._nodes(queue)
        question = QueryByIdRequest(unique_key=key, topic=queue.topic, form=MESSAGE_FORM_COLUMNS)
        try:
            answer = await nodes.call(queue.broker, lambda stub: stub.QueryById, question, _TIMEOUT_S)
        except RequestFailed as failure:
            if failure.reason == Reason.NO_MESSAGE:
                return None
            raise
        columns = answer.columns
        return (columns.queue_ids[0] if columns.queue_ids else 0), columns.queue_offsets[0]

    async def _keys_from(self, queue: BrokerQueue, queue_id: int, offset: int, count: int) -> set[str]:
        """Return the UNIQ_KEYs of up to this many messages of a queue."""
        nodes = await self._nodes(queue)
        found: set[str] = set()
        end = offset + count
        while offset < end:
            request = GetRequest(
                topic=queue.topic,
                queue_id=queue_id,
                offset=offset,
                max_messages=end - offset,
                form=MESSAGE_FORM_COLUMNS,
            )
            answer = await nodes.call(queue.broker, lambda stub: stub.Get, request, _TIMEOUT_S)
            properties = map(RawProperties, answer.columns.properties)
            found.update(filter(None, (each.find(UNIQUE_KEY) for each in properties)))
            if answer.next_offset <= offset:
                break
            offset = answer.next_offset
        return found

    async def _nodes(self, queue: BrokerQueue) -> BrokerNodes:
        await self._connection.find(queue.topic)
        return self._connection.nodes
