"""Takes messages for one broker, joins them into batches, and keeps a few of them under way to its leader.

What is queued when a batch may leave leaves in it: messages that are sent in the same turn of the event loop share a
batch, and so do those that come while enough batches are under way. With a linger, a batch that is not full waits so
long for company; without, a lone message leaves at once.

Every item ends in exactly one way: places, `NotAppended`, or `AppendUnknown`. An item that provably was not stored is
tried again, here or at another broker. One whose outcome is open is tried again only when that was allowed, here, with
the same UNIQ_KEY; if no broker ever reports what became of it, its outcome stays open.

After a refusal nothing new leaves before all that is under way is answered, and what comes back goes to its old place.
So with one batch under way at a time, messages of one queue are stored in the order in which they were sent; with
several, a batch that was taken may overtake the one before it that was refused.
"""

from __future__ import annotations

import asyncio
import math
import time
from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import grpc

from cluster.client.outcomes import outcome_of_failure
from cluster.client.producer.batch import REQUEST_MESSAGES_MAX, PutBatch, PutStream, SendItem
from cluster.client.routing.broker_nodes import BrokerNodes
from cluster.protocol.errors import Reason, RequestFailed, check_answer, failure_of_call
from cluster.v1.broker_pb2 import PutResponse
from dledger.client.retry import HOPS_MAX, Backoff
from store.errors import Certainty

FULL_SIZE_BYTES = 256 << 10
_SWEEP_S = 0.05
# Refusals that may be one message's fault: then the others of its batch are tried without it.
_FAULT_OF_ONE = frozenset({Reason.ILLEGAL_MESSAGE, Reason.ILLEGAL_REQUEST, Reason.UNKNOWN_QUEUE})
# Refusals that another broker may not share.
_FAULT_OF_BROKER = frozenset({Reason.DISK_FULL, Reason.UNKNOWN_QUEUE, Reason.UNKNOWN_TOPIC, Reason.TOPIC_NOT_WRITABLE})


class PumpHooks(NamedTuple):
    """The callbacks of a sender to its producer.

    Attributes:
        moved: takes over an item that was refused; returns whether it found another broker for it.
        observed: called with the duration of each request in ms; None: it failed.
        ended: called for every item that has its outcome.
    """

    moved: Callable[[SendItem, str], bool]
    observed: Callable[[str, float | None], None]
    ended: Callable[[SendItem], None]


class SendRules(NamedTuple):
    """How a pump sends.

    Attributes:
        linger_s: how long a batch that is not full waits for company.
        batch_messages_max: messages in one batch.
        batch_size_bytes_max: of bodies and properties; what one caller sends together may be larger.
        batches_under_way_max: twice as many while they are full; 1 is 1.
        answer_timeout_s: a stream whose oldest batch has no answer for this long is cancelled.
        is_unknown_retried: an open outcome is tried again, for the broker recognises the UNIQ_KEY.
    """

    linger_s: float
    batch_messages_max: int
    batch_size_bytes_max: int
    batches_under_way_max: int
    answer_timeout_s: float
    is_unknown_retried: bool


class SendPump:
    """The queue of one broker and the task that empties it. For use by one event loop."""

    def __init__(self, broker: str, nodes: BrokerNodes, rules: SendRules, hooks: PumpHooks) -> None:
        self._broker = broker
        self._nodes = nodes
        self._rules = rules
        self._hooks = hooks
        self._queues: OrderedDict[str, deque[SendItem]] = OrderedDict()
        self._queued_bytes = 0
        # No deadline in the queues is before this.
        self._earliest = math.inf
        self._wakeup = asyncio.Event()
        self._sweeper: asyncio.TimerHandle | None = None
        self._stream: PutStream | None = None
        self._streams: set[PutStream] = set()
        self._batches = 0
        self._hops = 0
        self._backoff = Backoff()
        # Why the next batch must wait a little; None: it need not.
        self._refusal: RequestFailed | None = None
        self._is_draining = False
        self._is_hasty = False
        self._trouble = RequestFailed(Reason.NOT_REACHED, f"broker {broker} took nothing")
        self._is_closed = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def put(self, item: SendItem) -> None:
        """Queue an item."""
        queue = self._queues.get(item.topic)
        if queue is None:
            queue = self._queues[item.topic] = deque()
        if queue and queue[-1].sequence > item.sequence:
            items = list(queue)
            insort(items, item, key=lambda each: each.sequence)
            self._queues[item.topic] = deque(items)
        else:
            queue.append(item)
        self._queued_bytes += item.size_bytes
        self._earliest = min(self._earliest, item.deadline)
        self._wakeup.set()
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def hasten(self, is_hasty: bool) -> None:
        """Let batches leave without their linger, for a flush; or again with it."""
        self._is_hasty = is_hasty
        self._wakeup.set()

    async def close(self) -> None:
        """End all streams. What is queued was not stored; of what is under way the outcome is unknown."""
        self._is_closed = True
        self._task.cancel()
        await asyncio.wait([self._task])
        for stream in list(self._streams):
            await stream.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        closed = RequestFailed(Reason.CLIENT_CLOSED, "the producer was closed")
        for queue in self._queues.values():
            for item in queue:
                self._fail(item, closed)
        self._queues.clear()

    # ------------------------------------------------------------------------------------------------------ sending

    async def _run(self) -> None:
        # A cancellation can be lost where it meets the end of what is waited for (`asyncio.wait_for` of Python 3.11).
        while not self._is_over():
            await self._wakeup.wait()
            self._wakeup.clear()
            while not self._is_over() and self._may_send():
                linger_s = self._linger_left_s()
                if linger_s > 0:
                    asyncio.get_running_loop().call_later(linger_s, self._wakeup.set)
                    break
                try:
                    await self._send_one()
                except RequestFailed as refusal:
                    await self._wait_after(refusal)

    def _is_over(self) -> bool:
        return self._is_closed

    def _may_send(self) -> bool:
        if self._is_draining:
            if self._batches:
                return False
            self._is_draining = False
        most = self._rules.batches_under_way_max
        if most > 1 and self._queued_bytes >= FULL_SIZE_BYTES:
            most *= 2
        return bool(self._queues) and self._batches < most

    def _linger_left_s(self) -> float:
        """Return how long the next batch waits on; 0: it leaves."""
        rules = self._rules
        if not rules.linger_s or self._is_hasty or self._queued_bytes >= rules.batch_size_bytes_max:
            return 0.0
        queue = next(iter(self._queues.values()))
        if len(queue) >= rules.batch_messages_max:
            return 0.0
        return queue[0].queued_at + rules.linger_s - time.monotonic()

    async def _send_one(self) -> None:
        """Send one batch to the leader, if the queue still holds anything when the stream is open.

        Raises:
            RequestFailed: no node was reached, or what was sent before was refused; wait before trying again.
        """
        if self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            raise refusal
        stream = self._stream or await self._open()
        items = self._take_items()
        if items:
            self._batches += 1
            await stream.send(PutBatch(items))

    async def _open(self) -> PutStream:
        address = self._nodes.leader(self._broker)
        try:
            await self._nodes.reach(address)
        except RequestFailed as failure:
            self._nodes.judge(self._broker, address, failure)
            self._hooks.observed(self._broker, None)
            raise
        call: Any = self._nodes.stub(address).PutStream()
        stream = PutStream(address, call, self._on_answer, self._on_lost)
        self._streams.add(stream)
        self._stream = stream
        return stream

    async def _wait_after(self, refusal: RequestFailed) -> None:
        self._trouble = refusal
        self._move_away()
        await asyncio.sleep(self._backoff.next_s())

    def _move_away(self) -> None:
        """Give to other brokers what may go there: this one takes nothing just now."""
        self._take_out(lambda item: item.is_movable and self._hooks.moved(item, self._broker))

    def _take_out(self, is_taken: Callable[[SendItem], bool]) -> None:
        """Remove the queued items that a function takes, and keep the others in their order."""
        self._earliest = math.inf
        for topic, queue in list(self._queues.items()):
            staying = deque[SendItem]()
            for item in queue:
                if is_taken(item):
                    self._queued_bytes -= item.size_bytes
                else:
                    staying.append(item)
                    self._earliest = min(self._earliest, item.deadline)
            if staying:
                self._queues[topic] = staying
            else:
                del self._queues[topic]

    def _take_items(self) -> list[SendItem]:
        """Take the head of the next topic's queue, up to the size of a batch; leave out those whose caller has gone."""
        if not self._queues:
            return []
        rules = self._rules
        topic, queue = next(iter(self._queues.items()))
        items: list[SendItem] = []
        messages = size_bytes = 0
        while queue:
            item = queue[0]
            messages += len(item.messages)
            size_bytes += item.size_bytes
            is_full = messages > min(rules.batch_messages_max, REQUEST_MESSAGES_MAX)
            if items and (item.is_alone or is_full or size_bytes > rules.batch_size_bytes_max):
                break
            queue.popleft()
            self._queued_bytes -= item.size_bytes
            if item.future.done():
                messages -= len(item.messages)
                size_bytes -= item.size_bytes
                self._hooks.ended(item)
                continue
            items.append(item)
            if item.is_alone:
                break
        if queue:
            self._queues.move_to_end(topic)
        else:
            del self._queues[topic]
        return items

    # ------------------------------------------------------------------------------------------------------- receiving

    def _on_answer(self, stream: PutStream, batch: PutBatch, response: PutResponse) -> None:
        self._batches -= 1
        self._wakeup.set()
        try:
            check_answer(response.answer, stream.address)
        except RequestFailed as failure:
            is_named = self._nodes.judge(self._broker, stream.address, failure)
            if self._stream is stream and self._nodes.leader(self._broker) != stream.address:
                self._stream = None
            self._on_failed(batch, failure, is_named=is_named)
        else:
            self._hops = 0
            self._backoff.reset()
            self._hooks.observed(self._broker, (time.monotonic() - batch.sent_at) * 1000)
            batch.resolve(self._broker, response)
            for item in batch.items:
                self._hooks.ended(item)
        if stream is not self._stream and not stream.in_flight:
            stream.cancel()

    def _on_lost(self, stream: PutStream, batches: list[PutBatch], code: grpc.StatusCode, details: str) -> None:
        self._batches -= len(batches)
        self._streams.discard(stream)
        if self._stream is stream:
            self._stream = None
        failure = failure_of_call(stream.address, code, details, "BrokerService")
        self._nodes.judge(self._broker, stream.address, failure)
        for batch in batches:
            self._on_failed(batch, failure, is_named=False)
        self._wakeup.set()

    def _on_failed(self, batch: PutBatch, failure: RequestFailed, *, is_named: bool) -> None:
        self._trouble = failure
        self._is_draining = True
        if failure.is_worth_trying or failure.certainty is Certainty.UNKNOWN:
            self._hooks.observed(self._broker, None)
            self._hops += 1
            # A named leader is tried at once, but not without limit: nodes that disagree send a client in circles.
            if not is_named or self._hops > HOPS_MAX:
                self._refusal = failure
        for item in batch.items:
            if not self._is_tried_again(item, batch, failure):
                self._fail(item, failure)

    def _is_tried_again(self, item: SendItem, batch: PutBatch, failure: RequestFailed) -> bool:
        """Put an item back where it may be tried again; return whether that is so."""
        if self._is_closed or item.future.done():
            return False
        if failure.certainty is Certainty.UNKNOWN:
            if not self._rules.is_unknown_retried:
                return False
            item.is_open = True
            item.is_movable = False
        elif item.is_movable and (failure.is_worth_trying or failure.reason in _FAULT_OF_BROKER):
            if self._hooks.moved(item, self._broker):
                return True
            if not failure.is_worth_trying:
                return False
        elif failure.reason in _FAULT_OF_ONE and len(batch.items) > 1:
            item.is_alone = True
        elif not failure.is_worth_trying:
            return False
        self.put(item)
        return True

    def _fail(self, item: SendItem, failure: RequestFailed) -> None:
        if not item.future.done():
            # An exception object belongs to the one caller that it is raised to.
            item.future.set_exception(outcome_of_failure(failure, item.unique_keys, is_open=item.is_open))
        self._hooks.ended(item)

    # ------------------------------------------------------------------------------------------------------ deadlines

    def _sweep(self) -> None:
        """End what is late, in the queue and under way; come again while there is anything to watch."""
        now = time.monotonic()
        if self._earliest <= now:
            self._sweep_queues(now)
        for stream in list(self._streams):
            self._sweep_stream(stream, now)
        self._sweeper = None
        if self._queues or self._batches:
            self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep_queues(self, now: float) -> None:
        """End late items wherever they are: each caller sets how long its messages may take."""

        def is_late(item: SendItem) -> bool:
            if item.deadline > now:
                return False
            self._fail(item, self._too_late("before the message could be sent"))
            return True

        self._take_out(is_late)

    def _sweep_stream(self, stream: PutStream, now: float) -> None:
        for batch in stream.in_flight.values():
            if batch.sent_at + self._rules.answer_timeout_s <= now:
                stream.cancel()
                return
            for item in batch.items:
                if item.deadline <= now and not item.future.done():
                    late = RequestFailed(Reason.ANSWER_LATE, "the deadline passed while the message was under way")
                    item.future.set_exception(outcome_of_failure(late, item.unique_keys, is_open=True))

    def _too_late(self, when: str) -> RequestFailed:
        trouble = self._trouble
        text = f"the deadline passed {when}; {trouble.message}"
        reason = trouble.reason or trouble.name
        return RequestFailed(reason, text, certainty=Certainty.NOT_APPENDED, code=trouble.code)
