"""Log lines for repeated failures: the first at once, the next ones at growing intervals."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_PAUSE_MIN_S: Final = 10.0
_PAUSE_MAX_S: Final = 600.0
# A consumer has one key for each topic and broker; above this number the oldest is dropped.
_KEYS_MAX: Final = 4_096


@dataclass(slots=True)
class _Failing:
    """A logged failure: the time before which it is not logged again, and the number of occurrences since."""

    quiet_until_s: float
    pause_s: float
    count: int = 0


class RepeatedWarnings:
    """Logs each failure once, then again after 10 s, 20 s, 40 s, ... at most 10 min, with the count in between.

    Args:
        logger: logger of the lines.
        clock: returns monotonic seconds.
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._failing: dict[Hashable, _Failing] = {}

    def failed(self, key: Hashable, line: str, level: int = logging.WARNING) -> None:
        """Log a failure, unless the same one was logged a short time ago.

        Args:
            key: identifies the failure; lines with the same key count as the same failure, whatever their text.
            line: text of the line.
            level: log level of the line.
        """
        now = self._clock()
        known = self._failing.get(key)
        if known is None:
            if len(self._failing) >= _KEYS_MAX:
                del self._failing[next(iter(self._failing))]
            self._failing[key] = _Failing(now + _PAUSE_MIN_S, _PAUSE_MIN_S)
            self._logger.log(level, "%s", line)
            return
        known.count += 1
        if now < known.quiet_until_s:
            return
        self._logger.log(level, "%s (failed %d times since the last such line)", line, known.count)
        known.count = 0
        known.pause_s = min(2 * known.pause_s, _PAUSE_MAX_S)
        known.quiet_until_s = now + known.pause_s

    def succeeded(self, key: Hashable) -> None:
        """Reset a failure: the next one of this key is logged at once."""
        self._failing.pop(key, None)
