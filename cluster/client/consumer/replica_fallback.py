"""Reads messages that are damaged on the leader's disk from another node of the broker, which stores the same log."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from cluster.client.consumer.received import ReceivedMessage, messages_of
from cluster.client.routing.broker_nodes import CALL_TIMEOUT_S, BrokerNodes
from cluster.protocol.errors import RequestFailed
from cluster.v1.broker_pb2 import MESSAGE_FORM_RECORDS, GetRequest
from dledger.client.retry import Backoff
from dledger.v1.log_pb2 import READ_MODE_LINEARIZABLE
from store.errors import CorruptData

if TYPE_CHECKING:
    from cluster.client.consumer.queue_reader import QueueReader

logger = logging.getLogger(__name__)

_COUNT_MAX: Final = 1_000
_SIZE_BYTES_MAX: Final = 1 << 20
# How long nodes without an answer are retried: long enough for an election; a longer wait would delay all later
# messages of the queue.
_PATIENCE_S: Final = 10.0


class OtherNodes:
    """The other nodes of a broker, used for all messages that one answer of its leader skipped.

    A node that does not answer is retried for ten seconds, and then ignored.

    Args:
        reader: the reader of the queue.
        nodes: the connections.
        damaged_at: the nodes that cannot return the messages.
    """

    def __init__(self, reader: QueueReader, nodes: BrokerNodes, damaged_at: str) -> None:
        self._reader = reader
        self._nodes = nodes
        self._damaged_at = damaged_at
        self._addresses = [address for address in nodes.addresses(reader.queue.broker) if address != damaged_at]
        # The time of the first request to each node that did not answer.
        self._silent_since: dict[str, float] = {}

    @property
    def has_nodes(self) -> bool:
        """Return whether any other node is left to try."""
        return bool(self._addresses)

    async def read(self, begin: int, end: int) -> list[ReceivedMessage]:
        """Return messages of the queue from `begin` on, without a gap; empty if no node has the first of them."""
        left, backoff = list(self._addresses), Backoff()
        while left:
            for address in tuple(left):
                found = await self._ask(address, begin, end)
                if found:
                    self._log_found(found, address)
                    return found
                if found is not None or address not in self._addresses:
                    left.remove(address)
            if left:
                await asyncio.sleep(backoff.next_s())
        return []

    async def _ask(self, address: str, begin: int, end: int) -> list[ReceivedMessage] | None:
        """Return the messages that one node has; None: it did not answer."""
        asked_at = time.monotonic()
        try:
            found = await self._read_at(address, begin, end)
        except (RequestFailed, CorruptData) as error:
            logger.info("not_read_from_replica queue=%s offset=%d: %s", self._reader.queue, begin, error)
            if isinstance(error, RequestFailed) and error.is_worth_repeating:
                if time.monotonic() - self._silent_since.setdefault(address, asked_at) >= _PATIENCE_S:
                    self._addresses.remove(address)
                return None
            found = []
        self._silent_since.pop(address, None)
        return found

    async def _read_at(self, address: str, begin: int, end: int) -> list[ReceivedMessage]:
        """Return the messages that one node has.

        Raises:
            RequestFailed: it does not answer, or refuses.
            store.errors.CorruptData: its answer is not a message.
        """
        queue = self._reader.queue
        # Committed messages are the same on all nodes; the caller checks the tags.
        request = GetRequest(
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=begin,
            max_messages=min(end - begin, _COUNT_MAX),
            max_bytes=_SIZE_BYTES_MAX,
            # A lagging node answers only after it has caught up with the leader, so it never reports messages as
            # missing.
            mode=READ_MODE_LINEARIZABLE,
            form=MESSAGE_FORM_RECORDS,
        )
        response = await self._nodes.call_node(address, lambda stub: stub.Get, request, CALL_TIMEOUT_S)
        messages = messages_of(response.records, self._reader, f"{address}: {queue.topic}")
        return [message for number, message in enumerate(messages) if message.queue_offset == begin + number < end]

    def _log_found(self, found: list[ReceivedMessage], address: str) -> None:
        queue = self._reader.queue
        logger.warning(
            "damaged_messages_read_from_replica topic=%s queue_id=%d offsets=%d-%d damaged_at=%s read_at=%s",
            queue.topic,
            queue.queue_id,
            found[0].queue_offset,
            found[-1].queue_offset,
            self._damaged_at,
            address,
        )
