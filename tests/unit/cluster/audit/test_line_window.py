"""Equal events are recorded one by one at first, and counted then: no caller can fill the log."""

from __future__ import annotations

from cluster.audit.line_window import (
    ALL_CHANGES_PER_HOUR_MAX,
    CALLERS_PER_HOUR_MAX,
    CHANGES_PER_HOUR_MAX,
    CHANGES_PER_MINUTE_MAX,
    EQUAL_PER_WINDOW_MAX,
    HOUR_MS,
    KEYS_PER_WINDOW_MAX,
    OTHERS,
    PER_WINDOW_MAX,
    SORTS_PER_KEY_MAX,
    SUMMARIES_MAX,
    WINDOW_MS,
    window_of_changes,
    window_of_refusals,
)
from cluster.audit.record import AuditRecord, RecordKind


def refusal(now_ms: int, user: str = "eve") -> AuditRecord:
    return AuditRecord(now_ms, RecordKind.REFUSAL, user, address="10.0.0.9", result="ACCESS_DENIED")


def test_the_first_are_recorded_and_the_others_counted() -> None:
    window = window_of_refusals()

    at_once = [each for number in range(100) for each in window.add(refusal(number), "eve")]
    (summary,) = window.ended(WINDOW_MS)

    assert [each.time_ms for each in at_once] == list(range(EQUAL_PER_WINDOW_MAX))
    assert (summary.user, summary.number, summary.time_ms, summary.until_ms) == ("eve", 90, 10, 99)
    assert window.ended(2 * WINDOW_MS) == []


def test_the_next_window_begins_with_records() -> None:
    window = window_of_refusals()
    for number in range(11):
        window.add(refusal(number), "eve")

    found = window.add(refusal(WINDOW_MS), "eve")

    assert [(each.time_ms, each.number, bool(each.until_ms)) for each in found] == [
        (10, 1, True),
        (WINDOW_MS, 1, False),
    ]


def test_callers_with_many_names_are_counted_as_one() -> None:
    """50,000 names in a window: a bounded number of records and of counters, and none is missing in the sums."""
    window = window_of_refusals()

    found = [each for number in range(50_000) for each in window.add(refusal(number, f"u{number}"), f"u{number}")]
    found += window.ended(WINDOW_MS)

    assert len(found) <= PER_WINDOW_MAX + KEYS_PER_WINDOW_MAX + 1
    assert sum(each.number for each in found) == 50_000
    others = found[-1]
    assert (others.user, others.address, others.via) == (OTHERS, OTHERS, "")


def test_all_together_are_bounded() -> None:
    window = window_of_refusals()

    found = [each for number in range(20) for user in range(100) for each in window.add(refusal(number), user)]

    assert len(found) == PER_WINDOW_MAX
    assert sum(each.number for each in [*found, *window.end()]) == 2_000


def test_a_clock_that_is_set_back_ends_the_window() -> None:
    window = window_of_refusals()
    for number in range(11):
        window.add(refusal(10 * WINDOW_MS + number), "eve")

    assert len(window.ended(0)) == 1


def change(
    now_ms: int, user: str = "eve", method: str = "SetTopic", result: str = "OK", topic: str = "t"
) -> AuditRecord:
    return AuditRecord(
        now_ms, RecordKind.ADMIN, user, "session", "10.0.0.9", method, (f"Topic:{topic}",), result, f"detail of {topic}"
    )


def test_changes_of_a_caller_have_lines_up_to_its_share_of_the_minute_and_of_the_hour() -> None:
    window = window_of_changes()

    found = []
    for number in range(36_000):
        record = change(number * 100)
        found += window.add(record, "eve", (record.method, record.result))
    found += window.end()
    alone = [each for each in found if not each.until_ms]

    assert len(alone) == CHANGES_PER_HOUR_MAX
    for minute in range(60):
        in_minute = [each for each in alone if minute * WINDOW_MS <= each.time_ms < (minute + 1) * WINDOW_MS]
        assert len(in_minute) == (CHANGES_PER_MINUTE_MAX if minute < 20 else 0)
    assert len(found) - len(alone) == 60
    assert sum(each.number for each in found) == 36_000
    # Another hour, another share.
    assert window.add(change(HOUR_MS), "eve") == [change(HOUR_MS)]


def test_a_summary_has_its_method_count_times_and_first_and_last_resources() -> None:
    window = window_of_changes()
    for number in range(CHANGES_PER_MINUTE_MAX):
        window.add(change(number), "eve", "SetTopic")
    for number in range(500):
        window.add(change(1_000 + number, topic=f"t{number}"), "eve", "SetTopic")
    window.add(change(2_000, method="DeleteUser", topic="one"), "eve", "DeleteUser")

    topics, users = window.ended(WINDOW_MS)

    assert (topics.user, topics.method, topics.number) == ("eve", "SetTopic", 500)
    assert (topics.time_ms, topics.until_ms, topics.detail) == (1_000, 1_499, "")
    assert topics.resources[:8] == (*(f"Topic:t{number}" for number in range(7)), "Topic:t499")
    # A ninth: there are more.
    assert len(topics.resources) == 9
    # A single one is whole.
    assert users == change(2_000, method="DeleteUser", topic="one")._replace(until_ms=2_000)


def test_a_summary_of_events_that_differ_says_so() -> None:
    window = window_of_refusals()
    for number in range(EQUAL_PER_WINDOW_MAX):
        window.add(refusal(number), "eve")
    window.add(refusal(20)._replace(method="Put", address="10.0.0.1", detail="lacks Pub"), "eve")
    window.add(refusal(21)._replace(method="Get", address="10.0.0.2", detail="lacks Sub"), "eve")

    (summary,) = window.end()

    assert (summary.method, summary.address, summary.detail) == (OTHERS, OTHERS, "")
    assert (summary.user, summary.result) == ("eve", "ACCESS_DENIED")


def test_one_caller_has_a_bounded_number_of_summaries() -> None:
    window = window_of_changes()
    for number in range(10_000):
        window.add(change(number, method=f"m{number}"), "eve", f"m{number}")

    found = window.end()

    assert len(found) == SORTS_PER_KEY_MAX + 1
    assert (found[-1].method, found[-1].user) == (OTHERS, "eve")


def test_changes_of_all_callers_are_bounded_and_those_of_others_stay_apart() -> None:
    """Callers with many names use up the lines of the hour; the summary of another one still has its name."""
    window = window_of_changes()
    found = []
    for number in range(200 * CHANGES_PER_MINUTE_MAX):
        found += window.add(change(number, f"u{number % 200}"), f"u{number % 200}", "SetTopic")
    assert len(found) == ALL_CHANGES_PER_HOUR_MAX

    window.add(change(50_000, "admin", "DeleteUser", topic="bob"), "admin", "DeleteUser")

    (of_admin,) = [each for each in window.end() if each.user == "admin"]
    assert (of_admin.method, of_admin.resources, of_admin.number) == ("DeleteUser", ("Topic:bob",), 1)


def test_memory_of_callers_and_summaries_is_bounded() -> None:
    """More callers than have counters of their own: each keeps its first line, and all others are one caller."""
    window = window_of_changes()
    found = []
    count = 3 * CALLERS_PER_HOUR_MAX
    for number in range(count):
        for _ in range(2):
            found += window.add(change(0, f"u{number}", topic=f"t{number}"), f"u{number}", "SetTopic")

    assert max(len(each._by_key) for each in window._counts) == CALLERS_PER_HOUR_MAX
    assert len(found) == min(ALL_CHANGES_PER_HOUR_MAX, 2 * CALLERS_PER_HOUR_MAX)
    summaries = window.end()
    assert len(summaries) <= SUMMARIES_MAX + SORTS_PER_KEY_MAX + 1
    assert summaries[-1].user == OTHERS
    assert sum(each.number for each in [*found, *summaries]) == 2 * count


def test_a_clock_that_is_set_back_starts_another_hour() -> None:
    window = window_of_changes()
    for number in range(CHANGES_PER_HOUR_MAX):
        window.add(change(10 * HOUR_MS + number * 1_000), "eve")

    assert window.add(change(0), "eve")[-1] == change(0)
