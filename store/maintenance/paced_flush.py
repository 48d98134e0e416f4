"""Flushes queues and index in short steps in another thread, at a limited rate.

A disk that is busy with thousands of small files delays the syncs of the log, and so every put. Units of queues are not
urgent, because they can be rebuilt from the log. So a flush writes few queues at a time, and a limited number each
second.

Not here: scheduling, and flushes that must not be paced (`store.maintenance.background`).
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from store.queues.unit_writer import GROUP_TAILS_MAX

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from store.fs.storage_thread import Finished, Worker

# A step writes one file for each thread that syncs, so that a concurrent sync of the log waits for few others.
QUEUES_PER_STEP: Final = 4
# 100 files a second: with three nodes on one disk, puts to 10,000 queues hardly take longer (docs/adr/0025).
STEP_INTERVAL_S: Final = 0.04


class SteppedTicket(Protocol):
    """A ticket that is synced in steps."""

    def step(self, queues_max: int, /) -> bool:
        """Write some queues at most; return whether more is left. One thread at a time may call it."""
        ...


class PacedFlush:
    """One flush, whose first step begins at once. All code except the steps runs in the event loop.

    Args:
        loop: the running loop.
        worker: runs the steps.
        ticket: of the flush.
        is_urgent: without pauses, and with more queues in a step.
        finished: called once, after the last step or with the error of a failed one; never after `give_up`.
        now_s: a monotonic clock.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        worker: Worker,
        ticket: SteppedTicket,
        finished: Finished,
        *,
        is_urgent: bool = False,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        self._loop = loop
        self._worker = worker
        self._ticket = ticket
        self._finished = finished
        self._now_s = now_s
        self._is_urgent = is_urgent
        # `_step` writes it in the worker, `_stepped` reads it afterwards in the loop, never concurrently.
        self._took_s = 0.0
        self._is_more = True
        # Accessed in the loop only.
        self._is_given_up = False
        # Set only between two steps.
        self._pause: asyncio.TimerHandle | None = None
        self._begin_step()

    def hurry(self) -> None:
        """Continue without pauses, and with more queues in a step; the current pause ends."""
        self._is_urgent = True
        if self._pause is not None:
            self._pause.cancel()
            self._begin_step()

    def give_up(self) -> None:
        """Start no more steps, because the store has failed. The ticket stays unfinished."""
        self._is_given_up = True
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _begin_step(self) -> None:
        self._pause = None
        queues_max = GROUP_TAILS_MAX if self._is_urgent else QUEUES_PER_STEP
        self._worker.run(lambda: self._step(queues_max), self._stepped)

    def _step(self, queues_max: int) -> None:
        """Run in the worker. The loop reads the written values only after it has ended."""
        began_s = self._now_s()
        self._is_more = self._ticket.step(queues_max)
        self._took_s = self._now_s() - began_s

    def _stepped(self, error: Exception | None) -> None:
        if self._is_given_up:
            return
        if error is not None or not self._is_more:
            self._finished(error)
            return
        if self._is_urgent:
            self._begin_step()
        else:
            # A slow disk rests at least half of the time.
            pause_s = max(STEP_INTERVAL_S - self._took_s, self._took_s)
            self._pause = self._loop.call_later(pause_s, self._begin_step)
