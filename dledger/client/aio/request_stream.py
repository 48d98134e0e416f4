"""One bidirectional call to one node: batches, their answers, and the batches lost when it breaks.

It makes no decisions: it reports every answer, and its end, to the sender. Requests and responses are matched by
their field `request_id`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import grpc
import grpc.aio

from dledger.client.aio.stream_end import StreamEnded, is_this_task_cancelled, next_response

if TYPE_CHECKING:
    from collections.abc import Callable

_ORDERLY_END_S = 0.5


class SentBatch(Protocol):
    """The port of a batch that a stream sends as one request."""

    @property
    def sent_at(self) -> float:
        """The time when it was created, on the monotonic clock."""
        ...

    def request(self, request_id: int) -> Any:
        """Return the request that carries it."""
        ...


class _Response(Protocol):
    @property
    def request_id(self) -> int: ...


BatchT = TypeVar("BatchT", bound=SentBatch)
ResponseT = TypeVar("ResponseT", bound=_Response)


class BatchStream(Protocol[BatchT]):
    """A stream as its sender uses it.

    Attributes:
        address: the node's.
        in_flight: the batches without an answer, oldest first.
    """

    address: str
    in_flight: dict[int, BatchT]

    @property
    def is_usable(self) -> bool:
        """Whether another batch may be sent."""
        ...

    async def send(self, batch: BatchT) -> None:
        """Send a batch."""
        ...

    def cancel(self) -> None:
        """End the stream at once."""
        ...

    async def close(self) -> None:
        """End the stream and wait for that."""
        ...


class RequestStream(Generic[BatchT, ResponseT]):
    """A bidirectional stream with several batches in flight.

    Args:
        address: the node's.
        call: the gRPC call, just opened.
        on_answer: called for every answered batch.
        on_lost: called once, at the end: the batches without an answer, in order of sending, and gRPC's code and text.
    """

    def __init__(
        self,
        address: str,
        call: grpc.aio.StreamStreamCall[Any, ResponseT],
        on_answer: Callable[[RequestStream[BatchT, ResponseT], BatchT, ResponseT], None],
        on_lost: Callable[[RequestStream[BatchT, ResponseT], list[BatchT], grpc.StatusCode, str], None],
    ) -> None:
        self.address = address
        self.in_flight: dict[int, BatchT] = {}
        self._call = call
        self._on_answer = on_answer
        self._on_lost = on_lost
        self._last_request_id = 0
        self._reader = asyncio.ensure_future(self._read())

    @property
    def is_usable(self) -> bool:
        """True: until the call ends, which is reported."""
        return True

    async def send(self, batch: BatchT) -> None:
        """Write a batch; return when the connection has accepted it. A failure is reported through `on_lost`."""
        self._last_request_id += 1
        self.in_flight[self._last_request_id] = batch
        try:
            await self._call.write(batch.request(self._last_request_id))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # The call has ended: its reader reports it.
        except asyncio.CancelledError:
            # Else only the call was cancelled: its reader reports it.
            if is_this_task_cancelled():
                raise

    def cancel(self) -> None:
        """End the call at once; `on_lost` follows."""
        self._call.cancel()

    async def close(self) -> None:
        """End the call and wait until `on_lost` was called: cleanly if nothing is in flight, else at once."""
        if not self.in_flight:
            # gRPC needs a moment to finish a cancelled call; a loop that is closed before then logs errors.
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await self._call.done_writing()
            await asyncio.wait([self._reader], timeout=_ORDERLY_END_S)
        self._call.cancel()
        await asyncio.wait([self._reader])

    async def _read(self) -> None:
        call, in_flight = self._call, self.in_flight
        # Raised when the event loop ends; callers with batches in flight must still get an outcome.
        code, details = grpc.StatusCode.CANCELLED, "the client was closed"
        try:
            while True:
                response = await next_response(call, "the call was cancelled")
                batch = in_flight.pop(response.request_id, None)
                if batch is not None:
                    self._on_answer(self, batch, response)
        except StreamEnded as end:
            code, details = end.code, end.details or "the node ended the stream"
        except asyncio.CancelledError:
            pass
        lost = list(in_flight.values())
        in_flight.clear()
        self._on_lost(self, lost, code, details)
