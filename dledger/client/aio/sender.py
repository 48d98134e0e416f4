"""Takes what callers append, joins it into batches, and keeps a few of them under way to the leader.

What is queued when a batch may leave leaves in it: callers that append in the same turn of the event loop share a
batch, and so do those that come while enough batches are under way. A lone append leaves at once.

Every item ends in exactly one way: places (answered 200), `NotAppended` (refused for good, or its deadline passed
while it was queued), or `AppendUnknown` (its stream broke or stayed silent while it was under way). An item that
provably was not written goes back to the head of the queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from dledger.client.aio.batch import AppendStream, Batch, Item
from dledger.client.blocking.nodes import STATUS_TIMEOUT_S
from dledger.client.failures import failure_of_append
from dledger.client.limits import BATCH_ENTRIES_MAX, QUEUE_ENTRIES_MAX, QUEUE_SIZE_BYTES_MAX
from dledger.client.outcomes import AppendUnknown, NotAppended, Refused, places_of, raise_outcome
from dledger.client.retry import HOPS_MAX, LAST_TRY_S, Backoff
from dledger.errors import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    import grpc

    from dledger.client.aio.host import ClientHost
    from dledger.client.aio.nodes import AsyncNodes
    from dledger.client.outcomes import Appended
    from dledger.v1.log_pb2 import AppendResponse

# Batches under way. Four keep the wire, the leader's disk and the followers busy at the same time, and more would only
# make them smaller; but as many again may go if they are full: they are worth their overhead anyhow.
BATCHES_MAX = 4
FULL_BATCHES_MAX = 8
# What is joined into one request: small enough that the leader's loop is not held up by it, that one batch is written
# while the next one arrives. A call of `append_many` that is larger goes alone.
FULL_SIZE_BYTES = 256 << 10
_SWEEP_S = 0.05


class AppendPump:
    """The queue of one client and the task that empties it. For use by one event loop.

    Args:
        nodes: the connections.
        group: the replication group.
        answer_timeout_s: a stream whose oldest batch is without an answer for this time is given up.
        host: the clock of deadlines, and chance.
    """

    def __init__(self, nodes: AsyncNodes, group: str, answer_timeout_s: float, host: ClientHost) -> None:
        self._nodes = nodes
        self._group = group
        self._answer_timeout_s = answer_timeout_s
        self._now_s = host.now_s
        self._queue: deque[Item] = deque()
        self._queued_entries = 0
        self._queued_bytes = 0
        self._room = asyncio.Event()
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._stream: AppendStream | None = None
        # In the order in which they were opened.
        self._streams: dict[AppendStream, None] = {}
        self._batches = 0
        self._hops = 0
        self._backoff = Backoff(host.random)
        # Why the next batch must wait a little; None: it need not.
        self._refusal: Refused | None = None
        self._trouble = "the leader took nothing"
        self._is_closed = False

    @property
    def has_room(self) -> bool:
        """Whether `put` may be called now."""
        return self._queued_entries < QUEUE_ENTRIES_MAX and self._queued_bytes < QUEUE_SIZE_BYTES_MAX

    async def wait_room(self, deadline: float) -> None:
        """Wait until there is room.

        Raises:
            NotAppended: there was none until the deadline.
        """
        while not self.has_room:
            self._room.clear()
            try:
                async with asyncio.timeout(deadline - self._now_s()):
                    await self._room.wait()
            except TimeoutError:
                text = f"{self._queued_entries} appends wait in this client already; {self._trouble}"
                raise NotAppended(ResponseCode.LEADER_PENDING_FULL, text) from None

    def put(self, bodies: Sequence[bytes], size_bytes: int, deadline: float) -> asyncio.Future[list[Appended]]:
        """Queue one caller's bodies; return the future of their places.

        Raises:
            NotAppended: the client is closed.
        """
        if self._task is None or self._is_closed:
            self._start()
        future: asyncio.Future[list[Appended]] = asyncio.get_running_loop().create_future()
        self._queue.append(Item(bodies, size_bytes, future, deadline, last_try=deadline))
        self._queued_entries += len(bodies)
        self._queued_bytes += size_bytes
        self._wakeup.set()
        if self._sweeper is None:
            self._arm_sweeper()
        return future

    async def close(self) -> None:
        """End all streams. What is queued was not appended; of what is under way the outcome is unknown."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for stream in list(self._streams):
            await stream.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._refuse_queue(ResponseCode.NETWORK_ERROR, "the client was closed")

    def _start(self) -> None:
        if self._is_closed:
            raise NotAppended(ResponseCode.NETWORK_ERROR, "the client is closed")
        self._task = asyncio.get_running_loop().create_task(self._run())

    # ------------------------------------------------------------------------------------------------------ sending

    async def _run(self) -> None:
        # A cancellation can be lost where it meets the end of what is waited for (`asyncio.wait_for` of Python 3.11).
        while not self._is_over():
            await self._wakeup.wait()
            self._wakeup.clear()
            while not self._is_over() and self._queue and self._batches < self._batches_max():
                try:
                    await self._send_one()
                except Refused as refusal:
                    await self._wait_after(refusal)

    def _is_over(self) -> bool:
        return self._is_closed

    def _batches_max(self) -> int:
        return FULL_BATCHES_MAX if self._queued_bytes >= FULL_SIZE_BYTES else BATCHES_MAX

    async def _send_one(self) -> None:
        """Send one batch to the leader, if the queue still holds anything when the stream is open.

        Raises:
            Refused: there is no leader, or what was sent before was refused; wait before trying again.
        """
        if self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            raise refusal
        stream = self._stream or await self._open()
        items = self._take_items()
        if items:
            self._batches += 1
            await stream.send(Batch(self._group, items, self._now_s()))

    async def _open(self) -> AppendStream:
        address = await self._nodes.leader()
        await self._nodes.reach(address, STATUS_TIMEOUT_S)
        call = self._nodes.stub(address).AppendStream()
        stream = AppendStream(address, call, self._on_answer, self._on_lost)
        self._streams[stream] = None
        self._stream = stream
        return stream

    async def _wait_after(self, refusal: Refused) -> None:
        self._trouble = refusal.message
        if not refusal.is_passing:
            self._refuse_queue(refusal.code, refusal.message)
            return
        await asyncio.sleep(self._backoff.next_s())

    def _take_items(self) -> list[Item]:
        """Take items from the queue's head, up to the size of a batch; leave out the expired and the cancelled ones."""
        queue, now = self._queue, self._now_s()
        items: list[Item] = []
        entries = size_bytes = 0
        while queue:
            item = queue[0]
            entries += len(item.bodies)
            size_bytes += item.size_bytes
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
        return items

    def _pop(self) -> Item:
        item = self._queue.popleft()
        self._queued_entries -= len(item.bodies)
        self._queued_bytes -= item.size_bytes
        self._room.set()
        return item

    def _put_back(self, batch: Batch) -> None:
        for item in reversed(batch.items):
            self._queue.appendleft(item._replace(last_try=item.deadline - LAST_TRY_S))
            self._queued_entries += len(item.bodies)
            self._queued_bytes += item.size_bytes

    # ------------------------------------------------------------------------------------------------------- hearing

    def _on_answer(self, stream: AppendStream, batch: Batch, response: AppendResponse) -> None:
        self._batches -= 1
        self._wakeup.set()
        try:
            raise_outcome(response, stream.address)
        except Refused as refusal:
            self._learn(stream, response)
            self._on_refused(batch, refusal)
        except AppendUnknown as outcome:
            self._learn(stream, response)
            _fail(batch, outcome)
        else:
            self._hops = 0
            self._backoff.reset()
            _resolve(batch, response)
        self._retire(stream)

    def _learn(self, stream: AppendStream, response: AppendResponse) -> None:
        """Leave the stream for new batches if its node no longer counts as the leader."""
        tracker = self._nodes.tracker
        tracker.judge(stream.address, response.code, response.leader.address)
        if tracker.leader != stream.address and self._stream is stream:
            self._stream = None

    def _on_refused(self, batch: Batch, refusal: Refused) -> None:
        if not refusal.is_passing or self._is_closed:
            _fail(batch, NotAppended(refusal.code, refusal.message))
            return
        self._put_back(batch)
        self._hops += 1
        # A hint is followed at once, but not without end: nodes that do not agree yet send a client in circles.
        if self._nodes.tracker.leader is None or self._stream is not None or self._hops > HOPS_MAX:
            self._refusal = refusal

    def _on_lost(self, stream: AppendStream, batches: list[Batch], code: grpc.StatusCode, details: str) -> None:
        self._batches -= len(batches)
        self._streams.pop(stream, None)
        if self._stream is stream:
            self._stream = None
        self._nodes.tracker.failed(stream.address)
        outcome = failure_of_append(stream.address, code, details)
        self._trouble = str(outcome)
        for batch in reversed(batches):
            if isinstance(outcome, Refused):
                self._on_refused(batch, outcome)
            else:
                _fail(batch, outcome)
        self._wakeup.set()

    def _retire(self, stream: AppendStream) -> None:
        """End a stream that takes no more batches, once its last one is answered."""
        if stream is not self._stream and not stream.in_flight:
            stream.cancel()

    # ------------------------------------------------------------------------------------------------------ deadlines

    def _arm_sweeper(self) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """End what is late, in the queue and under way; come again while there is anything to watch."""
        now = self._now_s()
        while self._queue and self._queue[0].last_try <= now:
            self._fail_late(self._pop())
        for stream in list(self._streams):
            self._sweep_stream(stream, now)
        self._sweeper = None
        if self._queue or self._batches:
            self._arm_sweeper()

    def _sweep_stream(self, stream: AppendStream, now: float) -> None:
        for batch in stream.in_flight.values():
            if batch.sent_at + self._answer_timeout_s <= now:
                stream.cancel()
                return
            for item in batch.items:
                if item.deadline <= now:
                    text = "the deadline passed while the append was under way"
                    _fail_item(item, AppendUnknown(ResponseCode.NETWORK_ERROR, text))

    def _fail_late(self, item: Item) -> None:
        text = f"the deadline passed before the append could be sent; {self._trouble}"
        _fail_item(item, NotAppended(ResponseCode.NETWORK_ERROR, text))

    def _refuse_queue(self, code: int, message: str) -> None:
        while self._queue:
            _fail_item(self._pop(), NotAppended(code, message))


def _resolve(batch: Batch, response: AppendResponse) -> None:
    """Give every caller the places of its entries."""
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
        # An exception object belongs to the one caller that it is raised to.
        _fail_item(item, type(outcome)(outcome.code, outcome.message))


def _fail_item(item: Item, outcome: NotAppended | AppendUnknown) -> None:
    if not item.future.done():
        item.future.set_exception(outcome)
