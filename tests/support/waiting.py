"""Waits for conditions, with time limits that suffice on a busy machine."""

import asyncio
import functools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from dledger.event_loop import new_event_loop

# An operation of one second may take twenty on a loaded machine with two cores.
PATIENCE_S = float(os.environ.get("TEST_PATIENCE_S", "60"))
SCENARIO_LIMIT_S = 4 * PATIENCE_S
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.002, 0.05

# A description of the condition, or a function that describes the state after a timeout.
What = str | Callable[[], str]


async def until(question: Callable[[], Any], what: What = "the condition", limit_s: float = PATIENCE_S) -> Any:
    """Wait until `question` returns a true value, and return it; other tasks of the loop run meanwhile."""
    deadline, pause_s = time.monotonic() + limit_s, _PAUSE_MIN_S
    while not (answer := question()):
        assert time.monotonic() < deadline, f"not within {limit_s} s: {what if isinstance(what, str) else what()}"
        await asyncio.sleep(pause_s)
        pause_s = min(1.5 * pause_s, _PAUSE_MAX_S)
    return answer


async def until_answered(question: Callable[[], Awaitable[Any]], what: What, limit_s: float = PATIENCE_S) -> Any:
    """Wait until `question`, which waits for an answer itself, returns a true value, and return it."""
    deadline, pause_s = time.monotonic() + limit_s, _PAUSE_MIN_S
    while not (answer := await question()):
        assert time.monotonic() < deadline, f"not within {limit_s} s: {what if isinstance(what, str) else what()}"
        await asyncio.sleep(pause_s)
        pause_s = min(1.5 * pause_s, _PAUSE_MAX_S)
    return answer


@asynccontextmanager
async def counting_turns() -> AsyncIterator[Callable[[], int]]:
    """Yield a function that returns the number of iterations of the loop since the block began."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    try:
        yield lambda: turns
    finally:
        running.cancel()


def wait_until(question: Callable[[], Any], what: What = "the condition", limit_s: float = PATIENCE_S) -> Any:
    """Wait until `question` returns a true value, and return it; other threads and processes run meanwhile."""
    deadline, pause_s = time.monotonic() + limit_s, _PAUSE_MIN_S
    while not (answer := question()):
        assert time.monotonic() < deadline, f"not within {limit_s} s: {what if isinstance(what, str) else what()}"
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, _PAUSE_MAX_S)
    return answer


def run(scenario: Coroutine[Any, Any, Any], limit_s: float = SCENARIO_LIMIT_S) -> Any:
    """Run a coroutine in the production event loop, for some minutes at most."""

    async def limited() -> Any:
        async with asyncio.timeout(limit_s):
            return await scenario

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(limited())


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an asynchronous test in a new event loop."""

    @functools.wraps(test)
    def run_test(**fixtures: Any) -> None:
        run(test(**fixtures))

    return run_test
