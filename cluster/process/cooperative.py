"""Cooperative steps: long work in a node's event loop, a few milliseconds at a time, so that a leader stays leader."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from store.queues.merge_by_offset import Steps

# After this long other tasks of the loop may run.
STEP_S: Final = 0.005

Result = TypeVar("Result")


class Pace:
    """Lets a coroutine that does many small things yield to the loop; created at the coroutine's begin."""

    def __init__(self) -> None:
        self._turn_end = monotonic() + STEP_S

    async def give_way(self) -> None:
        """Yield to the event loop if this step has lasted long enough."""
        if monotonic() >= self._turn_end:
            await asyncio.sleep(0)
            self._turn_end = monotonic() + STEP_S


async def run_cooperatively(steps: Steps[Result]) -> Result:
    """Do all steps, and yield to other tasks every few milliseconds; return the result."""
    pace = Pace()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        await pace.give_way()
