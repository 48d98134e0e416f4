"""The asyncio interface of the requester.

The path of a request: `request` → `AsyncProducer.send` → a consumer, which calls `reply` of its producer → the reply
topic of the cluster → this requester's `AsyncConsumer`, which gets only the replies to it → the caller.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from typing import TYPE_CHECKING, Self

from cluster.client.consumer.async_consumer import AsyncConsumer
from cluster.client.consumer.options import ConsumerOptions
from cluster.client.producer.async_producer import AsyncProducer
from cluster.client.producer.options import ProducerOptions
from cluster.client.requests.awaited_replies import AwaitedReplies, closed
from cluster.process.tasks import end_tasks
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.request_reply import CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT, TTL, reply_topic
from dledger.security.settings import PLAIN
from store.errors import Certainty

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cluster.client.consumer.received import ReceivedMessage
    from cluster.client.requests.options import RequesterOptions
    from cluster.client.routing.connection import Endpoints
    from dledger.security.settings import Security

logger = logging.getLogger(__name__)

# Replies are read from this long before the first request, so that none is missed while the streams are opened; the
# clock of this machine may differ from that of the brokers by as much.
_CLOCKS_DIFFER_MS = 600_000
_POLL_S = 60.0
_PAUSE_S = 1.0


class AsyncRequester:
    """Sends requests and waits for their replies. Created by `async with Requester(...)`; for use by one event loop.

    Attributes:
        client_id: the id in its requests, by which replies come back.
    """

    def __init__(
        self, endpoints: Endpoints, name_servers: Endpoints, options: RequesterOptions, security: Security = PLAIN
    ) -> None:
        self.client_id = f"requester-{secrets.token_hex(12)}"
        self._options = options
        self._topic = reply_topic(options.cluster)
        self._producer = AsyncProducer(endpoints, name_servers, ProducerOptions(), security)
        start_ms = max(time.time_ns() // 1_000_000 - _CLOCKS_DIFFER_MS, 1)
        self._consumer = AsyncConsumer(
            endpoints,
            name_servers,
            options.group,
            {self._topic: self.client_id},
            self.client_id,
            ConsumerOptions(mode="broadcast", start=start_ms),
            security,
        )
        self._pending = AwaitedReplies(self.client_id, options.pending_max)
        self._opening = asyncio.Lock()
        self._receiving: asyncio.Task[None] | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        """Open; the reply topic is read from the first request on."""
        await self._producer.__aenter__()
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close."""
        await self.close()

    async def request(
        self,
        topic: str,
        body: bytes,
        *,
        timeout_s: float = 3.0,
        tags: str = "",
        keys: str | Sequence[str] = (),
        queue_key: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> ReceivedMessage:
        """Send one message and return the reply to it.

        Args:
            topic: its topic, of whose consumers one replies.
            body: the payload; may be empty.
            timeout_s: limit of sending and waiting together, in seconds.
            tags: its tag, by which consumers can filter.
            keys: search keys, by which queries find it.
            queue_key: messages with the same key go to the same queue, in order; None: round robin.
            properties: further names and values.

        Raises:
            MessageNotAppended: it was not stored, and never will be.
            MessageAppendUnknown: it may have been stored, and may be processed.
            RequestFailed: REPLY_TIMED_OUT: it was stored, and may have been processed; NO_REPLY_TOPIC: the cluster has
                no topic for replies, and nothing was sent; CLIENT_QUEUE_FULL: too many are pending; CLIENT_CLOSED.
        """
        if self._is_closed:
            raise closed()
        deadline = time.monotonic() + timeout_s
        correlation_id = secrets.token_hex(16)
        reply = self._pending.add(correlation_id)
        own = {
            CORRELATION_ID: correlation_id,
            REPLY_TO_CLIENT: self.client_id,
            TTL: str(max(int(timeout_s * 1000), 1)),
            CLUSTER: self._options.cluster,
        }
        try:
            await self._listen(deadline)
            await self._producer.send(
                topic,
                body,
                tags=tags,
                keys=keys,
                queue_key=queue_key,
                properties={**(properties or {}), **own},
                deadline_s=max(deadline - time.monotonic(), 0.0),
            )
            async with asyncio.timeout(deadline - time.monotonic()):
                return await reply
        except TimeoutError:
            text = f"no reply to a request to {topic} in {timeout_s:g} s; it was stored, and may have been processed"
            raise RequestFailed(Reason.REPLY_TIMED_OUT, text) from None
        finally:
            self._pending.remove(correlation_id)
            if not reply.cancel() and not reply.cancelled():
                reply.exception()  # retrieved: asyncio would log it

    async def close(self) -> None:
        """Fail the pending requests, and close all connections. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._pending.close()
        async with self._opening:
            if self._receiving is not None:
                await end_tasks([self._receiving])
                await self._consumer.close()
        await self._producer.close()

    async def _listen(self, deadline: float) -> None:
        """Begin to read replies, at the first request.

        Raises:
            RequestFailed: NO_REPLY_TOPIC; or no node that knows routes answered in time.
        """
        if self._receiving is not None:
            return
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await self._producer.queues(self._topic)
        except TimeoutError:
            text = f"no node that knows routes of {self._topic} answered in time; nothing was sent"
            raise RequestFailed(Reason.NOT_REACHED, text, certainty=Certainty.NOT_APPENDED) from None
        except RequestFailed as failure:
            if failure.reason is not Reason.UNKNOWN_TOPIC:
                raise
            create = f"`dledger topic create {self._topic} --queues 1` creates it; or correct `cluster`"
            text = f"there is no topic {self._topic} for replies; {create}. Nothing was sent"
            raise RequestFailed(Reason.NO_REPLY_TOPIC, text) from None
        async with self._opening:
            if self._is_closed:
                raise closed()
            if self._receiving is None:
                await self._consumer.__aenter__()
                self._receiving = asyncio.create_task(self._receive())

    async def _receive(self) -> None:
        while True:
            try:
                messages = await self._consumer.poll(timeout_s=_POLL_S)
            except RequestFailed as failure:
                logger.warning("replies_not_read topic=%s: %s", self._topic, failure)
                await asyncio.sleep(_PAUSE_S)
                continue
            for message in messages:
                self._pending.received(message)
