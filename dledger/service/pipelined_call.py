"""One bidirectional stream with many requests in flight, each answered when its outcome is known.

Not here: the processing of a request, and its answer (`dledger.service.log`, `cluster.api.put_calls`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from dledger.errors import DLedgerError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

# Accepted, unanswered requests of one stream; flow control delays further ones.
IN_FLIGHT_MAX = 64


class _Numbered(Protocol):
    @property
    def request_id(self) -> int: ...


Request = TypeVar("Request", bound=_Numbered)
Result = TypeVar("Result")
Response = TypeVar("Response")


class RequestUndecided(DLedgerError):
    """A request of a stream ended without an outcome, because of a bug; it may have been executed."""

    def __init__(self, request_id: int) -> None:
        super().__init__(f"request {request_id} of the stream ended without an outcome; it may have taken effect")


class PipelinedCall(Generic[Request, Result, Response]):
    """Reads requests and sends answers, independently of each other; one task per stream, none per request.

    Args:
        begin: begins the work of one request.
        answer: converts its result to a response; gets the request's id, too.
    """

    def __init__(
        self, begin: Callable[[Request], asyncio.Future[Result]], answer: Callable[[int, Result], Response]
    ) -> None:
        self._begin = begin
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._in_flight = 0
        self._results: deque[tuple[int, Result]] = deque()
        self._has_more = True
        # The first request that ended without an outcome: no more are accepted, and the stream ends with this error.
        self._failure: RequestUndecided | None = None
        self._answer_wanted: asyncio.Future[None] | None = None
        self._space_wanted: asyncio.Future[None] | None = None
        self._taking: asyncio.Task[None] | None = None

    async def run(self, requests: AsyncIterator[Request]) -> AsyncIterator[Response]:
        """Yield an answer for each request, in the order in which they are decided; end when all are answered.

        An error of the stream itself (a client that disconnected) is raised; accepted requests may still be committed.

        Raises:
            RequestUndecided: one request ended without an outcome; raised after all other accepted ones are answered.
        """
        taking = self._taking = self._loop.create_task(self._take_in(requests))
        try:
            while self._has_more or self._in_flight:
                while self._results:
                    # Counted until its answer is sent, so that a client that does not read answers is also delayed.
                    self._in_flight -= 1
                    _wake(self._space_wanted)
                    yield self._answer(*self._results.popleft())
                if self._has_more or self._in_flight:
                    self._answer_wanted = self._loop.create_future()
                    await self._answer_wanted
            if self._failure is not None:
                raise self._failure
            await taking
        finally:
            taking.cancel()

    async def _take_in(self, requests: AsyncIterator[Request]) -> None:
        try:
            async for request in requests:
                while self._in_flight >= IN_FLIGHT_MAX:
                    self._space_wanted = self._loop.create_future()
                    await self._space_wanted
                future = self._begin(request)
                # Only now: a request that raises has no answer, and its error ends the stream.
                self._in_flight += 1
                future.add_done_callback(partial(self._decided, request.request_id))
        finally:
            self._has_more = False
            _wake(self._answer_wanted)

    def _decided(self, request_id: int, future: asyncio.Future[Result]) -> None:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is None:
            self._results.append((request_id, future.result()))
        else:
            self._in_flight -= 1
            if self._failure is None:
                self._failure = RequestUndecided(request_id)
                self._failure.__cause__ = error
            if self._taking is not None:
                self._taking.cancel()
        _wake(self._answer_wanted)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
