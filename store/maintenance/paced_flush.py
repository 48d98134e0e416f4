"""Flushes queues and index in short steps in another thread, with pauses in between.

A disk that is busy with thousands of small files delays the syncs of the log, and so every put. Units of queues are not
urgent, because they can be rebuilt from the log. So a flush of many queues is spread over a part of the time until the
next one, in steps so short that each delays few puts.

Not here: scheduling, and flushes that must not be spread (`store.maintenance.background`).
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from store.queues.unit_writer import GROUP_FILES_MAX

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from store.fs.storage_thread import Finished, Worker

# Upper bound of a pause, as a multiple of the step before it, so that a flush of few queues ends soon.
_PAUSE_RATIO_MAX: Final = 9


class SteppedTicket(Protocol):
    """A ticket that is synced in steps."""

    @property
    def left_count(self) -> int:
        """Return the number of queues with units that are not durable yet."""
        ...

    def step(self) -> bool:
        """Run a bounded part; return whether more is left. One thread at a time may call it."""
        ...


class PacedFlush:
    """One flush, whose first step begins at once. All code except the steps runs in the event loop.

    Args:
        loop: the running loop.
        worker: runs the steps.
        ticket: of the flush.
        spread_s: the time over which the flush is spread, in seconds.
        finished: called once, after the last step or with the error of a failed one; never after `give_up`.
        now_s: a monotonic clock.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        worker: Worker,
        ticket: SteppedTicket,
        spread_s: float,
        finished: Finished,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        self._loop = loop
        self._worker = worker
        self._ticket = ticket
        self._finished = finished
        self._now_s = now_s
        self._end_s = now_s() + spread_s
        # `_step` writes it in the worker, `_stepped` reads it afterwards in the loop, never concurrently.
        self._took_s = 0.0
        self._is_more = True
        # Accessed in the loop only.
        self._is_given_up = False
        # Set only between two steps.
        self._pause: asyncio.TimerHandle | None = None
        self._begin_step()

    def skip_pauses(self) -> None:
        """Skip all further pauses, including the current one."""
        self._end_s = 0.0
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
        self._worker.run(self._step, self._stepped)

    def _step(self) -> None:
        """Run in the worker. The loop reads the written values only after it has ended."""
        began_s = self._now_s()
        self._is_more = self._ticket.step()
        self._took_s = self._now_s() - began_s

    def _stepped(self, error: Exception | None) -> None:
        if self._is_given_up:
            return
        if error is not None or not self._is_more:
            self._finished(error)
            return
        # The last step syncs the index, without queues.
        steps_left = -(-self._ticket.left_count // GROUP_FILES_MAX) + 1
        pause_s = min((self._end_s - self._now_s()) / steps_left, _PAUSE_RATIO_MAX * self._took_s)
        if pause_s > 0:
            self._pause = self._loop.call_later(pause_s, self._begin_step)
        else:
            self._begin_step()
