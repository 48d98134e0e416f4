"""Long work of a node's loop in turns of a few milliseconds: a node that leads must go on to lead meanwhile."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final, TypeVar

from store.log_order import Steps

# After so long others get their turn.
TURN_S: Final = 0.005

Result = TypeVar("Result")


async def in_turns(steps: Steps[Result]) -> Result:
    """Do all steps, and let others have their turn every few milliseconds; return the result."""
    turn_end = monotonic() + TURN_S
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        if monotonic() >= turn_end:
            await asyncio.sleep(0)
            turn_end = monotonic() + TURN_S
