"""Whether the disk does its work: judged by how long a sync takes (fail-slow disks; DLedger #287, hashicorp/raft #503).

Pure: times are the owner's monotonic milliseconds.
"""

from __future__ import annotations

# A disk that stalled is watched for so many times the limit before it is trusted again.
_CONVALESCENCE = 10


class DiskWatch:
    """Judges one disk.

    Args:
        limit_ms: a sync that takes so long is a stall; an election timeout.
    """

    __slots__ = ("_begun_ms", "_limit_ms", "_sick_until_ms")

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        self._begun_ms: int | None = None
        self._sick_until_ms = -1

    def began(self, now_ms: int) -> None:
        """Take note that a sync began."""
        self._begun_ms = now_ms

    def ended(self, now_ms: int) -> None:
        """Take note that it ended."""
        self.is_sick(now_ms)
        self._begun_ms = None

    def is_sick(self, now_ms: int) -> bool:
        """Say whether a sync stalls, or one did a short while ago."""
        if self.is_stalling(now_ms):
            self._sick_until_ms = now_ms + _CONVALESCENCE * self._limit_ms
        return now_ms < self._sick_until_ms

    def is_stalling(self, now_ms: int) -> bool:
        """Say whether a sync stalls now."""
        return self._begun_ms is not None and now_ms - self._begun_ms >= self._limit_ms
