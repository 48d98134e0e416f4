"""Refusals as records: each of the first ones, then a count, so that refused callers cannot fill the log.

In a window of a minute, equal refusals (of one user, address and result) are recorded one by one up to ten times; later
ones are counted, and one summary of them is recorded when the window ends. Of all together at most 300 are recorded one
by one, and at most 128 kinds are counted apart; what is left is counted as one. That is at most 429 lines a minute.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

    from cluster.audit.record import AuditRecord

WINDOW_MS: Final = 60_000
EQUAL_PER_WINDOW_MAX: Final = 10
PER_WINDOW_MAX: Final = 300
KINDS_PER_WINDOW_MAX: Final = 128
# Of refusals that are not counted apart.
OTHERS: Final = "(several)"


@dataclass(slots=True)
class _Counted:
    """Equal refusals of a window: how many were recorded, and the summary of the others, which grows."""

    recorded: int = 0
    summary: AuditRecord | None = None


@dataclass(slots=True)
class RefusalWindow:
    """The refusals of the running window.

    Attributes:
        has_summaries: there is something to record when the window ends.
    """

    has_summaries: bool = False
    _end_ms: int = 0
    _recorded: int = 0
    _kinds: dict[Hashable, _Counted] = field(default_factory=dict)

    def add(self, record: AuditRecord, key: Hashable) -> list[AuditRecord]:
        """Return the records to write now.

        Args:
            record: of one refusal.
            key: equal for refusals that are counted together.
        """
        due = self.ended(record.time_ms)
        if not self._kinds:
            self._end_ms = record.time_ms + WINDOW_MS
        counted = self._kinds.get(key)
        if counted is None:
            if len(self._kinds) >= KINDS_PER_WINDOW_MAX:
                key = None
                record = record._replace(user=OTHERS, via="", address=OTHERS, method=OTHERS, resources=(), detail="")
            counted = self._kinds.setdefault(key, _Counted())
        if key is not None and counted.recorded < EQUAL_PER_WINDOW_MAX and self._recorded < PER_WINDOW_MAX:
            counted.recorded += 1
            self._recorded += 1
            return [*due, record]
        if counted.summary is None:
            counted.summary = record._replace(until_ms=record.time_ms)
            self.has_summaries = True
        else:
            counted.summary = counted.summary._replace(number=counted.summary.number + 1, until_ms=record.time_ms)
        return due

    def ended(self, now_ms: int) -> list[AuditRecord]:
        """Return the summaries of the window, and begin another one, if its end has come.

        A clock that was set back ends it, too: otherwise it would count for as long as the clock was ahead.
        """
        if self._end_ms - WINDOW_MS <= now_ms < self._end_ms:
            return []
        return self.end()

    def end(self) -> list[AuditRecord]:
        """Return the summaries of the window, and begin another one."""
        due = [each.summary for each in self._kinds.values() if each.summary is not None]
        self._kinds.clear()
        self._recorded = 0
        self.has_summaries = False
        return due
