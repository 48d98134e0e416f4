"""Returns messages to their brokers, which deliver them again later, or move them to the dead letters of the group."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from cluster.protocol.errors import Reason, RequestFailed
from cluster.v1.broker_pb2 import ReturnMessageRequest
from dledger.client.retry import Backoff
from store.errors import Certainty

if TYPE_CHECKING:
    from cluster.client.consumer.received import ReceivedMessage
    from cluster.client.routing.broker_nodes import BrokerNodes

# Longer than an election; meanwhile nothing else of this consumer is processed.
_LIMIT_S: Final = 30.0


class MessageReturns:
    """The calls of one consumer that return messages.

    Args:
        group: of the consumer.
        nodes: the connections.
        max_attempts: deliveries after which a message becomes a dead letter; 0: those of the group.
    """

    def __init__(self, group: str, nodes: BrokerNodes, max_attempts: int) -> None:
        self._group = group
        self._nodes = nodes
        self._max_attempts = max_attempts

    async def send(self, message: ReceivedMessage, delay_level: int) -> str:
        """Return one message; return the topic of its copy.

        The request is repeated while its outcome is unknown: the broker recognises it.

        Raises:
            RequestFailed: it was refused, or was not answered in time; the message must not be acknowledged.
        """
        request = ReturnMessageRequest(
            group=self._group,
            topic=message.topic,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            physical_offset=message.physical_offset,
            delay_level=delay_level,
        )
        if self._max_attempts:
            request.max_reconsume_times = self._max_attempts - 1
        deadline, backoff = time.monotonic() + _LIMIT_S, Backoff()
        while True:
            left_s = deadline - time.monotonic()
            try:
                response = await self._nodes.call(message.broker, lambda stub: stub.ReturnMessage, request, left_s)
            except RequestFailed as failure:
                pause_s = backoff.next_s(failure.repeat_after_s)
                if not _is_worth_repeating(failure) or time.monotonic() + pause_s >= deadline:
                    raise
            else:
                return response.topic
            await asyncio.sleep(pause_s)


def _is_worth_repeating(failure: RequestFailed) -> bool:
    is_unknown = failure.certainty is Certainty.UNKNOWN and failure.reason is not Reason.CORRUPT_DATA
    return is_unknown or failure.is_worth_repeating
