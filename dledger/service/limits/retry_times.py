"""Gives refused clients times to repeat their requests, so that the repeated requests do not come all at once.

Each refusal names a time of its own, `1 / RATE_PER_S` after the one before: clients that follow it repeat at most
`RATE_PER_S` requests a second together, however many there are. A name far in the future would keep a client waiting
after the load is over, so beyond `WAIT_S_MAX` all get the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# Some tenth of what a node can refuse.
RATE_PER_S: Final = 500
WAIT_S_MIN: Final = 0.05
WAIT_S_MAX: Final = 2.0


class RetryTimes:
    """The times that one server has named. Loop thread only.

    Args:
        now_s: a monotonic clock.
        count: counts a refusal, for metrics.
    """

    __slots__ = ("_count", "_last_s", "_now_s")

    def __init__(self, now_s: Callable[[], float], count: Callable[[], None] = lambda: None) -> None:
        self._now_s = now_s
        self._count = count
        self._last_s = 0.0

    def next_s(self) -> float:
        """Return after how many seconds the client of another refused request should repeat it."""
        self._count()
        now_s = self._now_s()
        self._last_s = min(max(self._last_s + 1 / RATE_PER_S, now_s + WAIT_S_MIN), now_s + WAIT_S_MAX)
        return self._last_s - now_s
