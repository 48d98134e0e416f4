"""Limits the bytes that a backup reads in a second: clients of the group keep their share of disk and network."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Throttle:
    """Pauses its caller after each piece, so that the average rate is kept from the first piece on.

    Time in which the source was slower is not made up for: a pause of the source is followed by no burst.

    Args:
        rate_bytes: of a second; 0: no limit.
        now_s: a monotonic clock.
        sleep: pauses for a number of seconds.
    """

    def __init__(
        self,
        rate_bytes: int,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        assert rate_bytes >= 0, rate_bytes
        self._rate_bytes = rate_bytes
        self._now_s = now_s
        self._sleep = sleep
        # The time at which the bytes so far are paid for.
        self._free_at_s = now_s()

    def spend(self, size_bytes: int) -> None:
        """Pause for the time that `size_bytes` take at the rate."""
        if not self._rate_bytes:
            return
        now_s = self._now_s()
        self._free_at_s = max(self._free_at_s, now_s) + size_bytes / self._rate_bytes
        self._sleep(self._free_at_s - now_s)
