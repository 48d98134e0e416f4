"""The story of a run: what happened when, to whom; kept short for a failure, or told whole as it happens."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.testing.scheduler import Scheduler

KEPT_LINES_MAX = 60


class Trace:
    """Collects lines; formatting waits until somebody wants to read them.

    Args:
        scheduler: tells the time.
        tell: gets every line at once; None: only the last lines are kept.

    Attributes:
        is_told: whether somebody listens: only then are frequent things (messages) worth a line.
    """

    def __init__(self, scheduler: Scheduler, tell: Callable[[str], None] | None = None) -> None:
        self.is_told = tell is not None
        self._scheduler = scheduler
        self._tell = tell
        self._kept: deque[tuple[int, str, str, tuple[object, ...]]] = deque(maxlen=KEPT_LINES_MAX)

    def note(self, who: str, text: str, *values: object) -> None:
        """Add a line: `text % values`, in the words of the one that it happened to."""
        line = (self._scheduler.now_us, who, text, values)
        if self._tell is None:
            self._kept.append(line)
        else:
            self._tell(_format(line))

    def last_lines(self) -> list[str]:
        """Return the last lines, oldest first; none if they were told already."""
        return [_format(line) for line in self._kept]


def _format(line: tuple[int, str, str, tuple[object, ...]]) -> str:
    now_us, who, text, values = line
    return f"{now_us / 1_000:12.3f} ms  {who:8} {text % values}"
