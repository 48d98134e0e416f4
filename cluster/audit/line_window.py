"""Bounds the lines of equal events: the first ones are recorded one by one, later ones are counted in summaries.

| window | key | one by one, of one key | of all keys | keys |
| --- | --- | --- | --- | --- |
| refusals, failed logins | user, client, result | 10 a minute | 300 a minute | 128 |
| lists of users and roles, logins | user, client, method, result | 10 a minute | 300 a minute | 128 |
| changes | user; without one: client | 100 a minute, 2,000 an hour | 10,000 an hour | 4,096 |

The others become summaries, which are written each minute: of refusals and reads one for each key; of changes one for
each method and result of a key, and one more for all beyond 16 of them. What is beyond the keys, or beyond 1,024
summaries, counts as one caller, "(several)", whose events are never recorded one by one.

A summary has the number of its events, the times of the first and the last one, their first seven resources, and the
last one. Where its events differ, it has "(several)", or no detail.

So whatever is sent, there are at most 430 lines of refusals a minute, and as many of reads. One caller causes at most
2,000 lines of changes an hour, and 17 summaries of them a minute. The key of changes has no address: with another one a
user would get another share. Memory: some 20 MiB if a caller fills all tables with the longest names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.audit.record import RESOURCES_PER_RECORD_MAX, AuditRecord

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

WINDOW_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
EQUAL_PER_WINDOW_MAX: Final = 10
PER_WINDOW_MAX: Final = 300
KEYS_PER_WINDOW_MAX: Final = 128
CHANGES_PER_MINUTE_MAX: Final = 100
CHANGES_PER_HOUR_MAX: Final = 2_000
ALL_CHANGES_PER_HOUR_MAX: Final = 10_000
# A name server has a thousand brokers at most; each registers once after it has started.
CALLERS_PER_HOUR_MAX: Final = 4_096
# Summaries of one key, and of all.
SORTS_PER_KEY_MAX: Final = 16
SUMMARIES_MAX: Final = 1_024
# What differs among the events of a summary, or is not counted apart.
OTHERS: Final = "(several)"


class LineLimit(NamedTuple):
    """How many events of a window are recorded one by one.

    Attributes:
        window_ms: length of the window, which starts with its first event.
        equal_max: of one key.
        total_max: of all keys.
    """

    window_ms: int
    equal_max: int
    total_max: int


def window_of_refusals() -> LineWindow:
    """Return a window for refusals, and for reads by administrators and logins."""
    limit = LineLimit(WINDOW_MS, EQUAL_PER_WINDOW_MAX, PER_WINDOW_MAX)
    return LineWindow(limit, keys_max=KEYS_PER_WINDOW_MAX)


def window_of_changes() -> LineWindow:
    """Return a window for changes; its keys are callers."""
    minute = LineLimit(WINDOW_MS, CHANGES_PER_MINUTE_MAX, ALL_CHANGES_PER_HOUR_MAX)
    hour = LineLimit(HOUR_MS, CHANGES_PER_HOUR_MAX, ALL_CHANGES_PER_HOUR_MAX)
    return LineWindow(minute, hour, keys_max=CALLERS_PER_HOUR_MAX)


class _Counts:
    """The events of the running window of one limit that were recorded one by one."""

    def __init__(self, limit: LineLimit) -> None:
        self._limit = limit
        self._start_ms = 0
        self._total = 0
        self._by_key: dict[Hashable, int] = {}

    def has_ended(self, now_ms: int) -> bool:
        """Return whether the window is over; a clock that was set back ends it, too.

        Otherwise it would last for as long as the clock was ahead.
        """
        return bool(self._by_key) and not self._start_ms <= now_ms < self._start_ms + self._limit.window_ms

    def end(self) -> None:
        """Start another window with the next event."""
        self._total = 0
        self._by_key.clear()

    def knows(self, key: Hashable, now_ms: int, keys_max: int) -> bool:
        """Return whether events of a key are counted apart; an unknown key is added, up to `keys_max`."""
        if key not in self._by_key:
            if len(self._by_key) >= keys_max:
                return False
            if not self._by_key:
                self._start_ms = now_ms
            self._by_key[key] = 0
        return True

    def has_space(self, key: Hashable) -> bool:
        """Return whether one more event of a key that is counted apart may be recorded alone."""
        return self._total < self._limit.total_max and self._by_key[key] < self._limit.equal_max

    def count(self, key: Hashable) -> None:
        """Count an event that is recorded alone."""
        self._total += 1
        self._by_key[key] += 1


class LineWindow:
    """The events of the running windows. The owner's lock protects it.

    Args:
        limits: of events that are recorded one by one; the shortest window first, at whose end summaries are due.
        keys_max: keys that are counted apart in each window.
    """

    def __init__(self, *limits: LineLimit, keys_max: int) -> None:
        self._counts = [_Counts(limit) for limit in limits]
        self._keys_max = keys_max
        self._summaries: dict[Hashable, dict[Hashable, AuditRecord]] = {}
        self._summaries_count = 0

    @property
    def has_summaries(self) -> bool:
        """There is something to record when the shortest window ends."""
        return bool(self._summaries)

    def add(self, record: AuditRecord, key: Hashable, sort: Hashable = None) -> list[AuditRecord]:
        """Return the records to write now: summaries of a window that has ended, then the event if it is not counted.

        Args:
            record: of one event.
            key: equal for events that the limits count together.
            sort: events of one key are summarized together if it is equal, too.
        """
        due = self.ended(record.time_ms)
        for each in self._counts[1:]:
            if each.has_ended(record.time_ms):
                each.end()
        if not all(each.knows(key, record.time_ms, self._keys_max) for each in self._counts):
            self._summarize(record, None, sort)
        elif all(each.has_space(key) for each in self._counts):
            for each in self._counts:
                each.count(key)
            due.append(record)
        else:
            self._summarize(record, key, sort)
        return due

    def ended(self, now_ms: int) -> list[AuditRecord]:
        """Return the summaries of the shortest window, and start another one, if it is over."""
        return self.end() if self._counts[0].has_ended(now_ms) else []

    def end(self) -> list[AuditRecord]:
        """Return the summaries of the shortest window, and start another one."""
        due = [each for sorts in self._summaries.values() for each in sorts.values()]
        self._summaries.clear()
        self._summaries_count = 0
        self._counts[0].end()
        return due

    def _summarize(self, record: AuditRecord, key: Hashable, sort: Hashable) -> None:
        is_known = sort in self._summaries.get(key, ())
        if not is_known and self._summaries_count >= SUMMARIES_MAX:
            key = None
        sorts = self._summaries.setdefault(key, {})
        if sort not in sorts and len(sorts) >= SORTS_PER_KEY_MAX:
            sort = OTHERS
        summary = sorts.get(sort)
        if key is None:
            record = record._replace(user=OTHERS, via="", address=OTHERS)
        if summary is None:
            self._summaries_count += 1
            sorts[sort] = record._replace(until_ms=record.time_ms)
        else:
            sorts[sort] = _merged(summary, record)


def _merged(summary: AuditRecord, record: AuditRecord) -> AuditRecord:
    """Return a summary with one event more."""
    return summary._replace(
        number=summary.number + record.number,
        until_ms=record.time_ms,
        address=_common(summary.address, record.address),
        method=_common(summary.method, record.method),
        result=_common(summary.result, record.result),
        # It is about one of them.
        detail=summary.detail if summary.detail == record.detail else "",
        resources=tuple(_resources(summary.resources, record.resources)),
    )


def _common(first: str, second: str) -> str:
    return first if first == second else OTHERS


def _resources(found: tuple[str, ...], more: tuple[str, ...]) -> Iterator[str]:
    """Yield the first seven resources of a summary and the last one; a ninth if there are others."""
    shown, has_others = [*found[:RESOURCES_PER_RECORD_MAX]], len(found) > RESOURCES_PER_RECORD_MAX
    for each in more:
        if each in shown:
            continue
        if len(shown) == RESOURCES_PER_RECORD_MAX:
            has_others = True
            shown.pop()
        shown.append(each)
    yield from shown
    if has_others:
        yield OTHERS
