"""Puts a load on a running group: callers that wait for their answers, or calls at a constant rate.

In a closed loop each caller begins its next call when the last one has ended, so the group determines the rate. In an
open loop calls begin at their due times, whether or not earlier ones have ended, and their latency includes the time
that they waited for a late client: slow answers do not reduce the number of calls (no coordinated omission).
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from shape_figures import Calls

from cluster.bench.workloads import first_failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shape_figures import CallTimes, Reading

    Call = Callable[[], Awaitable[object]]
    Read = Callable[[], Reading]

# How long calls may take beyond the measured time: nodes answer, or refuse, after 20 s.
_LIMIT_S: Final = 60.0
# Timers fire at whole milliseconds: a call that begins at most two after its due time counts from when it began, not
# from when it was due.
_TIMER_S: Final = 0.002
# The shortest pause between begins: the event loop rounds shorter ones to none, and would use a whole core.
_PAUSE_S: Final = 0.001
# Calls in flight of an open loop; others that are due wait, and their latency counts from their due time.
IN_FLIGHT_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """The times of a load.

    Attributes:
        warm_up_s: time before the measured time.
        window_s: duration of one window.
        windows: number of consecutive windows.
    """

    warm_up_s: float
    window_s: float
    windows: int = 1

    @property
    def limit_s(self) -> float:
        """The limit of the whole load."""
        return self.warm_up_s + self.window_s * self.windows + _LIMIT_S


@dataclass(frozen=True, slots=True)
class Window:
    """A measured time: the readings before and after it, and its calls."""

    before: Reading
    after: Reading
    calls: CallTimes


async def closed_loop(
    call: Call, callers: int, times: LoadTimes, read: Read, on_window: Callable[[Window], bool]
) -> None:
    """Run concurrent callers, each with one call after another.

    Args:
        call: makes one call.
        callers: number of callers.
        times: warm-up and windows.
        read: reads the processes.
        on_window: called with each window and the calls that ended in it; returns whether to continue.

    Raises:
        NotAppended, AppendUnknown: a call failed, so the figures would be invalid.
        TimeoutError: a call did not end.
    """
    calls = Calls()
    is_over = asyncio.Event()
    clock = time.perf_counter

    async def one() -> None:
        while not is_over.is_set():
            began = clock()
            await call()
            calls.add(began, clock())

    with first_failure():
        async with asyncio.timeout(times.limit_s), asyncio.TaskGroup() as tasks:
            for _ in range(callers):
                tasks.create_task(one())
            await asyncio.sleep(times.warm_up_s)
            calls.take()
            before = read()
            for _ in range(times.windows):
                await asyncio.sleep(max(before.at_s + times.window_s - clock(), 0))
                after = read()
                if not on_window(Window(before, after, calls.take())):
                    break
                before = after
            is_over.set()


async def open_loop(call: Call, rate: float, times: LoadTimes, read: Read) -> Window:
    """Begin `rate` calls a second; return the one window, with all calls since the warm-up began.

    The calls that *began* in the window have the latencies to report, those that *ended* in it the rate.

    Raises:
        NotAppended, AppendUnknown: a call failed.
        TimeoutError: a call did not end.
    """
    assert times.windows == 1
    calls = Calls()
    clock = time.perf_counter
    in_flight = 0

    async def one(began: float) -> None:
        nonlocal in_flight
        await call()
        in_flight -= 1
        calls.add(began, clock())

    async def begin_calls(tasks: asyncio.TaskGroup, begin: float) -> None:
        nonlocal in_flight
        count, end = 0, begin + times.warm_up_s + times.window_s
        while (now := clock()) < end:
            while (due := begin + count / rate) <= now and in_flight < IN_FLIGHT_MAX:
                in_flight += 1
                count += 1
                tasks.create_task(one(now if now - due <= _TIMER_S else due))
            await asyncio.sleep(max(due - clock(), _PAUSE_S))

    with first_failure():
        async with asyncio.timeout(times.limit_s), asyncio.TaskGroup() as tasks:
            tasks.create_task(begin_calls(tasks, clock()))
            await asyncio.sleep(times.warm_up_s)
            before = read()
            await asyncio.sleep(max(before.at_s + times.window_s - clock(), 0))
            after = read()
    return Window(before, after, calls.take())
