"""The sender of the log client: appends of concurrent callers are batched and sent to the leader.

A single append is sent at once; `batching_sender` has the loop. Every item ends in exactly one way: places (answered
200), `NotAppended` (refused permanently, or its deadline passed while it was queued), or `AppendUnknown` (its stream
broke or timed out while it was in flight). An item that was provably not written returns to the head of the queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from dledger.client.aio.batch import Batch, BatchItem
from dledger.client.aio.batching_sender import FULL_SIZE_BYTES, BatchingSender, SendVerdict
from dledger.client.failures import failure_of_append
from dledger.client.limits import BATCH_ENTRIES_MAX, QUEUE_ENTRIES_MAX, QUEUE_SIZE_BYTES_MAX
from dledger.client.outcomes import AppendUnknown, NotAppended, Refused, places_of, raise_outcome
from dledger.client.retry import LAST_TRY_S, Backoff
from dledger.errors import ResponseCode
from dledger.v1.log_pb2 import AppendResponse

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    import grpc
    import grpc.aio

    from dledger.client.aio.framed_stream import FramedCalls
    from dledger.client.aio.host import ClientHost
    from dledger.client.aio.nodes import AsyncNodes
    from dledger.client.outcomes import Appended

# Batches in flight. Four keep the network, the leader's disk and the followers busy at the same time; more would only
# make batches smaller.
BATCHES_MAX = 4
_APPEND: Final = "/dledger.v1.LogService/Append"
_TAKEN: SendVerdict[Refused] = SendVerdict(is_taken=True)


class AppendSender:
    """Queues and sends the appends of one client. For use by one event loop.

    Args:
        nodes: the connections.
        group: the replication group.
        answer_timeout_s: a stream whose oldest batch has no answer for this time is cancelled.
        host: clock and randomness.
    """

    def __init__(self, nodes: AsyncNodes, group: str, answer_timeout_s: float, host: ClientHost) -> None:
        self._now_s = host.now_s
        self._queue = queue = AppendQueue(nodes, group, host)
        self._sender = BatchingSender(queue, BATCHES_MAX, answer_timeout_s, host.now_s, Backoff(host.random))

    @property
    def has_space(self) -> bool:
        """Whether the queue has space for another item: `put` may be called."""
        return self._queue.has_space

    async def wait_for_space(self, deadline: float) -> None:
        """Wait until the queue has space.

        Raises:
            NotAppended: the queue was full until the deadline.
        """
        queue = self._queue
        while not queue.has_space:
            queue.space.clear()
            try:
                async with asyncio.timeout(deadline - self._now_s()):
                    await queue.space.wait()
            except TimeoutError:
                raise NotAppended(ResponseCode.LEADER_PENDING_FULL, queue.fullness()) from None

    def put(self, bodies: Sequence[bytes], size_bytes: int, deadline: float) -> asyncio.Future[list[Appended]]:
        """Queue one caller's bodies; return the future of their places.

        Raises:
            NotAppended: the client is closed.
        """
        if self._sender.is_closed:
            raise NotAppended(ResponseCode.NETWORK_ERROR, "the client is closed")
        future: asyncio.Future[list[Appended]] = asyncio.get_running_loop().create_future()
        self._queue.append(BatchItem(bodies, size_bytes, future, deadline, last_try=deadline))
        self._sender.queued()
        return future

    async def close(self) -> None:
        """End all streams. Queued appends fail with `NotAppended`, those in flight with `AppendUnknown`."""
        await self._sender.close()


class AppendQueue:
    """The queued items of one client, in order; the `SenderPolicy` of appends.

    Args:
        nodes: the connections.
        group: the replication group.
        host: the clock.
    """

    refusal = Refused

    def __init__(self, nodes: AsyncNodes, group: str, host: ClientHost) -> None:
        self._nodes = nodes
        self._group = group
        self._now_s = host.now_s
        self._items: deque[BatchItem] = deque()
        self._queued_entries = 0
        self.queued_bytes = 0
        # Set whenever an item leaves the queue.
        self.space = asyncio.Event()
        # The last failure to send; part of the error of appends that time out.
        self._last_failure = "the leader accepted nothing"

    @property
    def has_space(self) -> bool:
        """Whether another item may be queued."""
        return self._queued_entries < QUEUE_ENTRIES_MAX and self.queued_bytes < QUEUE_SIZE_BYTES_MAX

    def fullness(self) -> str:
        """Return the error for a full queue."""
        return f"{self._queued_entries} appends are already pending in this client; {self._last_failure}"

    def append(self, item: BatchItem) -> None:
        """Add an item at the end of the queue."""
        self._items.append(item)
        self._queued_entries += len(item.bodies)
        self.queued_bytes += item.size_bytes

    @property
    def is_empty(self) -> bool:
        """Whether no append is queued."""
        return not self._items

    def linger_left_s(self) -> float:
        """Return 0: an append is sent at once."""
        return 0.0

    async def open(self) -> tuple[str, grpc.aio.StreamStreamCall[Any, AppendResponse] | FramedCalls]:
        """Open a stream to the leader, after its node has answered: so that no batch is sent to a dead node."""
        address = await self._nodes.leader()
        await self._nodes.reach(address, self._nodes.status_timeout_s)
        if self._nodes.frames is not None:
            calls = await self._nodes.frames.calls(address, _APPEND, AppendResponse.FromString)
            if calls is not None:
                return address, calls
        return address, self._nodes.stub(address).AppendStream()

    def take(self) -> Batch | None:
        """Take items from the queue's head, up to the size of a batch; drop expired ones."""
        queue, now = self._items, self._now_s()
        items: list[BatchItem] = []
        entries = size_bytes = 0
        while queue:
            item = queue[0]
            entries += len(item.bodies)
            size_bytes += item.size_bytes
            # An item that is larger is sent alone.
            if items and (entries > BATCH_ENTRIES_MAX or size_bytes > FULL_SIZE_BYTES):
                break
            self._pop()
            if item.last_try <= now:
                self._fail_late(item)
            if item.future.done():
                entries -= len(item.bodies)
                size_bytes -= item.size_bytes
            else:
                items.append(item)
        return Batch(self._group, items, now) if items else None

    def paused(self, refusal: Refused) -> float | None:
        """Fail all queued items if the cause is permanent; return 0 if it is temporary: a pause of any length."""
        self._last_failure = refusal.message
        if not refusal.is_retriable:
            self._refuse_all(refusal.code, refusal.message)
        return 0.0 if refusal.is_retriable else None

    def answered(
        self, address: str, batch: Batch, response: AppendResponse, *, may_retry: bool
    ) -> SendVerdict[Refused]:
        """Resolve the appends of a batch, fail them, or queue them again after a temporary refusal."""
        try:
            raise_outcome(response, address)
        except Refused as refusal:
            is_left = self._learn(address, response)
            return self._refused([batch], refusal, is_left=is_left, may_retry=may_retry)
        except AppendUnknown as outcome:
            is_left = self._learn(address, response)
            _fail(batch, outcome)
            return SendVerdict(is_stream_left=is_left)
        _resolve(batch, response)
        return _TAKEN

    def lost(
        self, address: str, batches: list[Batch], code: grpc.StatusCode, details: str, *, may_retry: bool
    ) -> SendVerdict[Refused]:
        """Queue the appends of lost batches again if certainly none was appended; else their outcome is unknown."""
        self._nodes.tracker.failed(address)
        outcome = failure_of_append(address, code, details)
        self._last_failure = str(outcome)
        if isinstance(outcome, Refused):
            return self._refused(batches, outcome, is_left=True, may_retry=may_retry)
        for batch in reversed(batches):
            _fail(batch, outcome)
        return SendVerdict()

    def _learn(self, address: str, response: AppendResponse) -> bool:
        """Return whether the node no longer counts as the leader."""
        tracker = self._nodes.tracker
        tracker.observe(address, response.code, response.leader.address)
        return tracker.leader != address

    def _refused(
        self, batches: list[Batch], refusal: Refused, *, is_left: bool, may_retry: bool
    ) -> SendVerdict[Refused]:
        if not refusal.is_retriable or not may_retry:
            for batch in reversed(batches):
                _fail(batch, NotAppended(refusal.code, refusal.message))
            return SendVerdict(is_stream_left=is_left)
        for batch in reversed(batches):
            self._put_back(batch)
        is_named = self._nodes.tracker.leader is not None
        return SendVerdict(is_stream_left=is_left, refusals=len(batches), cause=refusal, is_leader_named=is_named)

    def expire_queued(self, now_s: float) -> None:
        """Fail expired items at the head; later items were queued later, with the same time limit."""
        while self._items and self._items[0].last_try <= now_s:
            self._fail_late(self._pop())

    def expire_sent(self, batch: Batch, now_s: float) -> None:
        """End appends in flight whose deadline passed as unknown: they may be committed later."""
        for item in batch.items:
            if item.deadline <= now_s:
                text = "the deadline passed while the append was in flight"
                _fail_item(item, AppendUnknown(ResponseCode.NETWORK_ERROR, text))

    def fail_queued(self) -> None:
        """Fail all queued appends: the client was closed before they were sent."""
        self._refuse_all(ResponseCode.NETWORK_ERROR, "the client was closed")

    def _pop(self) -> BatchItem:
        item = self._items.popleft()
        self._queued_entries -= len(item.bodies)
        self.queued_bytes -= item.size_bytes
        self.space.set()
        return item

    def _put_back(self, batch: Batch) -> None:
        for item in reversed(batch.items):
            self._items.appendleft(item._replace(last_try=item.deadline - LAST_TRY_S))
            self._queued_entries += len(item.bodies)
            self.queued_bytes += item.size_bytes

    def _fail_late(self, item: BatchItem) -> None:
        text = f"the deadline passed before the append could be sent; {self._last_failure}"
        _fail_item(item, NotAppended(ResponseCode.NETWORK_ERROR, text))

    def _refuse_all(self, code: int, message: str) -> None:
        while self._items:
            _fail_item(self._pop(), NotAppended(code, message))


def _resolve(batch: Batch, response: AppendResponse) -> None:
    """Resolve every caller's future with the places of its entries."""
    places = places_of(response.first_index, response.term, response.positions)
    begin = 0
    for bodies, _, future, *_ in batch.items:
        end = begin + len(bodies)
        # Not so when the caller was cancelled or its deadline passed.
        if not future.done():
            future.set_result(places[begin:end])
        begin = end


def _fail(batch: Batch, outcome: NotAppended | AppendUnknown) -> None:
    for item in batch.items:
        # One exception object per caller: raising one object twice would mix tracebacks.
        _fail_item(item, type(outcome)(outcome.code, outcome.message))


def _fail_item(item: BatchItem, outcome: NotAppended | AppendUnknown) -> None:
    if not item.future.done():
        item.future.set_exception(outcome)
