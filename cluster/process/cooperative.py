"""Long work of a node's loop in turns of a few milliseconds: a node that leads must go on to lead meanwhile."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final, TypeVar

from store.queues.merge_by_offset import Steps

# After so long others get their turn.
TURN_S: Final = 0.005

Result = TypeVar("Result")


class Pace:
    """Gives way in a coroutine that does many small things: made at its begin."""

    def __init__(self) -> None:
        self._turn_end = monotonic() + TURN_S

    async def give_way(self) -> None:
        """Let others have their turn if this one has lasted for long enough."""
        if monotonic() >= self._turn_end:
            await asyncio.sleep(0)
            self._turn_end = monotonic() + TURN_S


async def in_turns(steps: Steps[Result]) -> Result:
    """Do all steps, and let others have their turn every few milliseconds; return the result."""
    pace = Pace()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        await pace.give_way()
