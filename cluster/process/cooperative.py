"""Cooperative steps: long work on the event loop, a few milliseconds at a time, so that heartbeats are not delayed."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from store.steps import Steps

# The duration of a step, in seconds, after which other tasks of the loop may run.
STEP_S: Final = 0.005

Result = TypeVar("Result")


class Pace:
    """Lets a coroutine with many small steps yield to the loop; to be created at the coroutine's start."""

    def __init__(self) -> None:
        self._turn_end = monotonic() + STEP_S

    async def yield_if_due(self) -> None:
        """Yield to the event loop if this step has lasted long enough."""
        if monotonic() >= self._turn_end:
            await asyncio.sleep(0)
            self._turn_end = monotonic() + STEP_S


async def run_cooperatively(steps: Steps[Result]) -> Result:
    """Run all steps, yielding to other tasks every few milliseconds; return the result."""
    pace = Pace()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        await pace.yield_if_due()
