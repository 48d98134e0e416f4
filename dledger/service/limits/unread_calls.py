"""Calls whose first request has not arrived: limited in time, number and memory; the oldest is ended first.

A gRPC call counts against the server's limit of calls when its headers arrive. Without the limits here, two connections
that send headers and no request could use up that limit for as long as they are open, and every other client would be
refused. Two connections that send large requests on all their calls would take gigabytes.

A call that carries one request must send it within `REQUEST_LIMIT_S`. A stream may wait longer, because some clients
open it before they have a request; it counts as unread until its first request. `READING_MAX` calls are read at a time
(`reading_places`). When others wait for a place, a call that has been read for `READING_LIMIT_S` is ended, of the
caller with the most places.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import grpc
import grpc.aio

from dledger.earliest_timer import EarliestTimer
from dledger.service.limits.reading_places import ReadingPlaces

# The largest request, 9 MiB, needs 8 Mbit/s to arrive in time.
REQUEST_LIMIT_S: Final = 10.0
# Of calls with a known caller, and of the others: 288 MiB of requests that are not complete for each.
READING_MAX: Final = 32
# A request of 1 MiB needs 4 Mbit/s to arrive in this time.
READING_LIMIT_S: Final = 2.0

# Ending a call takes about 70 µs, and many calls may be due at the same time.
_ENDED_PER_TURN_MAX: Final = 64
_TOO_LATE: Final = grpc.StatusCode.DEADLINE_EXCEEDED
_TOO_MANY: Final = grpc.StatusCode.RESOURCE_EXHAUSTED

Context = grpc.aio.ServicerContext[Any, Any]


class CallOwner(NamedTuple):
    """The caller of a call, as its places are counted.

    Attributes:
        name: by which its shares are counted.
        is_known: it has proven its identity, so that calls of unknown callers do not take its places.
    """

    name: str
    is_known: bool


@dataclass(slots=True, eq=False)
class _Call:
    """A call without a request yet.

    Attributes:
        task: that serves it.
        caller: the name.
        places: of its kind of callers.
        deadline_s: time of the loop.
        ended: the status with which it was ended; None: it was not.
        fault: why it was ended.
    """

    task: asyncio.Task[Any]
    caller: str
    places: ReadingPlaces
    deadline_s: float
    ended: grpc.StatusCode | None = None
    fault: str = ""


class UnreadCalls:
    """The calls of one server that wait for their first request. Loop thread only.

    Args:
        count_max: calls that may wait; one more ends the oldest. Less than the server's limit of calls, so that calls
            with a request are always accepted.
        request_limit_s: time limit for the request of a unary call.
        reading_max: calls of known callers that are read at a time, and as many of others.
        reading_limit_s: time limit for a call that is read while others wait to be read.
    """

    def __init__(
        self,
        count_max: int,
        request_limit_s: float = REQUEST_LIMIT_S,
        *,
        reading_max: int = READING_MAX,
        reading_limit_s: float = READING_LIMIT_S,
    ) -> None:
        self._count_max = count_max
        self._request_limit_s = request_limit_s
        self._reading_max = reading_max
        self._reading_limit_s = reading_limit_s
        self._known = ReadingPlaces(reading_max)
        self._unknown = ReadingPlaces(reading_max)
        # Calls with one request and streams, each oldest first; a call that is being ended is removed at once.
        self._calls: dict[_Call, None] = {}
        self._streams: dict[_Call, None] = {}
        # Those of both that have a place, with the times of the loop when they got it, in order.
        self._reading: dict[_Call, float] = {}
        self._timer = EarliestTimer(self._end_due)

    async def first_request(self, context: Context, caller: CallOwner, *, is_stream: bool = False) -> bytes | None:
        """Return the first request of a call; None: a stream ended without one.

        Args:
            context: of the call, which has one request or is a stream of them.
            caller: of the call.
            is_stream: the request has no time limit while fewer than `count_max` calls wait, and none for a place.

        Raises:
            grpc.aio.AbortError: the call was ended with a status: no request came, or not in time.
        """
        request = await self._read(context, caller, self._streams if is_stream else self._calls)
        if request is not grpc.aio.EOF:
            return cast("bytes", request)
        if not is_stream:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "expected one request, found none")
        return None

    async def _read(self, context: Context, caller: CallOwner, waiting: dict[_Call, None]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        places = self._known if caller.is_known else self._unknown
        call = _Call(task, caller.name, places, asyncio.get_running_loop().time() + self._request_limit_s)
        waiting[call] = None
        is_too_many = len(self._calls) + len(self._streams) > self._count_max
        self._timer.at(0.0 if is_too_many else call.deadline_s)
        try:
            return await self._read_in_place(context, call)
        except asyncio.CancelledError:
            if call.ended is None:
                raise
            task.uncancel()
        finally:
            waiting.pop(call, None)
        await context.abort(call.ended, call.fault)
        raise AssertionError  # abort raises

    async def _read_in_place(self, context: Context, call: _Call) -> Any:
        if not call.places.take(call.caller):
            self._timer.at(0.0)
            await call.places.wait(call.caller)
        self._reading[call] = asyncio.get_running_loop().time()
        try:
            return await context.read()
        finally:
            self._reading.pop(call, None)
            call.places.give_back(call.caller)

    def _end_due(self) -> None:
        """End calls that are expired or exceed a limit, a bounded number per iteration."""
        now_s = asyncio.get_running_loop().time()
        for _ in range(_ENDED_PER_TURN_MAX):
            if not self._end_oldest(now_s):
                break
        else:
            self._timer.at(0.0)
            return
        if self._calls:
            self._timer.at(next(iter(self._calls)).deadline_s)
        for places in (self._known, self._unknown):
            if places.is_short:
                self._end_slowest(places, now_s)

    def _end_oldest(self, now_s: float) -> bool:
        """End a call if there are too many, or one is expired; return whether one was ended."""
        oldest = next(iter(self._calls), None)
        if len(self._calls) + len(self._streams) > self._count_max:
            # From the larger kind, so that waiting streams do not cause every unary call to be ended.
            waiting = max(self._calls, self._streams, key=len)
            fault = f"more than {self._count_max} calls have not sent a request; the oldest is ended"
            self._end(next(iter(waiting)), _TOO_MANY, fault)
        elif oldest is not None and oldest.deadline_s <= now_s:
            self._end(oldest, _TOO_LATE, f"no request within {self._request_limit_s:g} s after the call began")
        else:
            return False
        return True

    def _end_slowest(self, places: ReadingPlaces, now_s: float) -> None:
        """End one call that has had one of these places for too long, or look again when one has.

        Its place is free in the next iteration, so others are ended then, if calls still wait.
        """
        reading = [call for call in self._reading if call.places is places]
        if not reading:
            return
        slowest = max(reading, key=lambda call: places.share_of(call.caller))
        due_s = self._reading[slowest] + self._reading_limit_s
        if due_s > now_s:
            self._timer.at(due_s)
            return
        fault = (
            f"its request was not complete after {self._reading_limit_s:g} s, while other calls wait: "
            f"{self._reading_max} requests are received at a time"
        )
        self._end(slowest, _TOO_MANY, fault)
        self._timer.at(0.0)

    def _end(self, call: _Call, status: grpc.StatusCode, fault: str) -> None:
        self._calls.pop(call, None)
        self._streams.pop(call, None)
        self._reading.pop(call, None)
        call.ended, call.fault = status, fault
        call.task.cancel()
