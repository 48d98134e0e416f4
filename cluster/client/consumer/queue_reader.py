"""Prefetches one queue: one Subscribe stream to the leader of its broker, and a bounded buffer.

After a failure the stream is reopened at the current leader, after the last received message, so no message is lost or
received twice. While the buffer is full the stream is not read, and flow control stops the broker.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from cluster.client.consumer.progress import QueueProgress
from cluster.client.consumer.received import ReceivedMessage, messages_of
from cluster.client.consumer.replica_fallback import OtherNodes
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.skipped_messages import SkippedMessages
from cluster.protocol.wire.answers import check_answer, failure_of_call
from cluster.protocol.wire.filters import filter_fields
from cluster.protocol.wire.skipped import skipped_of
from cluster.v1 import broker_pb2
from cluster.v1.broker_pb2 import SubscribeRequest, SubscribeResponse
from dledger.client.aio.stream_end import StreamEnded, next_response
from dledger.client.retry import Repetition
from dledger.v1 import log_pb2
from store.access.skipped_messages import SkipCause
from store.errors import CorruptData
from store.model.read_filter import parse_filter

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc.aio

    from cluster.client.routing.broker_nodes import BrokerNodes
    from cluster.client.routing.queue_choice import BrokerQueue

logger = logging.getLogger(__name__)

_RETRIABLE = frozenset({Reason.ANSWER_LOST, Reason.ANSWER_LATE, Reason.UNKNOWN_TOPIC})

_CONTINUES = frozenset(
    {
        broker_pb2.GET_STATUS_FOUND,
        broker_pb2.GET_STATUS_NO_MATCHED_MESSAGE,
        broker_pb2.GET_STATUS_MESSAGE_WAS_REMOVING,
    }
)

_RESPONSE_SIZE_BYTES_MAX = 1 << 20
# The retry interval for an offset that cannot be read at present (no such queue yet, or a file being removed).
_PAUSE_S = 1.0
# A stream that has been open for this long counts as served, even if nothing was delivered.
_OPEN_S = 1.0


class ReaderRules(NamedTuple):
    """The settings of the readers of one consumer.

    Attributes:
        group: name of the group, for the broker's statistics.
        prefetch_messages: maximum number of messages in the buffer.
        prefetch_size_bytes: maximum number of bytes in the buffer.
        is_locked: whether messages are delivered only while the broker's lock of the queue is held.
        is_member: whether the consumer has joined its group; if the group is then disabled, the reader waits.
        on_skipped: called for messages that the consumer does not get.
    """

    group: str
    prefetch_messages: int
    prefetch_size_bytes: int
    is_locked: bool
    is_member: bool
    on_skipped: Callable[[SkippedMessages], None]


class _Fetched(NamedTuple):
    messages: list[ReceivedMessage]
    size_bytes: int
    next_offset: int


class QueueReader:
    """The buffer of one queue and the task that fills it. For use by one event loop.

    Args:
        queue: the queue to read.
        tags: tags expression of the subscription, or an `Sql92`.
        offset: the start offset.
        reset_count: reset count of the group's offset when it was fetched.
        nodes: the connections.
        rules: the settings.
        on_ready: called when messages can be taken, or a failure is to be reported.

    Attributes:
        next_offset: the offset after the last received message.
        failure: why reading has ended; None while it continues.
        locked_until: end of the lock, in seconds of the monotonic clock.
        address: address of the node that the stream is open to; empty without one.
        is_active: False once the queue was revoked: its buffered messages are no longer delivered.
    """

    def __init__(
        self,
        queue: BrokerQueue,
        tags: str,
        offset: int,
        reset_count: int,
        nodes: BrokerNodes,
        rules: ReaderRules,
        on_ready: Callable[[QueueReader], None],
    ) -> None:
        self.queue = queue
        self.tags = tags
        self.reset_count = reset_count
        self.progress = QueueProgress(offset)
        self.next_offset = offset
        self.failure: RequestFailed | None = None
        self.locked_until = 0.0
        self.address = ""
        self.is_active = True
        self._was_served = rules.is_member
        self._is_held_up = False
        self._nodes = nodes
        self._rules = rules
        self._on_ready = on_ready
        self._fetched: deque[_Fetched] = deque()
        self._taken_of_head = 0
        self._count = 0
        self._size_bytes = 0
        self._space = asyncio.Event()
        # Time and cause of the first failure since the last successful read; None while the broker serves the queue.
        self._refused: tuple[float, RequestFailed] | None = None
        self._opened_at = 0.0
        self._call: grpc.aio.UnaryStreamCall[SubscribeRequest, SubscribeResponse] | None = None
        self._last_message_at = time.monotonic()
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._ended)

    @property
    def is_held(self) -> bool:
        """Whether messages may be delivered now: the lock is held, or none is needed."""
        return not self._rules.is_locked or time.monotonic() < self.locked_until

    @property
    def has_messages(self) -> bool:
        """Whether `take` returns any messages."""
        return self._count > 0 and self.is_held

    @property
    def silent_s(self) -> float:
        """Return how long the broker has sent nothing, in seconds; 0 while the buffer is full."""
        return time.monotonic() - self._last_message_at if self._has_space() else 0.0

    @property
    def refused(self) -> tuple[float, RequestFailed] | None:
        """Return since when (monotonic clock) the broker has not served the queue, and why; None: it does, or may."""
        is_open = bool(self.address) and time.monotonic() - self._opened_at >= _OPEN_S
        return None if is_open else self._refused

    def take(self, count_max: int) -> list[ReceivedMessage]:
        """Return the next messages; they are outstanding from now on."""
        if not self.has_messages:
            return []
        fetched = self._fetched[0]
        begin = self._taken_of_head
        messages = fetched.messages[begin : begin + count_max]
        self._taken_of_head += len(messages)
        self._count -= len(messages)
        end = messages[-1].queue_offset + 1
        if self._taken_of_head == len(fetched.messages):
            end = fetched.next_offset
            self._fetched.popleft()
            self._taken_of_head = 0
            self._size_bytes -= fetched.size_bytes
            self._space.set()
        self.progress.delivered([message.queue_offset for message in messages], end)
        return messages

    def reopen(self) -> None:
        """Open a new stream: the old one may be broken without an error."""
        if self._call is not None:
            self._call.cancel()

    async def stop(self) -> None:
        """Stop reading and drop the buffer; messages taken before may still be acknowledged."""
        self.is_active = False
        self._task.cancel()
        await asyncio.wait([self._task])
        self._fetched.clear()
        self._count = self._size_bytes = 0

    # ----------------------------------------------------------------------------------------------------- the task

    async def _run(self) -> None:
        repetition = Repetition()
        while self.failure is None:
            began_at = self.next_offset
            address = self._nodes.leader(self.queue.broker)
            try:
                await self._nodes.reach(address)
                pause_s = await self._read(address)
            except RequestFailed as failure:
                is_named = self._nodes.observe(self.queue.broker, address, failure)
                if self.next_offset != began_at:
                    repetition.reset()
                pause_s = repetition.next_s(failure.repeat_after_s, is_named=is_named)
                self._handle_failure(failure)
                since_s = self.refused[0] if self.refused is not None else time.monotonic()
                self._refused = since_s, failure
            await asyncio.sleep(pause_s)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("reader_failed queue=%s", self._name(), exc_info=error)
            self._fail(RequestFailed(Reason.INTERNAL_ERROR, f"{self._name()} cannot be read: {error!r}"))

    def _handle_failure(self, failure: RequestFailed) -> None:
        if failure.reason is Reason.GROUP_NOT_ENABLED and self._was_served:
            # An operator has disabled the group, and may enable it again.
            if not self._is_held_up:
                logger.warning("reading_held_up queue=%s: %s", self._name(), failure.message)
            self._is_held_up = True
        elif not failure.is_worth_trying and failure.reason not in _RETRIABLE:
            self._fail(failure)

    def _fail(self, failure: RequestFailed) -> None:
        self.failure = failure
        self._on_ready(self)

    async def _read(self, address: str) -> float:
        """Read one stream to its end; return how long to wait before the next one."""
        request = SubscribeRequest(
            topic=self.queue.topic,
            queue_ids=[self.queue.queue_id],
            offsets=[self.next_offset],
            **filter_fields(self.tags),
            mode=log_pb2.READ_MODE_LINEARIZABLE,
            form=broker_pb2.MESSAGE_FORM_RECORDS,
            group=self._rules.group,
            max_bytes=min(_RESPONSE_SIZE_BYTES_MAX, max(self._rules.prefetch_size_bytes // 4, 1)),
        )
        with self._nodes.stream_stub(address) as stub:
            call = self._call = stub.Subscribe(request)
            self.address, self._opened_at = address, time.monotonic()
            try:
                while True:
                    await self._wait_for_space()
                    response = await next_response(call, "the stream was silent for too long")
                    self._last_message_at = time.monotonic()
                    check_answer(response.answer, address)
                    self._was_served, self._is_held_up, self._refused = True, False, None
                    if not await self._buffer_response(response, address):
                        return _PAUSE_S
            except StreamEnded as end:
                raise failure_of_call(address, end.code, end.details, "BrokerService") from None
            finally:
                if time.monotonic() - self._opened_at >= _OPEN_S:
                    self._refused = None
                self._call = None
                self.address = ""
                call.cancel()

    async def _buffer_response(self, response: SubscribeResponse, address: str) -> bool:
        """Buffer a response; return whether the stream continues with this queue."""
        status = response.status
        messages = self._messages_of(response.records, address) if response.records else []
        others = OtherNodes(self, self._nodes, address)
        for skipped in skipped_of(response.skipped, self.queue.topic, self.queue.broker):
            before = [message for message in messages if message.queue_offset < skipped.begin]
            messages = messages[len(before) :]
            self._keep(before, skipped.begin)
            await self._read_from_replica(skipped, others)
        if response.records:
            self._keep(messages, response.next_offset)
            return True
        if status == broker_pb2.GET_STATUS_OFFSET_OVERFLOW_BADLY:
            text = (
                f"{self._name()}: the group's offset {self.next_offset} is beyond the end {response.max_offset}; "
                "set it with `dledger group reset`, or restore the messages of the topic"
            )
            self._fail(RequestFailed(Reason.OFFSET_BEYOND_END, text))
            return False
        if status == broker_pb2.GET_STATUS_OFFSET_TOO_SMALL:
            queue = self.queue
            end = response.next_offset
            self._rules.on_skipped(
                SkippedMessages(queue.topic, queue.broker, queue.queue_id, self.next_offset, end, SkipCause.REMOVED)
            )
        self._skip_to(response.next_offset)
        return status in _CONTINUES

    def _messages_of(self, records: bytes, address: str) -> list[ReceivedMessage]:
        try:
            messages = messages_of(records, self, f"{address}: {self.queue.topic}")
        except CorruptData as error:
            raise RequestFailed(Reason.CORRUPT_DATA, str(error)) from error
        if messages[0].queue_offset < self.next_offset:
            text = f"{address} sent offset {messages[0].queue_offset}, expected {self.next_offset} or more"
            raise RequestFailed(Reason.INTERNAL_ERROR, text)
        return messages

    def _keep(self, messages: list[ReceivedMessage], next_offset: int) -> None:
        """Buffer messages; `next_offset` is the offset after the last one examined."""
        if not messages:
            self._skip_to(next_offset)
            return
        size_bytes = sum(message.record.size for message in messages)
        self._fetched.append(_Fetched(messages, size_bytes, next_offset))
        self._count += len(messages)
        self._size_bytes += size_bytes
        self.next_offset = next_offset
        self._on_ready(self)

    async def _read_from_replica(self, skipped: SkippedMessages, others: OtherNodes) -> None:
        """Read messages that are damaged on one node from another node; report those that no node has."""
        offset = lost = skipped.begin
        read_filter = parse_filter(self.tags)
        while skipped.cause is SkipCause.DAMAGED and others.has_nodes and offset < skipped.end:
            await self._wait_for_space()
            found = await others.read(offset, skipped.end)
            if found:
                self._report_skipped(skipped, lost, offset)
                wanted = [message for message in found if read_filter.matches(message.record)]
                lost = offset + len(found)
                self._keep(wanted, lost)
            offset += max(len(found), 1)
        self._report_skipped(skipped, lost, skipped.end)

    def _report_skipped(self, skipped: SkippedMessages, begin: int, end: int) -> None:
        if begin < end:
            self._rules.on_skipped(skipped._replace(begin=begin, end=end))
            self._skip_to(end)

    def _skip_to(self, offset: int) -> None:
        """Continue after messages that did not match or were deleted; with an empty buffer that counts as progress."""
        if offset <= self.next_offset:
            return
        self.next_offset = offset
        if not self._fetched:
            self.progress.delivered((), offset)
        else:
            last = self._fetched[-1]
            self._fetched[-1] = last._replace(next_offset=offset)

    def _name(self) -> str:
        return f"{self.queue.broker}/{self.queue.topic}/{self.queue.queue_id}"

    def _has_space(self) -> bool:
        return self._count < self._rules.prefetch_messages and self._size_bytes < self._rules.prefetch_size_bytes

    async def _wait_for_space(self) -> None:
        while not self._has_space():
            self._space.clear()
            await self._space.wait()
            self._last_message_at = time.monotonic()
