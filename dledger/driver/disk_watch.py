"""Whether the disk does its work (DLedger #287, hashicorp/raft #503): how long a sync takes, and whether there is room.

Times are the owner's monotonic milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.errors import DiskFull

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# How many times the limit a disk must work without a stall before it is trusted again.
_CONVALESCENCE = 10


class DiskWatch:
    """Judges one disk.

    Args:
        limit_ms: a sync that takes this time or more is a stall; an election timeout.
    """

    __slots__ = ("_begun_ms", "_limit_ms", "_stalled_until_ms")

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        # None: no sync is under way.
        self._begun_ms: int | None = None
        # Moved ahead at every look while a sync stalls, so that the pause counts from the end of the stall.
        self._stalled_until_ms = -1

    def began(self, now_ms: int) -> None:
        """Take note that a sync began."""
        self._begun_ms = now_ms

    def ended(self, now_ms: int) -> None:
        """Take note that it ended."""
        self.is_stalled(now_ms)
        self._begun_ms = None

    def is_stalled(self, now_ms: int) -> bool:
        """Say whether a sync stalls, or one did a short while ago."""
        if self.is_stalling(now_ms):
            self._stalled_until_ms = now_ms + _CONVALESCENCE * self._limit_ms
        return now_ms < self._stalled_until_ms

    def is_stalling(self, now_ms: int) -> bool:
        """Say whether a sync stalls now."""
        return self._begun_ms is not None and now_ms - self._begun_ms >= self._limit_ms


class RoomWatch:
    """Remembers what found no room, until it would.

    Not until anything fits: a node that takes a small entry, and then again refuses a large one, would otherwise be
    taken for one with room, and be handed the leadership in vain.

    Args:
        reserve: makes room for bodies of these sizes, or raises `DiskFull`.
        interval_ms: how often it is tried again.
    """

    __slots__ = ("_interval_ms", "_look_ms", "_reserve", "_sizes")

    def __init__(self, reserve: Callable[[Sequence[int]], object], interval_ms: int) -> None:
        self._reserve = reserve
        self._interval_ms = interval_ms
        # The largest batch that found no room since all did; empty: there is room.
        self._sizes: Sequence[int] = ()
        # When to try again; valid while `_sizes` is not empty.
        self._look_ms = 0

    def lacked(self, sizes: Sequence[int], now_ms: int) -> None:
        """Take note that bodies of these sizes found no room."""
        if not self._sizes:
            self._look_ms = now_ms + self._interval_ms
        if sum(sizes) >= sum(self._sizes):
            self._sizes = sizes

    def found(self, sizes: Sequence[int]) -> None:
        """Take note that bodies of these sizes found room: then so would what takes no more."""
        if self._sizes and sum(sizes) >= sum(self._sizes):
            self._sizes = ()

    def is_full(self, now_ms: int) -> bool:
        """Say whether what found no room would still find none; look again now and then."""
        if self._sizes and now_ms >= self._look_ms:
            self._look_ms = now_ms + self._interval_ms
            try:
                self._reserve(self._sizes)
            except DiskFull:
                return True
            self._sizes = ()
        return bool(self._sizes)
