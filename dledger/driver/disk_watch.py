"""Detects a disk that stalls (DLedger #287, hashicorp/raft #503) by the duration of syncs, and one that is full.

Times are the owner's monotonic milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.errors import DiskFull

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# A disk counts as healthy again after this many times the limit without a stall.
_RECOVERY_FACTOR = 10


class DiskWatch:
    """Detects stalls of one disk.

    Args:
        limit_ms: a sync that takes this time or more is a stall; an election timeout.
    """

    __slots__ = ("_begun_ms", "_limit_ms", "_stalled_until_ms")

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        # None: no sync is running.
        self._begun_ms: int | None = None
        # Advanced at every check while a sync stalls, so that the pause counts from the end of the stall.
        self._stalled_until_ms = -1

    def began(self, now_ms: int) -> None:
        """Record that a sync began."""
        self._begun_ms = now_ms

    def ended(self, now_ms: int) -> None:
        """Record that it ended."""
        self.is_stalled(now_ms)
        self._begun_ms = None

    def is_stalled(self, now_ms: int) -> bool:
        """Return whether a sync stalls, or did recently."""
        if self.is_stalling(now_ms):
            self._stalled_until_ms = now_ms + _RECOVERY_FACTOR * self._limit_ms
        return now_ms < self._stalled_until_ms

    def is_stalling(self, now_ms: int) -> bool:
        """Return whether a sync stalls now."""
        return self._begun_ms is not None and now_ms - self._begun_ms >= self._limit_ms


class SpaceWatch:
    """Records the largest batch that did not fit on the disk, until it would fit.

    A smaller batch that fits is not enough: a node that accepts a small entry but refuses the next large one must not
    get the leadership.

    Args:
        reserve: reserves space for bodies of these sizes, or raises `DiskFull`.
        interval_ms: time between two attempts.
    """

    __slots__ = ("_interval_ms", "_look_ms", "_reserve", "_sizes")

    def __init__(self, reserve: Callable[[Sequence[int]], object], interval_ms: int) -> None:
        self._reserve = reserve
        self._interval_ms = interval_ms
        # The largest batch that did not fit; empty: everything fits.
        self._sizes: Sequence[int] = ()
        # When to try again; valid while `_sizes` is not empty.
        self._look_ms = 0

    def lacked(self, sizes: Sequence[int], now_ms: int) -> None:
        """Record that bodies of these sizes did not fit."""
        if not self._sizes:
            self._look_ms = now_ms + self._interval_ms
        if sum(sizes) >= sum(self._sizes):
            self._sizes = sizes

    def found(self, sizes: Sequence[int]) -> None:
        """Record that bodies of these sizes fit, which implies that smaller ones do."""
        if self._sizes and sum(sizes) >= sum(self._sizes):
            self._sizes = ()

    def is_full(self, now_ms: int) -> bool:
        """Return whether the recorded batch still does not fit; tested again at intervals."""
        if self._sizes and now_ms >= self._look_ms:
            self._look_ms = now_ms + self._interval_ms
            try:
                self._reserve(self._sizes)
            except DiskFull:
                return True
            self._sizes = ()
        return bool(self._sizes)
