"""One timer for any number of requests: it calls a function at the earliest of the requested times."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class EarliestTimer:
    """Calls `callback` once for all requests since its last call. For one event loop, whichever it is.

    It keeps the time itself, because a timer of uvloop that is due at once does not know its own.

    Args:
        callback: called in the event loop; it may request the next call.
        resolution_s: a request that is earlier than the pending one by no more than this does not move it.
    """

    __slots__ = ("_callback", "_due_s", "_pending", "_resolution_s")

    def __init__(self, callback: Callable[[], None], *, resolution_s: float = 0.0) -> None:
        self._callback = callback
        self._resolution_s = resolution_s
        self._pending: asyncio.Handle | None = None
        # Of the pending call, on the clock of the loop.
        self._due_s = 0.0

    def after(self, delay_s: float) -> None:
        """Request a call in `delay_s` from now, in seconds; a pending one that is earlier counts for both."""
        self.at(asyncio.get_running_loop().time() + delay_s)

    def at(self, time_s: float) -> None:
        """Request a call at `time_s` on the clock of the loop; a time that has passed: in the next iteration."""
        if self._pending is not None:
            if self._due_s <= time_s + self._resolution_s:
                return
            self._pending.cancel()
        self._due_s = time_s
        self._pending = asyncio.get_running_loop().call_at(time_s, self._fire)

    def cancel(self) -> None:
        """Forget the pending call."""
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None

    def _fire(self) -> None:
        # Cleared when it fires, not by comparing times: a loop may run a timer slightly early.
        self._pending = None
        self._callback()
