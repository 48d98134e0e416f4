"""Counts the processor time of this process and all its descendants, including those that have ended.

Each process is asked for its own time, again and again: what an ended one had used is what it was seen with last. The
kernel would add it to its parent's, but PySpark's daemon lets its workers end unseen (it ignores SIGCHLD).
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final, Self

import psutil

# How much of an ended process' time may be missed; looking costs some milliseconds.
_INTERVAL_S: Final = 0.5


class CpuClock:
    """See the head of this file; it runs between `with` and its end."""

    def __init__(self) -> None:
        self._seen_s: dict[psutil.Process, float] = {}
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        """Start."""
        self._watcher.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """End."""
        self._is_over.set()
        self._watcher.join()

    def seconds(self) -> float:
        """Return the time used so far; it never decreases."""
        own = psutil.Process()
        with self._lock:
            for process in (own, *own.children(recursive=True)):
                with suppress(psutil.Error):
                    times = process.cpu_times()
                    self._seen_s[process] = times.user + times.system
            return sum(self._seen_s.values())

    def _watch(self) -> None:
        while not self._is_over.wait(_INTERVAL_S):
            self.seconds()
