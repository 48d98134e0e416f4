"""Work that is done in turns of the event loop, each of which serves everybody who asked before it.

A turn costs nearly as much for one who asks as for ten. So whoever has time asks for one `later`, and shares it with
all who ask meanwhile; somebody who waits has it `at_once`, and takes them along.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class PacedTurn:
    """Turns of one kind. Construct it inside the running loop.

    Args:
        work: done in each turn; it may ask for the next one.
        pace_s: whoever asks for a turn later has it within so many seconds.
    """

    __slots__ = ("_is_next", "_loop", "_pace_s", "_turn", "_work")

    def __init__(self, work: Callable[[], None], pace_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._work = work
        self._pace_s = pace_s
        self._turn: asyncio.Handle | None = None
        self._is_next = False

    def at_once(self) -> None:
        """Have the next turn of the loop."""
        if self._is_next:
            return
        self.cancel()
        self._is_next = True
        self._turn = self._loop.call_soon(self._take)

    def later(self) -> None:
        """Have the turn that is due, or one when the pace is over."""
        if self._turn is None:
            self._turn = self._loop.call_later(self._pace_s, self._take)

    def cancel(self) -> None:
        """Have no turn."""
        if self._turn is not None:
            self._turn.cancel()
        self._turn, self._is_next = None, False

    def _take(self) -> None:
        self._turn, self._is_next = None, False
        self._work()
