"""The trace of a run: each event with its time and node; all lines during the run, or the last ones after a failure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.testing.scheduler import Scheduler

KEPT_LINES_MAX = 60


class Trace:
    """Collects lines, which are formatted only when they are printed.

    Args:
        scheduler: provides the time.
        emit: called with every line at once; None: only the last lines are kept.

    Attributes:
        is_emitting: whether `emit` was given: only then are frequent events (messages) recorded.
    """

    def __init__(self, scheduler: Scheduler, emit: Callable[[str], None] | None = None) -> None:
        self.is_emitting = emit is not None
        self._scheduler = scheduler
        self._emit = emit
        self._kept: deque[tuple[int, str, str, tuple[object, ...]]] = deque(maxlen=KEPT_LINES_MAX)

    def note(self, node_id: str, text: str, *values: object) -> None:
        """Add a line: `text % values`, about the node `node_id`."""
        line = (self._scheduler.now_us, node_id, text, values)
        if self._emit is None:
            self._kept.append(line)
        else:
            self._emit(_format(line))

    def last_lines(self) -> list[str]:
        """Return the last lines, oldest first; none if they were printed already."""
        return [_format(line) for line in self._kept]


def _format(line: tuple[int, str, str, tuple[object, ...]]) -> str:
    now_us, node_id, text, values = line
    return f"{now_us / 1_000:12.3f} ms  {node_id:8} {text % values}"
