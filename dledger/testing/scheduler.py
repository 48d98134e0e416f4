"""The simulated clock: a heap of actions, run in the order of their times.

No real clock is read. Actions of the same time run in the order in which they were scheduled, so that a run depends on
its seed alone.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Scheduler:
    """A heap of (time, sequence, action).

    Attributes:
        now_us: simulated microseconds since the run began.
        event_count: number of actions run.
    """

    __slots__ = ("_heap", "_sequence", "event_count", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self.event_count = 0
        self._heap: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._sequence = 0

    def after(self, delay_us: int, action: Callable[..., object], *arguments: object) -> None:
        """Run `action(*arguments)` once `delay_us` (>= 0) have passed."""
        assert delay_us >= 0, delay_us
        self._sequence += 1
        heappush(self._heap, (self.now_us + delay_us, self._sequence, action, arguments))

    def run_until(self, end_us: int, is_done: Callable[[], bool] | None = None) -> bool:
        """Run actions up to and including `end_us`, or until `is_done` returns True (called after each action).

        Returns:
            Whether `is_done` ended the run.
        """
        heap = self._heap
        while heap and heap[0][0] <= end_us:
            self.now_us, _, action, arguments = heappop(heap)
            self.event_count += 1
            action(*arguments)
            if is_done is not None and is_done():
                return True
        self.now_us = max(self.now_us, end_us)
        return False
