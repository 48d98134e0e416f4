"""Calls whose first request has not arrived: limited in time and number; the oldest is ended first.

A gRPC call counts against the server's limit of calls when its headers arrive. Without the limits here, two connections
that send headers and no request could use up that limit for as long as they are open, and every other client would be
refused.

A call that carries one request must send it within `REQUEST_LIMIT_S`. A stream may wait longer, because some clients
open it before they have a request; it counts as unread until its first request.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final, cast

import grpc
import grpc.aio

# The largest request, 9 MiB, needs 8 Mbit/s to arrive in time.
REQUEST_LIMIT_S: Final = 10.0

# Ending a call takes about 70 µs, and many calls may be due at the same time.
_ENDED_PER_TURN_MAX: Final = 64
_TOO_LATE: Final = grpc.StatusCode.DEADLINE_EXCEEDED
_TOO_MANY: Final = grpc.StatusCode.RESOURCE_EXHAUSTED

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(slots=True, eq=False)
class _Call:
    """A call without a request yet: its task, its deadline (seconds of the loop), and the reason why it was ended."""

    task: asyncio.Task[Any]
    deadline_s: float
    ended: grpc.StatusCode | None = None


class UnreadCalls:
    """The calls of one server that wait for their first request. Loop thread only.

    Args:
        count_max: calls that may wait; one more ends the oldest. Less than the server's limit of calls, so that calls
            with a request are always accepted.
        request_limit_s: time limit for the request of a unary call.
    """

    def __init__(self, count_max: int, request_limit_s: float = REQUEST_LIMIT_S) -> None:
        self._count_max = count_max
        self._request_limit_s = request_limit_s
        # Calls with one request and streams, each oldest first; a call that is being ended is removed at once.
        self._calls: dict[_Call, None] = {}
        self._streams: dict[_Call, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def first_request(self, context: Context, *, is_stream: bool = False) -> bytes | None:
        """Return the first request of a call; None: a stream ended without one.

        Args:
            context: of the call, which has one request or is a stream of them.
            is_stream: the request has no time limit while fewer than `count_max` calls wait.

        Raises:
            grpc.aio.AbortError: the call was ended with a status: no request came, or not in time.
        """
        request = await self._read(context, self._streams if is_stream else self._calls)
        if request is not grpc.aio.EOF:
            return cast("bytes", request)
        if not is_stream:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "expected one request, found none")
        return None

    async def _read(self, context: Context, waiting: dict[_Call, None]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        call = _Call(task, asyncio.get_running_loop().time() + self._request_limit_s)
        waiting[call] = None
        is_too_many = len(self._calls) + len(self._streams) > self._count_max
        self._look_at(0.0 if is_too_many else call.deadline_s)
        try:
            return await context.read()
        except asyncio.CancelledError:
            if call.ended is None:
                raise
            task.uncancel()
        finally:
            waiting.pop(call, None)
        fault = f"no request within {self._request_limit_s:g} s after the call began"
        if call.ended is _TOO_MANY:
            fault = f"more than {self._count_max} calls have not sent a request; the oldest is ended"
        await context.abort(call.ended, fault)
        raise AssertionError  # abort raises

    def _end_due(self) -> None:
        """End calls that are expired or exceed the limit, a bounded number per iteration."""
        now_s = asyncio.get_running_loop().time()
        self._timer = None
        for _ in range(_ENDED_PER_TURN_MAX):
            oldest = next(iter(self._calls), None)
            if len(self._calls) + len(self._streams) > self._count_max:
                # From the larger kind, so that waiting streams do not cause every unary call to be ended.
                waiting = max(self._calls, self._streams, key=len)
                self._end(waiting, next(iter(waiting)), _TOO_MANY)
            elif oldest is not None and oldest.deadline_s <= now_s:
                self._end(self._calls, oldest, _TOO_LATE)
            else:
                break
        else:
            self._look_at(0.0)
            return
        if self._calls:
            self._look_at(next(iter(self._calls)).deadline_s)

    def _look_at(self, time_s: float) -> None:
        """Call `_end_due` at this time of the loop, or earlier if it will be called earlier anyway."""
        if self._timer is None or time_s < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_at(time_s, self._end_due)

    @staticmethod
    def _end(waiting: dict[_Call, None], call: _Call, status: grpc.StatusCode) -> None:
        del waiting[call]
        call.ended = status
        call.task.cancel()
