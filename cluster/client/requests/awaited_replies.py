"""The pending requests of one requester. Pure: futures are its only effect.

A request is consumed at least once, so it may have several replies: the first one counts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.request_reply import CORRELATION_ID, REPLY_TO_CLIENT

if TYPE_CHECKING:
    from cluster.client.consumer.received import ReceivedMessage


class AwaitedReplies:
    """Requests without a reply.

    Args:
        client_id: of the requester.
        count_max: maximum number of pending requests.
    """

    def __init__(self, client_id: str, count_max: int) -> None:
        self._client_id = client_id
        self._count_max = count_max
        self._replies: dict[str, asyncio.Future[ReceivedMessage]] = {}

    def __len__(self) -> int:
        return len(self._replies)

    def add(self, correlation_id: str) -> asyncio.Future[ReceivedMessage]:
        """Return the future of the reply to a new request.

        Raises:
            RequestFailed: CLIENT_QUEUE_FULL: too many are pending.
        """
        if len(self._replies) >= self._count_max:
            text = f"{len(self._replies)} requests are pending in this requester: send fewer at once, or wait for them"
            raise RequestFailed(Reason.CLIENT_QUEUE_FULL, text)
        return self._replies.setdefault(correlation_id, asyncio.get_running_loop().create_future())

    def remove(self, correlation_id: str) -> None:
        """Forget a request: a reply that arrives later is ignored."""
        self._replies.pop(correlation_id, None)

    def received(self, message: ReceivedMessage) -> None:
        """Complete the request that a message replies to; messages that reply to no pending request are ignored."""
        properties = message.properties
        if properties.get(REPLY_TO_CLIENT) != self._client_id:
            return
        future = self._replies.pop(properties.get(CORRELATION_ID, ""), None)
        if future is not None and not future.done():
            future.set_result(message)

    def close(self) -> None:
        """Fail all pending requests with CLIENT_CLOSED; their messages may have been processed."""
        for future in self._replies.values():
            if not future.done():
                future.set_exception(closed())
        self._replies.clear()


def closed() -> RequestFailed:
    """Return the error of a request to a closed requester."""
    return RequestFailed(Reason.CLIENT_CLOSED, "the requester is closed")
