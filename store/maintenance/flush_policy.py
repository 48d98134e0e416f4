"""Decides when written data is flushed: by time, and by the number of pages.

A round takes place every `interval_ms`. It flushes each file with at least `least_pages` unflushed pages; a *thorough*
round, every `thorough_interval_ms`, flushes all files. So a busy log is flushed in few large steps, and the last bytes
before a pause are flushed, too.

| data                       | interval | pages | thorough |
| -------------------------- | -------- | ----- | -------- |
| the log, `flush = "async"` | 500 ms   | 4     | 10 s     |
| consume queues             | 1 s      | 2     | 60 s     |

Not here: syncs, clocks, threads. Source: RocketMQ `CommitLog.FlushRealTimeService`, `FlushConsumeQueueService`,
`DefaultMappedFile.isAbleToFlush`, and the defaults of `MessageStoreConfig`.
"""

from __future__ import annotations

from dataclasses import dataclass

PAGE_SIZE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class FlushSettings:
    """Intervals and page thresholds of flushes.

    Attributes:
        interval_ms: time from one round to the next.
        least_pages: unflushed pages that cause a flush; 0: every round is thorough.
        thorough_interval_ms: time from one thorough round to the next; 0: every round is thorough.
    """

    interval_ms: int
    least_pages: int
    thorough_interval_ms: int

    def __post_init__(self) -> None:
        if self.interval_ms < 1 or self.least_pages < 0 or self.thorough_interval_ms < 0:
            expected = "interval_ms of at least 1, least_pages and thorough_interval_ms of at least 0"
            raise ValueError(f"expected {expected}, found {self}")


class FlushPolicy:
    """Decides when a round is due, and what to flush in it. Times are milliseconds of any monotonic clock.

    Args:
        settings: intervals and pages.
        now_ms: the current time; the first round is one interval later.
    """

    __slots__ = ("_due_ms", "_settings", "_thorough_ms")

    def __init__(self, settings: FlushSettings, now_ms: int) -> None:
        self._settings = settings
        self._due_ms = now_ms + settings.interval_ms
        # Start of the last thorough round.
        self._thorough_ms = now_ms

    @property
    def due_ms(self) -> int:
        """When the next round is due."""
        return self._due_ms

    def begin_round(self, now_ms: int) -> int | None:
        """Begin a round if one is due.

        Returns:
            The page threshold (see `is_worth_flushing`); 0 in a thorough round; None: no round is due.
        """
        if now_ms < self._due_ms:
            return None
        self._due_ms = now_ms + self._settings.interval_ms
        if now_ms < self._thorough_ms + self._settings.thorough_interval_ms:
            return self._settings.least_pages
        self._thorough_ms = now_ms
        return 0


def is_worth_flushing(flushed: int, written: int, least_pages: int) -> bool:
    """Return whether the bytes `[flushed, written)` of a file, or of a queue of files, are flushed in a round.

    Pages are counted as in RocketMQ: only full ones.
    """
    if least_pages > 0:
        return written // PAGE_SIZE_BYTES - flushed // PAGE_SIZE_BYTES >= least_pages
    return written > flushed
