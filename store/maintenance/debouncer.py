"""Work that is done in turns of the event loop, each of which serves every caller that asked before it.

A turn costs nearly as much for one request as for ten. So a request that may wait asks for a turn `later`, and shares
it with all that arrive meanwhile; an urgent one gets a turn `at_once`, which serves them too. Requests that wait but
come in bursts use `soon`: the first has a turn at once, later ones share one a moment after it.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class PacedTurn:
    """Turns of one kind. Construct it inside the running loop.

    Args:
        work: done in each turn; it may ask for the next one.
        pace_s: a turn that is asked for `later` runs within this many seconds.
        gap_s: this many seconds lie between two turns that were asked for soon.
    """

    __slots__ = ("_due_s", "_gap_s", "_last_s", "_loop", "_pace_s", "_turn", "_work")

    def __init__(self, work: Callable[[], None], pace_s: float, gap_s: float = 0.0) -> None:
        self._loop = asyncio.get_running_loop()
        self._work = work
        self._pace_s = pace_s
        self._gap_s = gap_s
        # At most one turn is scheduled; None: none is.
        self._turn: asyncio.Handle | None = None
        # When `_turn` runs (-inf: in the next iteration of the loop), and when the last turn began.
        self._due_s = self._last_s = -inf

    def at_once(self) -> None:
        """Schedule a turn for the next iteration of the loop."""
        self._have(-inf)

    def soon(self) -> None:
        """Schedule a turn for the next iteration of the loop, or for the end of the gap after the last turn."""
        self._have(self._last_s + self._gap_s)

    def later(self) -> None:
        """Use the turn that is scheduled, or schedule one after the pace."""
        if self._turn is None:
            self._have(self._loop.time() + self._pace_s)

    def cancel(self) -> None:
        """Cancel the scheduled turn."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def _have(self, due_s: float) -> None:
        """Schedule a turn for that time of the loop's clock, unless an earlier one is scheduled."""
        if self._turn is not None and self._due_s <= due_s:
            return
        self.cancel()
        is_next = due_s <= self._loop.time()
        self._due_s = -inf if is_next else due_s
        self._turn = self._loop.call_soon(self._take) if is_next else self._loop.call_at(due_s, self._take)

    def _take(self) -> None:
        self._turn = None
        self._last_s = self._loop.time()
        self._work()
