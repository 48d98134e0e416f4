"""Batches as single calls on a link: to the sender it is a stream like `RequestStream`, with the same two ends.

Each batch is one call with one response. A call that ends with a status instead is reported alone, because the others
are not affected.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import grpc

from dledger.client.aio.request_stream import BatchT, ResponseT
from dledger.client.framing import NoFrames
from dledger.frames.codec import NOT_BEGUN

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.client.aio.frame_link import FrameLink


class FramedCalls(NamedTuple):
    """How the batches of a stream are sent.

    Attributes:
        link: to the frame port of a node.
        method: its number there.
        response: returns the response in the bytes of an answer.
    """

    link: FrameLink
    method: int
    response: Callable[[bytes], Any]


class FramedStream(Generic[BatchT, ResponseT]):
    """Sends batches in order, as frames on one connection; the counterpart of `request_stream.BatchStream`.

    Args:
        address: the node's.
        calls: how batches are sent.
        on_answer: called for every batch with a response.
        on_failed: called for every batch that ended with a status instead, and its text.
        on_lost: called once, at the end: the batches without an answer, in order of sending, and a status and a text.
    """

    def __init__(
        self,
        address: str,
        calls: FramedCalls,
        on_answer: Callable[[FramedStream[BatchT, ResponseT], BatchT, ResponseT], None],
        on_failed: Callable[[FramedStream[BatchT, ResponseT], BatchT, grpc.StatusCode, str], None],
        on_lost: Callable[[FramedStream[BatchT, ResponseT], list[BatchT], grpc.StatusCode, str], None],
    ) -> None:
        self.address = address
        # By the number of the call on the link.
        self.in_flight: dict[int, BatchT] = {}
        self._link, self._method, self._response = calls
        self._on_answer = on_answer
        self._on_failed = on_failed
        self._on_lost = on_lost
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_left = False
        self._link.attach(self)

    @property
    def is_usable(self) -> bool:
        """Whether another batch may be sent."""
        return not self._is_left and self._link.is_usable

    async def send(self, batch: BatchT) -> None:
        """Send a batch; return when the connection can take another one. A failure is reported by a callback."""
        try:
            request: Any = batch.request(0)
            call_id = self._link.call(self, self._method, request.SerializeToString())
        except NoFrames as error:
            self._on_failed(self, batch, grpc.StatusCode.UNAVAILABLE, f"{NOT_BEGUN}: {error}")
            return
        self.in_flight[call_id] = batch
        await self._link.drained()

    def cancel(self) -> None:
        """End the stream; the callback `on_lost` follows. With batches in flight the link ends, too: it is silent."""
        self._is_left = True
        if self.in_flight:
            self._link.abort("no answer in time")
        else:
            asyncio.get_running_loop().call_soon(partial(self.on_lost, ""))

    async def close(self) -> None:
        """End the stream and wait until the callback `on_lost` was called."""
        self.cancel()
        await self._ended

    # ------------------------------------------------------------------------------------------------- from the link

    def on_answer(self, call_id: int, code: grpc.StatusCode, payload: bytes) -> None:
        """Pass an answer on."""
        batch = self.in_flight.pop(call_id)
        if code is grpc.StatusCode.OK:
            self._on_answer(self, batch, self._response(payload))
        else:
            self._on_failed(self, batch, code, payload.decode(errors="replace"))
        if self._is_left and not self.in_flight:
            self.on_lost("")

    def on_closing(self) -> None:
        """Send no more; end when the batches in flight are answered."""
        self._is_left = True
        if not self.in_flight:
            self.on_lost("")

    def on_lost(self, details: str) -> None:
        """End the stream."""
        if self._ended.done():
            return
        self._ended.set_result(None)
        self._is_left = True
        self._link.detach(self)
        lost = list(self.in_flight.values())
        self.in_flight.clear()
        self._on_lost(self, lost, grpc.StatusCode.UNAVAILABLE, details)
