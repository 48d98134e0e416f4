"""The clocks of a simulated machine: a monotonic one and the time of day.

The monotonic clock has its own rate and can stop, as in a suspended virtual machine; the time of day can be set at any
time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dledger.testing.scheduler import Scheduler

_PPM = 1_000_000
_WALL_EPOCH_US = 1_700_000_000_000_000


class SimClock:
    """Both clocks of one machine.

    Args:
        scheduler: true time.
        rate_ppm: microseconds of the monotonic clock in a second of true time.

    Attributes:
        is_set: the time of day was changed.
    """

    __slots__ = ("_rate_ppm", "_scheduler", "_stopped_at_us", "_stopped_us", "_wall_offset_us", "is_set")

    def __init__(self, scheduler: Scheduler, rate_ppm: int) -> None:
        self._scheduler = scheduler
        self._rate_ppm = rate_ppm
        self._stopped_us = 0
        self._stopped_at_us: int | None = None
        self._wall_offset_us = 0
        self.is_set = False

    def now_us(self) -> int:
        """Return microseconds of the monotonic clock."""
        true_us = self._scheduler.now_us if self._stopped_at_us is None else self._stopped_at_us
        return (true_us - self._stopped_us) * self._rate_ppm // _PPM

    def now_ms(self) -> int:
        """Return milliseconds of the monotonic clock."""
        return self.now_us() // 1_000

    def true_us(self, duration_us: int) -> int:
        """Return the true time that passes until the monotonic clock, if it runs, has advanced by `duration_us`."""
        return -(-duration_us * _PPM // self._rate_ppm)

    def wall_us(self) -> int:
        """Return the time of day: microseconds since the epoch by this machine's clock."""
        return _WALL_EPOCH_US + self._scheduler.now_us + self._wall_offset_us

    def set_wall(self, offset_us: int) -> None:
        """Set the time of day to the true one plus `offset_us`."""
        self._wall_offset_us = offset_us
        self.is_set = True

    def stop(self) -> None:
        """Stop the monotonic clock."""
        if self._stopped_at_us is None:
            self._stopped_at_us = self._scheduler.now_us

    def resume(self) -> None:
        """Let the monotonic clock continue from its current value."""
        if self._stopped_at_us is not None:
            self._stopped_us += self._scheduler.now_us - self._stopped_at_us
            self._stopped_at_us = None
