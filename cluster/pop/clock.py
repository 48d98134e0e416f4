"""Log time: the wall clock, but never before the last time in the log, and never slower than the monotonic clock.

A leader whose clock is an hour slow continues at the last time in the log, so leases end as they would have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_MS_PER_S: Final = 1_000


class LogClock:
    """The time for the next command.

    Args:
        wall_ms: the wall clock, milliseconds since 1970.
        monotonic_s: the monotonic clock, seconds.
        last_ms: returns the last time in the log.
    """

    def __init__(
        self, wall_ms: Callable[[], int], monotonic_s: Callable[[], float], last_ms: Callable[[], int]
    ) -> None:
        self._wall_ms = wall_ms
        self._monotonic_s = monotonic_s
        self._last_ms = last_ms
        # A log time, and the monotonic time at which it was valid.
        self._anchor_ms = 0
        self._anchor_s = monotonic_s()

    def now_ms(self) -> int:
        """Return the time."""
        monotonic_s = self._monotonic_s()
        now_ms = max(self._wall_ms(), self._anchor_ms + int((monotonic_s - self._anchor_s) * _MS_PER_S))
        last_ms = self._last_ms()
        if now_ms < last_ms:
            self._anchor_ms, self._anchor_s, now_ms = last_ms, monotonic_s, last_ms
        return now_ms
