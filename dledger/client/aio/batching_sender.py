"""Sends queued items to the leader in batches, several in flight, over one stream at a time.

It owns the loop, the streams, the pauses, the deadlines and the shutdown. A policy (`AppendQueue` of the log client,
`PutQueue` of the producer) decides which items are queued, which share a batch, and what an answer means for the
callers.

When a batch may be sent, it takes what is queued: items of the same iteration of the event loop share a batch, and so
do those that are queued while the permitted number of batches is in flight.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import grpc

from dledger.client.aio.framed_stream import FramedCalls, FramedStream
from dledger.client.aio.request_stream import BatchStream, BatchT, RequestStream, ResponseT
from dledger.client.retry import HOPS_MAX, Backoff
from dledger.earliest_timer import EarliestTimer

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc.aio

# With this much queued, twice as many batches may be in flight: the batches are full, so the extra requests pay off.
FULL_SIZE_BYTES = 256 << 10
_SWEEP_S = 0.05
# uvloop's timers have whole milliseconds, and sums of times are not exact: a timer that is late by this is kept.
_TIMER_RESOLUTION_S = 0.001

RefusalT = TypeVar("RefusalT", bound=Exception)


@dataclass(frozen=True, slots=True)
class SendVerdict(Generic[RefusalT]):
    """The effect of an answer, or of the end of a stream, on the next batches.

    Attributes:
        is_taken: the batch was accepted; resets the count of refusals.
        is_stream_left: no new batch is sent to this node; batches in flight are still awaited.
        refusals: number of batches that were refused and may be sent again.
        cause: of the refusals; None when there are none.
        is_leader_named: the answer named another leader; the next batch is sent without a pause.
        is_drained_first: no batch is sent before all batches in flight are answered, so that refused items keep their
            order before items queued later.
    """

    is_taken: bool = False
    is_stream_left: bool = False
    refusals: int = 0
    cause: RefusalT | None = None
    is_leader_named: bool = False
    is_drained_first: bool = False


class SenderPolicy(Protocol[BatchT, ResponseT, RefusalT]):
    """The queue of one sender, and its rules. Only `open` waits.

    Attributes:
        refusal: the type of the exception for items that were not sent.
        queued_bytes: size of all queued items.
    """

    refusal: type[RefusalT]
    queued_bytes: int

    @property
    def is_empty(self) -> bool:
        """Whether nothing is queued."""
        ...

    def linger_left_s(self) -> float:
        """Return the time left until a batch that is not full is sent; at most 0: now. Something must be queued."""
        ...

    async def open(self) -> tuple[str, grpc.aio.StreamStreamCall[Any, ResponseT] | FramedCalls]:
        """Find the leader and open a stream to it; return its address, and the call, or how to call it by frames.

        Raises:
            RefusalT: there is no leader, or it cannot be reached.
        """
        ...

    def take(self) -> BatchT | None:
        """Remove the next batch from the queue; None when no queued item has a waiting caller."""
        ...

    def paused(self, refusal: RefusalT) -> float | None:
        """Handle a failed attempt to send; return the seconds that its refusal asks for; None: no pause."""
        ...

    def answered(self, address: str, batch: BatchT, response: ResponseT, *, may_retry: bool) -> SendVerdict[RefusalT]:
        """Give the callers of a batch their outcome, or queue it again if it was refused and `may_retry`."""
        ...

    def lost(
        self, address: str, batches: list[BatchT], code: grpc.StatusCode, details: str, *, may_retry: bool
    ) -> SendVerdict[RefusalT]:
        """Give callers their outcome, or queue batches again, when a stream ended early; oldest batch first."""
        ...

    def expire_queued(self, now_s: float) -> None:
        """Fail queued items whose deadline has passed."""
        ...

    def expire_sent(self, batch: BatchT, now_s: float) -> None:
        """Fail the items of a batch in flight whose deadline has passed; its answer may still arrive."""
        ...

    def fail_queued(self) -> None:
        """Fail all queued items: the sender is closed."""
        ...


class BatchingSender(Generic[BatchT, ResponseT, RefusalT]):
    """The task that sends the items of one queue. For use by one event loop.

    Args:
        policy: the queue and its rules.
        batches_max: batches in flight; twice as many while they are full, except that 1 stays 1.
        answer_timeout_s: a stream whose oldest batch has no answer for this time is cancelled.
        now_s: seconds of the monotonic clock of deadlines.
        backoff: the pauses after refusals.
    """

    def __init__(
        self,
        policy: SenderPolicy[BatchT, ResponseT, RefusalT],
        batches_max: int,
        answer_timeout_s: float,
        now_s: Callable[[], float],
        backoff: Backoff,
    ) -> None:
        self._policy = policy
        self._batches_max = batches_max
        self._full_batches_max = 2 * batches_max if batches_max > 1 else 1
        self._answer_timeout_s = answer_timeout_s
        self._now_s = now_s
        self._backoff = backoff
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        # Ends the linger of the next batch.
        self._linger_end = EarliestTimer(self._wakeup.set, resolution_s=_TIMER_RESOLUTION_S)
        # Set while anything is queued or in flight, so that an idle sender costs nothing.
        self._sweeper: asyncio.TimerHandle | None = None
        # The stream for new batches; None: the next batch opens one. Older streams only wait for their last answers.
        self._stream: BatchStream[BatchT] | None = None
        # In the order in which they were opened.
        self._streams: dict[BatchStream[BatchT], None] = {}
        # Batches in flight, on all streams.
        self._batches = 0
        # Refusals since the last accepted batch.
        self._hops = 0
        # Why the next batch must wait for a pause; None: no pause.
        self._refusal: RefusalT | None = None
        self._is_draining = False
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called: nothing may be queued any more."""
        return self._is_closed

    def queued(self) -> None:
        """Wake the sender after the policy has queued an item. Must be called in the event loop."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        self._wakeup.set()
        if self._sweeper is None:
            self._arm_sweeper()

    def wake(self) -> None:
        """Check the queue again: the policy's linger has changed."""
        self._wakeup.set()

    async def close(self) -> None:
        """End all streams, with the policy's outcomes; queued items are failed last."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for stream in list(self._streams):
            await stream.close()
        self._linger_end.cancel()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._policy.fail_queued()

    # ------------------------------------------------------------------------------------------------------ sending

    async def _run(self) -> None:
        # `open` awaits foreign code: if that swallows a cancellation, the task must still end.
        while not self._is_closed:
            await self._wakeup.wait()
            self._wakeup.clear()
            while self._may_send():
                linger_s = self._policy.linger_left_s()
                if linger_s > 0:
                    self._linger_end.after(linger_s)
                    break
                try:
                    await self._send_one()
                except self._policy.refusal as refusal:
                    asked_s = self._policy.paused(refusal)
                    if asked_s is not None:
                        await asyncio.sleep(self._backoff.next_s(asked_s))

    def _may_send(self) -> bool:
        if self._is_closed:
            return False
        if self._is_draining:
            if self._batches:
                return False
            self._is_draining = False
        policy = self._policy
        most = self._full_batches_max if policy.queued_bytes >= FULL_SIZE_BYTES else self._batches_max
        return not policy.is_empty and self._batches < most

    async def _send_one(self) -> None:
        """Send one batch to the leader, if the queue still holds anything when the stream is open.

        Raises:
            RefusalT: there is no leader, or earlier batches were refused; pause before the next attempt.
        """
        if self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            raise refusal
        stream = self._stream
        if stream is None or not stream.is_usable:
            stream = await self._open()
        batch = self._policy.take()
        if batch is not None:
            self._batches += 1
            await stream.send(batch)

    async def _open(self) -> BatchStream[BatchT]:
        address, call = await self._policy.open()
        stream: BatchStream[BatchT]
        if isinstance(call, FramedCalls):
            stream = FramedStream(address, call, self._on_answer, self._on_failed, self._on_lost)
        else:
            stream = RequestStream(address, call, self._on_answer, self._on_lost)
        self._streams[stream] = None
        self._stream = stream
        return stream

    # ---------------------------------------------------------------------------------------------------- receiving

    def _on_answer(self, stream: BatchStream[BatchT], batch: BatchT, response: ResponseT) -> None:
        verdict = self._policy.answered(stream.address, batch, response, may_retry=not self._is_closed)
        self._on_end(stream, verdict)

    def _on_failed(self, stream: BatchStream[BatchT], batch: BatchT, code: grpc.StatusCode, details: str) -> None:
        verdict = self._policy.lost(stream.address, [batch], code, details, may_retry=not self._is_closed)
        self._on_end(stream, verdict)

    def _on_end(self, stream: BatchStream[BatchT], verdict: SendVerdict[RefusalT]) -> None:
        self._batches -= 1
        self._wakeup.set()
        self._follow(stream, verdict)
        if stream is not self._stream and not stream.in_flight:
            stream.cancel()  # Its last batch is answered.

    def _on_lost(self, stream: BatchStream[BatchT], batches: list[BatchT], code: grpc.StatusCode, details: str) -> None:
        self._batches -= len(batches)
        self._streams.pop(stream, None)
        if self._stream is stream:
            self._stream = None
        may_retry = not self._is_closed
        self._follow(stream, self._policy.lost(stream.address, batches, code, details, may_retry=may_retry))
        self._wakeup.set()

    def _follow(self, stream: BatchStream[BatchT], verdict: SendVerdict[RefusalT]) -> None:
        if verdict.is_taken:
            self._hops = 0
            self._backoff.reset()
            return
        if verdict.is_stream_left and self._stream is stream:
            self._stream = None
        self._is_draining |= verdict.is_drained_first
        if verdict.refusals:
            self._hops += verdict.refusals
            # A named leader is tried at once, but a limited number of times: nodes that disagree could redirect a
            # client in circles.
            if not verdict.is_leader_named or self._stream is not None or self._hops > HOPS_MAX:
                self._refusal = verdict.cause

    # ---------------------------------------------------------------------------------------------------- deadlines

    def _arm_sweeper(self) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Fail all items whose deadline has passed, queued or in flight; reschedule while any are left."""
        now_s = self._now_s()
        self._policy.expire_queued(now_s)
        for stream in list(self._streams):
            self._sweep_stream(stream, now_s)
        self._sweeper = None
        if not self._policy.is_empty or self._batches:
            self._arm_sweeper()

    def _sweep_stream(self, stream: BatchStream[BatchT], now_s: float) -> None:
        for batch in stream.in_flight.values():
            if batch.sent_at + self._answer_timeout_s <= now_s:
                stream.cancel()
                return
            self._policy.expire_sent(batch, now_s)
