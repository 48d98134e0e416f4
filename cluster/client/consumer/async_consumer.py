"""The asyncio interface of the consumer.

The path of a message: a Subscribe stream → `QueueReader` (bounded buffer of one queue) → `poll` or `async for`.
`rebalance` decides which queues are read; `progress` keeps their consumed offsets.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from cluster.client.consumer.followers import Followers, followers_of
from cluster.client.consumer.message_returns import MessageReturns
from cluster.client.consumer.rebalance import SILENCE_S, Rebalancer
from cluster.client.consumer.received import ReceivedMessage
from cluster.client.routing.connection import BrokerConnection, Endpoints
from cluster.process.tasks import end_tasks
from cluster.protocol.errors import Reason, RequestFailed
from dledger.security.settings import PLAIN
from store.model.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from cluster.client.consumer.delivery_spans import DeliverySpans
    from cluster.client.consumer.options import ConsumerOptions
    from cluster.client.consumer.queue_reader import QueueReader
    from cluster.client.routing.queue_choice import BrokerQueue
    from dledger.security.settings import Security

logger = logging.getLogger(__name__)

_RENEW_S = 20.0
_TICK_S = 1.0
# The commit interval while another consumer waits for a queue whose messages are still being processed.
_HANDOVER_TICK_S = 0.1
# Until a message that failed is processed again by a consumer that keeps the order.
_SUSPENSION_S = 1.0
_CHUNK = 256

Topics = str | Iterable[str] | Mapping[str, str]
Handler = Callable[[ReceivedMessage], Awaitable[None]]


class AsyncConsumer:
    """Reads messages as a member of a group. Created by `async with Consumer(...)`; for use by one event loop.

    Attributes:
        client_id: its id in the group.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        name_servers: Endpoints,
        group: str,
        topics: Topics,
        client_id: str,
        options: ConsumerOptions,
        security: Security = PLAIN,
    ) -> None:
        self.client_id = client_id or f"{socket.gethostname()}@{os.getpid()}#{secrets.token_hex(4)}"
        self._options = options
        self._connection = BrokerConnection(endpoints, name_servers, security)
        self._ready: deque[QueueReader] = deque()
        self._is_ready = asyncio.Event()
        self._failures: deque[RequestFailed] = deque()
        self._refusal: RequestFailed | None = None
        # Messages taken from a reader but not delivered yet; and messages delivered but perhaps not processed yet.
        self._chunk: deque[ReceivedMessage] = deque()
        self._delivered: list[ReceivedMessage] = []
        self._current: ReceivedMessage | None = None
        self._returns = MessageReturns(group, self._connection.nodes, options.max_attempts)
        subscriptions = subscriptions_of(topics)
        if options.has_retries:
            subscriptions[RETRY_PREFIX + group] = "*"
        self._rebalancer = Rebalancer(
            group,
            self.client_id,
            subscriptions,
            options,
            self._connection,
            self._on_ready,
            self._on_refused,
            self._on_failure,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._lock = asyncio.Lock()
        self._is_closed = False
        self._group = group
        self._traces: Followers | None = None
        self._spans: DeliverySpans | None = None
        if options.tracer_provider is not None:
            # Imported here, because only this needs the packages of OpenTelemetry.
            from cluster.client.consumer.delivery_spans import DeliverySpans  # noqa: PLC0415

            self._spans = DeliverySpans(options.tracer_provider, group, self.client_id)

    async def __aenter__(self) -> Self:
        """Open; queues are acquired in the background."""
        await self._connection.__aenter__()
        self._traces = followers_of(self._options, self._connection, self._group, self._spans)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep_balanced()), loop.create_task(self._run_background())]
        for task in self._tasks:
            task.add_done_callback(self._background_ended)
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close."""
        await self.close()

    @property
    def queues(self) -> list[BrokerQueue]:
        """The queues currently assigned to this consumer."""
        return sorted(self._rebalancer.readers)

    # ----------------------------------------------------------------------------------------------------- consuming

    async def poll(self, max_messages: int = 500, timeout_s: float = 1.0) -> list[ReceivedMessage]:
        """Return the next messages; an empty list if none arrive within `timeout_s`.

        Unless `is_auto_acknowledged` is off, a call acknowledges all messages delivered before.

        Raises:
            RequestFailed: CLIENT_ID_IN_USE and similar: this consumer cannot join the group; OFFSET_BEYOND_END: one
                queue cannot be read further, raised once every 20 s; the other queues are still read; UNKNOWN_TOPIC,
                NOT_REACHED or another: nothing of a topic could be read for `no_route_limit_s`; reading is still
                retried.
        """
        self._finish()
        deadline = time.monotonic() + timeout_s
        while True:
            self._raise_failure()
            messages = self._take(max_messages)
            if messages:
                self._delivered = messages
                if self._traces is not None:
                    self._traces.delivered(messages)
                return messages
            self._is_ready.clear()
            try:
                async with asyncio.timeout(max(deadline - time.monotonic(), 0.0)):
                    await self._is_ready.wait()
            except TimeoutError:
                return []

    def __aiter__(self) -> Self:
        """Iterate endlessly over messages; each step acknowledges the message before, see `poll`."""
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Wait for the next message and return it."""
        current, chunk = self._current, self._chunk
        if current is not None:
            if self._options.is_auto_acknowledged:
                current.reader.progress.done(current.queue_offset)
                if self._traces is not None:
                    self._traces.processed((current,))
            self._current = None
        while True:
            while chunk and not self._failures and (chunk[0].reader.is_held or not chunk[0].reader.is_active):
                message = chunk.popleft()
                if message.reader.is_active:
                    self._current = message
                    if self._traces is not None:
                        self._traces.delivered((message,))
                    return message
                self._return_to_reader(message)
            self._raise_failure()
            if self._delivered:
                self._finish()
            if not chunk:
                chunk.extend(self._take_from_readers(_CHUNK))
            if not chunk or not chunk[0].reader.is_held:
                self._is_ready.clear()
                await self._is_ready.wait()

    async def may_be_delivered(self, message: ReceivedMessage) -> bool:
        """Wait until the lock of a message's queue is held; return False if the queue was revoked instead.

        For callers that take messages from `poll` and pass them on one by one.
        """
        reader = message.reader
        while reader.is_active and not reader.is_held:
            self._raise_failure()
            self._is_ready.clear()
            await self._is_ready.wait()
        return reader.is_active

    async def return_undelivered(self, message: ReceivedMessage) -> None:
        """Record that a message, and those after it in its queue, are not delivered, because the queue was revoked.

        For callers that take messages from `poll` and pass them on one by one.
        """
        self._return_to_reader(message)

    def acknowledge(self, messages: ReceivedMessage | Iterable[ReceivedMessage]) -> None:
        """Mark messages as processed; their offsets are committed once all before them are."""
        done = (messages,) if isinstance(messages, ReceivedMessage) else tuple(messages)
        for message in done:
            message.reader.progress.done(message.queue_offset)
        if self._traces is not None:
            self._traces.processed(done)

    async def nack(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Return a message that could not be processed: its group gets it again later, or it becomes a dead letter.

        Then it counts as processed. Consumers of the group with `has_retries` get it after the delay.

        Args:
            message: one that was delivered; not in broadcast mode.
            delay_level: when: 0: by the settings of the group; 1 to 18: after that delay level; below 0: never, it
                becomes a dead letter at once.

        Raises:
            RequestFailed: it was not returned, and is not acknowledged. UNKNOWN_GROUP: the group was deleted;
                ILLEGAL_MESSAGE: its properties leave no space for its origin; UNSUPPORTED: an old broker; or the broker
                did not answer for 30 s.
        """
        if self._options.mode == "broadcast":
            raise RequestFailed(Reason.UNSUPPORTED, "messages are not returned in broadcast mode: no group has them")
        topic = await self._returns.send(message, delay_level)
        if self._spans is not None:
            self._spans.returned(message)
        self.acknowledge(message)
        if self._options.has_retries and not any(queue.topic == topic for queue in self._rebalancer.readers):
            self._rebalancer.wanted.set()

    async def run(self, handler: Handler) -> None:
        """Process messages, one after the other, until cancelled: acknowledge each, or return it if the handler fails.

        With `is_orderly` nothing overtakes a message: one whose handler fails is processed again after a second, and
        again, until it succeeds; with `max_attempts` it becomes a dead letter after that number of attempts. If the
        queue goes to another consumer meanwhile, that one processes it.

        Args:
            handler: processes one message; any exception that it raises is logged, and the message is returned by
                `nack`. A handler that is cancelled leaves its message unacknowledged.

        Raises:
            RequestFailed: see `poll` and `nack`.
        """
        spans = self._spans
        async for message in self:
            try:
                await (handler(message) if spans is None else spans.handle(handler, message))
            except Exception:
                logger.exception("message_failed message=%r attempts=%d", message, message.attempts)
                if self._options.is_orderly:
                    await self._process_again(message, handler)
                else:
                    await self.nack(message)
            else:
                self.acknowledge(message)

    async def _process_again(self, message: ReceivedMessage, handler: Handler) -> None:
        """Process a message that failed once until its handler succeeds, or its queue was revoked."""
        # Not acknowledged by the request for the next message.
        self._current = None
        failures = 1
        while failures != self._options.max_attempts:
            await asyncio.sleep(_SUSPENSION_S)
            if not await self.may_be_delivered(message):
                await self.return_undelivered(message)
                return
            try:
                await handler(message)
            except Exception:
                failures += 1
                logger.exception("message_failed message=%r attempts=%d", message, failures)
            else:
                self.acknowledge(message)
                return
        await self.nack(message, -1)

    async def commit(self) -> None:
        """Commit the processed messages now; a failure is logged, and the next commit includes them."""
        async with self._lock:
            await self._rebalancer.commit()

    async def close(self) -> None:
        """Commit the processed messages, release the locks, leave the group. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        await end_tasks(self._tasks)
        await self._rebalancer.close()
        if self._traces is not None:
            await self._traces.close()
        await self._connection.__aexit__()
        self._is_ready.set()

    # ------------------------------------------------------------------------------------------------------- delivery

    def _finish(self) -> None:
        """Mark the messages delivered before as processed, if acknowledgement is automatic."""
        if self._options.is_auto_acknowledged:
            self.acknowledge(self._delivered)
            if self._current is not None:
                self.acknowledge(self._current)
        self._delivered = []
        self._current = None

    def _take(self, count_max: int) -> list[ReceivedMessage]:
        messages: list[ReceivedMessage] = []
        if self._chunk and self._chunk[0].reader.is_active and not self._chunk[0].reader.is_held:
            return []
        while self._chunk and len(messages) < count_max:
            message = self._chunk.popleft()
            if message.reader.is_active:
                messages.append(message)
            else:
                self._return_to_reader(message)
        return messages or self._take_from_readers(count_max)

    def _take_from_readers(self, count_max: int) -> list[ReceivedMessage]:
        """Take messages of the next queue that is not empty."""
        ready = self._ready
        while ready:
            reader = ready.popleft()
            messages = reader.take(count_max)
            if reader.has_messages:
                ready.append(reader)
            if messages:
                return messages
        return []

    def _on_ready(self, reader: QueueReader) -> None:
        if not reader.is_active:
            for first in [message for message in self._chunk if message.reader is reader][:1]:
                self._return_to_reader(first)
        if reader.failure is not None:
            self._failures.append(reader.failure)
        elif reader.is_active and reader not in self._ready:
            self._ready.append(reader)
        self._is_ready.set()

    def _return_to_reader(self, first: ReceivedMessage) -> None:
        """Return `first` and the messages after it to the reader: their queue was revoked before delivery."""
        first.reader.progress.returned(first.queue_offset)
        kept = [message for message in self._chunk if message.reader is not first.reader]
        self._chunk.clear()
        self._chunk.extend(kept)

    def _on_failure(self, failure: RequestFailed) -> None:
        self._failures.append(failure)
        self._is_ready.set()

    def _on_refused(self, failure: RequestFailed) -> None:
        self._refusal = failure
        self._is_ready.set()

    def _raise_failure(self) -> None:
        if self._is_closed:
            raise RequestFailed(Reason.CLIENT_CLOSED, "the consumer is closed")
        if self._refusal is not None:
            raise self._refusal
        if self._failures:
            raise self._failures.popleft()

    # ----------------------------------------------------------------------------------------------------- background

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("consumer_failed client_id=%s", self.client_id, exc_info=error)
            self._on_refused(RequestFailed(Reason.INTERNAL_ERROR, f"the consumer cannot continue: {error!r}"))

    async def _keep_balanced(self) -> None:
        wanted = self._rebalancer.wanted
        while True:
            wanted.clear()
            async with self._lock:
                await self._rebalancer.balance()
            with suppress(TimeoutError):
                # A topic that does not exist yet is looked up at shorter intervals.
                pause_s = self._options.rebalance_interval_s if self._rebalancer.readers else _TICK_S
                async with asyncio.timeout(pause_s):
                    await wanted.wait()

    async def _run_background(self) -> None:
        committed_at = renewed_at = looked_at = time.monotonic()
        while True:
            tick_s = _HANDOVER_TICK_S if self._rebalancer.is_revoking else _TICK_S
            await asyncio.sleep(min(tick_s, self._options.commit_interval_s))
            async with self._lock:
                now = time.monotonic()
                await self._rebalancer.end_revoked()
                if now - committed_at >= self._options.commit_interval_s:
                    committed_at = now
                    await self._rebalancer.commit()
                if self._options.mode == "cluster" and now - renewed_at >= _RENEW_S:
                    renewed_at = now
                    await self._rebalancer.renew_locks()
                if now - looked_at >= SILENCE_S:
                    looked_at = now
                    await self._rebalancer.reopen_silent()
                self._rebalancer.follow_leaders()


def subscriptions_of(topics: Topics) -> dict[str, str]:
    """Return the tags expressions, or `Sql92`, by topic; `*` where none is given.

    Raises:
        ValueError: no topic is given.
    """
    if isinstance(topics, str):
        names: Mapping[str, str] = dict.fromkeys((each.strip() for each in topics.split(",") if each.strip()), "*")
    elif isinstance(topics, Mapping):
        names = topics
    else:
        names = dict.fromkeys(topics, "*")
    if not names:
        raise ValueError("topics: expected at least one")
    return {topic: tags or "*" for topic, tags in names.items()}
