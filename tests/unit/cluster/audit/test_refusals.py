"""Refusals are recorded one by one at first, and counted then: no caller can fill the log."""

from __future__ import annotations

from cluster.audit.record import AuditRecord, RecordKind
from cluster.audit.refusals import (
    EQUAL_PER_WINDOW_MAX,
    KINDS_PER_WINDOW_MAX,
    OTHERS,
    PER_WINDOW_MAX,
    WINDOW_MS,
    RefusalWindow,
)


def refusal(now_ms: int, user: str = "eve") -> AuditRecord:
    return AuditRecord(now_ms, RecordKind.REFUSAL, user, address="10.0.0.9", result="ACCESS_DENIED")


def test_the_first_are_recorded_and_the_others_counted() -> None:
    window = RefusalWindow()

    at_once = [each for number in range(100) for each in window.add(refusal(number), "eve")]
    (summary,) = window.ended(WINDOW_MS)

    assert [each.time_ms for each in at_once] == list(range(EQUAL_PER_WINDOW_MAX))
    assert (summary.user, summary.number, summary.time_ms, summary.until_ms) == ("eve", 90, 10, 99)
    assert window.ended(2 * WINDOW_MS) == []


def test_the_next_window_begins_with_records() -> None:
    window = RefusalWindow()
    for number in range(11):
        window.add(refusal(number), "eve")

    found = window.add(refusal(WINDOW_MS), "eve")

    assert [(each.time_ms, each.number, bool(each.until_ms)) for each in found] == [
        (10, 1, True),
        (WINDOW_MS, 1, False),
    ]


def test_callers_with_many_names_are_counted_as_one() -> None:
    """50,000 names in a window: a bounded number of records and of counters, and none is missing in the sums."""
    window = RefusalWindow()

    found = [each for number in range(50_000) for each in window.add(refusal(number, f"u{number}"), f"u{number}")]
    found += window.ended(WINDOW_MS)

    assert len(found) <= PER_WINDOW_MAX + KINDS_PER_WINDOW_MAX + 1
    assert sum(each.number for each in found) == 50_000
    others = found[-1]
    assert (others.user, others.address, others.resources) == (OTHERS, OTHERS, ())


def test_all_together_are_bounded() -> None:
    window = RefusalWindow()

    found = [each for number in range(20) for user in range(100) for each in window.add(refusal(number), user)]

    assert len(found) == PER_WINDOW_MAX
    assert sum(each.number for each in [*found, *window.end()]) == 2_000


def test_a_clock_that_is_set_back_ends_the_window() -> None:
    window = RefusalWindow()
    for number in range(11):
        window.add(refusal(10 * WINDOW_MS + number), "eve")

    assert len(window.ended(0)) == 1
