"""Debounces work in the event loop: one run serves all callers that requested it before.

A run costs nearly as much for one request as for ten. So a request that may wait uses `later` and shares its run with
all that arrive in between; an urgent one uses `at_once`, whose run also serves the waiting ones. For bursts there is
`soon`: the first request runs at once, later ones share a run shortly after it.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Debouncer:
    """Runs work of one kind. Construct it inside the running loop.

    Args:
        work: called in each run; it may request the next one.
        pace_s: a run requested by `later` begins within this time, in seconds.
        gap_s: the seconds between two runs requested by `soon`.
    """

    __slots__ = ("_due_s", "_gap_s", "_last_s", "_loop", "_pace_s", "_scheduled", "_work")

    def __init__(self, work: Callable[[], None], pace_s: float, gap_s: float = 0.0) -> None:
        self._loop = asyncio.get_running_loop()
        self._work = work
        self._pace_s = pace_s
        self._gap_s = gap_s
        # At most one run is scheduled; None: none is.
        self._scheduled: asyncio.Handle | None = None
        # When the next run begins (-inf: in the next iteration of the loop), and when the last one began.
        self._due_s = self._last_s = -inf

    def at_once(self) -> None:
        """Schedule a run for the next iteration of the loop."""
        self._schedule(-inf)

    def soon(self) -> None:
        """Schedule a run for the next iteration of the loop, or for the end of the gap after the last run."""
        self._schedule(self._last_s + self._gap_s)

    def later(self) -> None:
        """Use the scheduled run, or schedule one after the pace."""
        if self._scheduled is None:
            self._schedule(self._loop.time() + self._pace_s)

    def cancel(self) -> None:
        """Cancel the scheduled run."""
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None

    def _schedule(self, due_s: float) -> None:
        """Schedule a run for that time of the loop's clock, unless an earlier one is scheduled."""
        if self._scheduled is not None and self._due_s <= due_s:
            return
        self.cancel()
        is_next = due_s <= self._loop.time()
        self._due_s = -inf if is_next else due_s
        self._scheduled = self._loop.call_soon(self._run) if is_next else self._loop.call_at(due_s, self._run)

    def _run(self) -> None:
        self._scheduled = None
        self._last_s = self._loop.time()
        self._work()
