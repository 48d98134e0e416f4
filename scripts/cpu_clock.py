"""Measures the CPU time of this process and all its descendants, including those that have exited.

The time of each process is sampled periodically; for a process that has exited the last sample counts. The kernel adds
the time of a child to its parent only if the parent waits for it, and PySpark's daemon ignores SIGCHLD.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final, Self

import psutil

# Bounds the CPU time of an exited process that is not counted. One sample takes some milliseconds.
_INTERVAL_S: Final = 0.5


class CpuClock:
    """Measures CPU time inside a `with` block; see the module docstring."""

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
        """Return the CPU seconds used so far; never decreases."""
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
