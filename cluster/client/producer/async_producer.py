"""The asyncio interface of the producer.

The path of a message: `send` → a queue is chosen (`queue_choice`) → `PutSender` of its broker (combines queued messages
into a batch) → a PutStream to that broker's leader. `docs/operations.md` explains when to change which option.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Self

from cluster.client.outcomes import (
    MessageAppended,
    MessageAppendUnknown,
    MessageNotAppended,
    SendsFailed,
    not_appended,
    outcome_of_failure,
)
from cluster.client.producer.batch import REQUEST_MESSAGES_MAX, REQUEST_SIZE_BYTES_MAX, Encoded, SendItem
from cluster.client.producer.calls import ProducerCalls
from cluster.client.producer.fault_avoidance import FAILED_LATENCY_MS, FaultAvoidance
from cluster.client.producer.outgoing import OutgoingEncoder, OutgoingMessage, queue_key_of
from cluster.client.producer.send_traces import SendTraces
from cluster.client.producer.sender import PutSender, SenderHooks, SendRules
from cluster.client.routing.connection import BrokerConnection, Endpoints
from cluster.client.routing.queue_choice import BrokerQueue, RoundRobin, fixed_queues, queue_of_key, writable_queues
from cluster.process.tasks import end_tasks
from cluster.protocol.errors import Reason, RequestFailed
from dledger.client.retry import Backoff
from dledger.security.settings import PLAIN
from store.errors import IllegalMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.client.producer.options import ProducerOptions
    from cluster.client.producer.send_spans import SendSpans
    from cluster.client.routing.cache import Routes
    from dledger.security.settings import Security

_OUTCOMES_KEPT = 16


class AsyncProducer(ProducerCalls):
    """Sends messages. Created by `async with Producer(...)`; for use by one event loop."""

    def __init__(
        self, endpoints: Endpoints, name_servers: Endpoints, options: ProducerOptions, security: Security = PLAIN
    ) -> None:
        super().__init__(
            options, BrokerConnection(endpoints, name_servers, security, may_use_frames=options.may_use_frames)
        )
        self._encoder = OutgoingEncoder(options)
        self._faults = FaultAvoidance()
        self._round_robin = RoundRobin()
        self._senders: dict[str, PutSender] = {}
        self._queues: dict[str, tuple[Routes, tuple[BrokerQueue, ...]]] = {}
        self._fixed_queues = {topic: fixed_queues(topic, text) for topic, text in options.ordered_topics.items()}
        self._hooks = SenderHooks(self._moved, self._observed, self._ended)
        self._pending: set[SendItem] = set()
        self._pending_messages = 0
        self._pending_bytes = 0
        self._space = asyncio.Event()
        self._sequence = 0
        self._flushes = 0
        self._submitted_failures: list[MessageNotAppended | MessageAppendUnknown] = []
        self._submitted_failures_count = 0
        self._finding: set[asyncio.Task[None]] = set()
        self._traces: SendTraces | None = None
        self._spans: SendSpans | None = None
        if options.tracer_provider is not None:
            # Imported here, because only this needs the packages of OpenTelemetry.
            from cluster.client.producer.send_spans import SendSpans  # noqa: PLC0415

            self._spans = SendSpans(options.tracer_provider)

    async def __aenter__(self) -> Self:
        """Open."""
        await self._connection.__aenter__()
        if self._options.trace:
            self._traces = SendTraces(self._connection)
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close."""
        await self.close()

    # ------------------------------------------------------------------------------------------------------ sending

    async def queues(self, topic: str) -> tuple[BrokerQueue, ...]:
        """Return the writable queues of a topic, in the order that all clients share.

        Raises:
            RequestFailed: UNKNOWN_TOPIC, TOPIC_NOT_WRITABLE, or no node that knows routes answered in time.
        """
        deadline, backoff = time.monotonic() + self._options.deadline_s, Backoff()
        while True:
            try:
                return self._writable(topic, await self._connection.find(topic))
            except RequestFailed as failure:
                pause_s = backoff.next_s(failure.repeat_after_s)
                if not failure.is_worth_trying or time.monotonic() + pause_s >= deadline:
                    raise
            await asyncio.sleep(pause_s)

    async def send_encoded(
        self, queue: BrokerQueue, messages: Sequence[Encoded], unique_keys: Sequence[str], deadline_s: float
    ) -> list[MessageAppended]:
        """Send already encoded messages to consecutive offsets of one queue of one broker, all or none.

        Args:
            queue: one of `queues`.
            messages: 1 to 4,096, together at most 8 MiB; their properties are stored unchanged.
            unique_keys: the UNIQ_KEY in the properties of each message; empty where there is none.
            deadline_s: time limit in seconds, retries included.

        Raises:
            NotAppended, AppendUnknown: see `send`.
        """
        if self._is_closed:
            raise not_appended(Reason.CLIENT_CLOSED, "the producer is closed")
        self._sequence += 1
        future: asyncio.Future[list[MessageAppended]] = asyncio.get_running_loop().create_future()
        deadline = time.monotonic() + deadline_s
        item = SendItem(queue.topic, messages, tuple(unique_keys), deadline, self._sequence, future)
        self._check_size(item)
        if not self._has_space(item):
            await self._wait_for_space(item)
        self._admit(item)
        self._put(item, queue)
        return await future

    def submit(
        self, message: OutgoingMessage, *, queue_key: str | None = None, queue_id: int | None = None
    ) -> asyncio.Future[list[MessageAppended]]:
        """Send one message without waiting; return the future of its outcome, a list of one `MessageAppended`.

        The next `flush` also reports failures of submitted messages, so the futures may be dropped.

        Raises:
            NotAppended: CLIENT_QUEUE_FULL: this client's queue is full; or the message is not allowed.
        """
        item, queue_key = self._item((message,), None), queue_key_of((message,), queue_key)
        if not self._has_space(item):
            # For the trace and the span of the item.
            item.future.cancel()
            raise not_appended(Reason.CLIENT_QUEUE_FULL, self._fullness())
        item.future.add_done_callback(self._submitted_ended)
        self._admit(item)
        try:
            self._place(item, queue_key, queue_id, self._connection.known(message.topic))
        except RequestFailed:
            # No route is known yet: it is looked up in the background.
            task = asyncio.ensure_future(self._find_and_place(item, queue_key, queue_id))
            self._finding.add(task)
            task.add_done_callback(self._finding.discard)
        return item.future

    async def flush(self) -> None:
        """Wait until every message sent or submitted before has its outcome; until then batches do not linger.

        Raises:
            SendsFailed: messages submitted since the last flush were not stored, or their outcome is unknown.
        """
        waited_for = {item.future for item in self._pending}
        if waited_for:
            self._skip_linger(1)
            try:
                await asyncio.wait(waited_for)
            finally:
                self._skip_linger(-1)
            await asyncio.sleep(0)  # lets the callbacks of the futures run
        count, outcomes = self._submitted_failures_count, self._submitted_failures
        self._submitted_failures_count, self._submitted_failures = 0, []
        if count:
            raise SendsFailed(count, outcomes)

    def _skip_linger(self, change: int) -> None:
        self._flushes += change
        for sender in self._senders.values():
            sender.skip_linger(self._flushes > 0)

    async def close(self) -> None:
        """Flush, then close all connections; further sends are refused. A second call does nothing.

        Raises:
            SendsFailed: submitted messages were not stored, or their outcome is unknown; it has the first of the
                outcomes.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._space.set()
        try:
            await self.flush()
        finally:
            await end_tasks(self._finding)
            await self._ends.close()
            for sender in self._senders.values():
                await sender.close()
            if self._traces is not None:
                await self._traces.close()
            await self._connection.__aexit__()

    # ----------------------------------------------------------------------------------------------------- placement

    async def _send(
        self,
        messages: Sequence[OutgoingMessage],
        queue_key: str | None,
        queue_id: int | None,
        deadline_s: float | None,
    ) -> list[MessageAppended]:
        item, queue_key = self._item(messages, deadline_s), queue_key_of(messages, queue_key)
        if not self._has_space(item):
            await self._wait_for_space(item)
        self._admit(item)
        try:
            self._place(item, queue_key, queue_id, self._connection.known(item.topic))
        except RequestFailed:
            await self._find_and_place(item, queue_key, queue_id)
        return await item.future

    def _item(self, messages: Sequence[OutgoingMessage], deadline_s: float | None) -> SendItem:
        if self._spans is not None:
            return self._spans.follow(messages, lambda carrying: self._new_item(carrying, deadline_s))
        return self._new_item(messages, deadline_s)

    def _new_item(self, messages: Sequence[OutgoingMessage], deadline_s: float | None) -> SendItem:
        if self._is_closed:
            raise not_appended(Reason.CLIENT_CLOSED, "the producer is closed")
        deadline = time.monotonic() + (self._options.deadline_s if deadline_s is None else deadline_s)
        self._sequence += 1
        try:
            item = self._encoder.item(messages, deadline, self._sequence)
        except IllegalMessage as error:
            raise not_appended(Reason.ILLEGAL_MESSAGE, str(error)) from None
        self._check_size(item)
        if self._traces is not None:
            self._traces.follow(item, messages)
        return item

    def _check_size(self, item: SendItem) -> None:
        if len(item.messages) > REQUEST_MESSAGES_MAX or item.size_bytes > REQUEST_SIZE_BYTES_MAX:
            found = f"{len(item.messages)} messages of {item.size_bytes} bytes"
            text = f"expected at most {REQUEST_MESSAGES_MAX} messages and {REQUEST_SIZE_BYTES_MAX} bytes at once, "
            raise not_appended(Reason.ILLEGAL_REQUEST, f"{text}found {found}: send fewer at once")

    async def _find_and_place(self, item: SendItem, queue_key: str | None, queue_id: int | None) -> None:
        """Request routes until they are known, the topic proves to be unknown, or the deadline passes."""
        try:
            await self._retry_to_place(item, queue_key, queue_id)
        except asyncio.CancelledError:
            item.future.cancel()
            self._ended(item)
            raise

    async def _retry_to_place(self, item: SendItem, queue_key: str | None, queue_id: int | None) -> None:
        backoff = Backoff()
        while not item.future.done():
            try:
                self._place(item, queue_key, queue_id, await self._connection.find(item.topic))
            except RequestFailed as failure:
                pause_s = backoff.next_s(failure.repeat_after_s)
                if failure.is_worth_trying and time.monotonic() + pause_s < item.deadline:
                    await asyncio.sleep(pause_s)
                    continue
                if not item.future.done():
                    item.future.set_exception(outcome_of_failure(failure, item.unique_keys, is_open=False))
                self._ended(item)
            return
        self._ended(item)

    def _place(self, item: SendItem, queue_key: str | None, queue_id: int | None, routes: Routes) -> None:
        """Choose a queue and pass the item to its broker's sender.

        Raises:
            RequestFailed: UNKNOWN_TOPIC, TOPIC_NOT_WRITABLE, UNKNOWN_QUEUE, ROUTES_INCOMPLETE.
        """
        queues = self._writable(item.topic, routes)
        if queue_id is not None:
            queues = tuple(queue for queue in queues if queue.queue_id == queue_id)
            if not queues:
                raise RequestFailed(Reason.UNKNOWN_QUEUE, f"no broker has a writable queue {queue_id} of {item.topic}")
        elif queue_key is not None:
            fixed = self._fixed_queues.get(item.topic)
            queue = queue_of_key(queues if fixed is None else fixed, queue_key)
            if fixed is not None and queue not in queues:
                text = f"queue {queue.queue_id} of broker {queue.broker}, in the fixed list of topic {item.topic!r}"
                raise RequestFailed(Reason.ROUTES_INCOMPLETE, f"{text}, is not registered or accepts no messages now")
            self._put(item, queue)
            return
        item.is_movable = queue_id is None
        self._put(item, self._round_robin.choose(queues, self._is_available))

    def _writable(self, topic: str, routes: Routes) -> tuple[BrokerQueue, ...]:
        known = self._queues.get(topic)
        if known is not None and known[0] is routes:
            return known[1]
        if not routes:
            raise RequestFailed(Reason.UNKNOWN_TOPIC, f"no broker has topic {topic!r}: create it, or correct its name")
        self._connection.nodes.learn(routes)
        queues = writable_queues(routes)
        if not queues:
            raise RequestFailed(Reason.TOPIC_NOT_WRITABLE, f"no broker accepts messages for topic {topic!r} now")
        self._queues[topic] = (routes, queues)
        return queues

    def _put(self, item: SendItem, queue: BrokerQueue) -> None:
        item.queue_id = queue.queue_id
        sender = self._senders.get(queue.broker)
        if sender is None:
            options = self._options
            rules = SendRules(
                options.linger_ms / 1000,
                options.batch_messages_max,
                options.batch_size_bytes_max,
                options.batches_in_flight_max,
                options.answer_timeout_s,
                options.is_unknown_retried,
            )
            sender = self._senders[queue.broker] = PutSender(queue.broker, self._connection.nodes, rules, self._hooks)
            sender.skip_linger(self._flushes > 0)
        sender.put(item)

    # ------------------------------------------------------------------------------------------ callbacks of senders

    def _moved(self, item: SendItem, broker: str) -> bool:
        try:
            queues = self._writable(item.topic, self._connection.known(item.topic))
        except RequestFailed:
            return False
        # A slow broker is better than one that refuses everything.
        for is_wanted in (self._is_available, lambda each: not self._faults.has_failed(each, _now_ms())):
            queue = self._round_robin.choose(queues, is_wanted, broker)
            if queue.broker != broker and is_wanted(queue.broker):
                self._put(item, queue)
                return True
        return False

    def _observed(self, broker: str, latency_ms: float | None) -> None:
        self._faults.observed(broker, FAILED_LATENCY_MS if latency_ms is None else latency_ms, _now_ms())

    def _is_available(self, broker: str) -> bool:
        return self._faults.is_available(broker, _now_ms())

    def _submitted_ended(self, future: asyncio.Future[list[MessageAppended]]) -> None:
        error = None if future.cancelled() else future.exception()
        if isinstance(error, MessageNotAppended | MessageAppendUnknown):
            self._submitted_failures_count += 1
            if len(self._submitted_failures) < _OUTCOMES_KEPT:
                self._submitted_failures.append(error)

    # --------------------------------------------------------------------------------------------------------- bounds

    def _has_space(self, item: SendItem) -> bool:
        options = self._options
        if not self._pending:
            return True
        return (
            self._pending_messages + len(item.messages) <= options.queue_messages_max
            and self._pending_bytes + item.size_bytes <= options.queue_size_bytes_max
        )

    async def _wait_for_space(self, item: SendItem) -> None:
        """Wait until an item may be queued; if that fails, its future is cancelled, for its trace and its span."""
        try:
            await self._space_for(item)
        except BaseException:
            item.future.cancel()
            raise

    async def _space_for(self, item: SendItem) -> None:
        while not self._has_space(item) or self._is_closed:
            if self._is_closed:
                raise not_appended(Reason.CLIENT_CLOSED, "the producer was closed")
            self._space.clear()
            try:
                async with asyncio.timeout(item.deadline - time.monotonic()):
                    await self._space.wait()
            except TimeoutError:
                raise not_appended(Reason.CLIENT_QUEUE_FULL, self._fullness()) from None

    def _fullness(self) -> str:
        return f"{self._pending_messages} messages of {self._pending_bytes} bytes are already pending in this producer"

    def _admit(self, item: SendItem) -> None:
        self._pending.add(item)
        self._pending_messages += len(item.messages)
        self._pending_bytes += item.size_bytes

    def _ended(self, item: SendItem) -> None:
        if item in self._pending:
            self._pending.remove(item)
            self._pending_messages -= len(item.messages)
            self._pending_bytes -= item.size_bytes
            self._space.set()


def _now_ms() -> float:
    return time.monotonic() * 1000
