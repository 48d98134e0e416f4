"""Reports: their figures agree with the messages however the log was divided, and unusual facts are described."""

import json
import re
from html.parser import HTMLParser

import pytest

from pipeline.report.findings import Level, find_unusual
from pipeline.report.page import page_of, write_report
from pipeline.report.partial import ReportPartial
from pipeline.report.sketches import OffsetRuns
from pipeline.report.summary import summarise
from scripts.sample_store import SampleConfig, make_sample_store
from tests.unit.pipeline.report.sample_records import BEGIN_MS, batch_of, batches_of_store


def report_of(rows):
    partial = ReportPartial()
    partial.add(batch_of(rows))
    return summarise(partial, "a store")


def unusual(rows):
    return {finding.title: finding for finding in find_unusual(report_of(rows))}


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample") / "store"
    config = SampleConfig(size=1 << 20, file_size=2 << 20, has_queues=False)
    return folder, make_sample_store(str(folder), config)


def test_a_report_does_not_depend_on_how_the_log_was_sliced(sample):
    folder, count = sample
    whole, merged = ReportPartial(), ReportPartial()
    for batch in batches_of_store(folder):
        whole.add(batch)
    for batch in batches_of_store(folder, size_max=100_000):
        partial = ReportPartial()
        partial.add(batch)
        merged.merge(ReportPartial.from_row(*partial.to_row()))

    expected, found = summarise(whole, "it"), summarise(merged, "it")
    assert expected.messages == count
    # Lower bounds of names depend on the cuts; all else does not.
    for content in (expected, found):
        assert all(name.at_least <= name.at_most for name in [*content.hot_keys, *content.hot_tags])
    omitted = {"hot_keys", "hot_tags", "repeated_examples"}
    assert {name: value for name, value in expected.to_json().items() if name not in omitted} == {
        name: value for name, value in found.to_json().items() if name not in omitted
    }


def test_figures_are_those_of_the_messages():
    report = report_of(
        [
            {"bodySize": 10, "storeSize": 110, "bornTimestamp": (BEGIN_MS - 7) * 1000, "keys": "a b", "tags": "x"},
            {"bodySize": 30, "storeSize": 130, "topic": "pay", "queueId": 3, "tags": "x", "reconsumeTimes": 2},
            {"bodySize": 20, "storeSize": 120, "keys": "a", "uniqKey": "U1"},
        ]
    )

    assert (report.messages, report.size, report.body_size, report.span_s) == (3, 360, 60, 2.0)
    assert [(topic.topic, topic.messages, topic.size, topic.retried) for topic in report.topics] == [
        ("orders", 2, 230, 0),
        ("pay", 1, 130, 1),
    ]
    assert report.topics[0].delays_ms.max == 7
    assert report.topics[1].body_sizes.p50 == 30
    assert [(key.topic, key.name, key.at_least, key.at_most) for key in report.hot_keys] == [
        ("orders", "a", 2, 2),
        ("orders", "b", 1, 1),
    ]
    assert report.begin.isoformat() == "2025-10-09T08:53:20+00:00"
    assert sum(sum(messages) for messages, _ in report.series.values()) == 3


def test_gaps_and_repeated_offsets_are_alarms_that_name_their_queue():
    found = unusual([{"queueOffset": offset} for offset in (5, 6, 9, 10, 10)])

    assert found["Gaps in queues"].level == Level.ALARM
    assert "orders/0 lacks 2, such as [7, 9)" in found["Gaps in queues"].text
    assert "orders/0" in found["Queue offsets given twice"].text


def test_gaps_beyond_the_bound_are_reported_as_a_lower_bound():
    offsets = range(0, 2 * OffsetRuns.RUNS_MAX + 20, 2)

    report = report_of([{"queueOffset": offset} for offset in offsets])

    (queue,) = report.queues
    assert (queue.missing, queue.is_missing_exact) == (OffsetRuns.RUNS_MAX - 1, False)
    (finding,) = (each for each in find_unusual(report) if each.title == "Gaps in queues")
    assert finding.text.startswith(f"At least {queue.missing:,} queue offsets")
    assert f"≥ {queue.missing:,}" in page_of(report, [])


def test_prepared_messages_have_no_queue_offset():
    assert not unusual([{"queueOffset": 0, "sysFlag": 4} for _ in range(3)])


def test_a_unique_key_repeated_in_a_topic_is_reported_but_not_that_of_a_retry():
    twice = [{"uniqKey": "U1"}, {"uniqKey": "U1", "topic": "other"}, {"uniqKey": "U1"}]
    retried = [{"uniqKey": "U2", "topic": "%RETRY%group", "reconsumeTimes": times} for times in (1, 2)]

    assert "1 message carries" in unusual(twice)["Messages sent twice"].text
    assert "U1 of orders" in unusual(twice)["Messages sent twice"].text
    assert "Messages sent twice" not in unusual(retried)


def test_a_unique_key_repeated_much_later_is_reported_without_an_example():
    partial = ReportPartial()
    for _ in range(2):
        partial.add(batch_of([{"uniqKey": "U1"}]))
    (found,) = [each for each in find_unusual(summarise(partial, "it")) if each.title == "Messages sent twice"]

    assert found.text.endswith("retried messages that had arrived.")


def test_dead_letters_retries_clocks_and_damage_are_reported():
    rows = [{"topic": "%DLQ%billing"}, {"topic": "%RETRY%billing"}, {"bornTimestamp": (BEGIN_MS + 10**6) * 1000}]
    partial = ReportPartial()
    partial.add(batch_of(rows))
    partial.skipped = 2
    found = {finding.title: finding.text for finding in find_unusual(summarise(partial, "it"))}

    assert set(found) == {
        "Dead letters of billing",
        "Many retries",
        "Clocks disagree",
        "Damaged records",
    }
    assert "2 records" in found["Damaged records"]


def test_a_rush_a_silence_a_hot_key_and_an_uneven_queue_are_reported():
    seconds = [*range(60), *([30] * 10), *range(80, 140)]
    rows = [
        {
            "storeTimestamp": (BEGIN_MS + 1000 * second + number) * 1000,
            "keys": "hot" if number < 10 else f"k{second}-{number}",
            "queueId": 0 if number < 30 else number % 4,
        }
        for second in seconds
        for number in range(40)
    ]
    found = unusual(rows)

    assert set(found) == {"A rush", "Silence", "Hot keys", "Uneven queues of orders"}
    assert "2025-10-09 08:53:50" in found["A rush"].text
    assert "20 s" in found["Silence"].text
    assert "hot (25 % of the messages of orders" in found["Hot keys"].text


def test_a_quiet_log_has_nothing_unusual():
    assert not unusual([{"queueId": number % 4, "uniqKey": f"U{number}"} for number in range(2000)])


class _Page(HTMLParser):
    """Counts tags, checks that each is closed, and collects what a page would load from elsewhere."""

    EMPTY = ("meta", "input", "path", "use", "rect", "line", "image", "br")

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.loaded = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.loaded += [value for name, value in attrs if name in {"src", "href", "xlink:href"} and value[0] != "#"]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.EMPTY:
            assert self.open.pop() == tag


def test_the_page_is_self_contained_and_the_same_each_time(sample, tmp_path):
    folder, _ = sample
    partial = ReportPartial()
    for batch in batches_of_store(folder):
        partial.add(batch)
    report = summarise(partial, "<store> & co")
    pages = [tmp_path / "1.html", tmp_path / "2.html"]
    findings = [write_report(report, page, tmp_path / "report.json") for page in pages]

    content = pages[0].read_text()
    page = _Page()
    page.feed(content)
    assert not page.open
    assert page.seen.count("svg") == 8
    assert not page.loaded
    assert "url(http" not in content
    assert "<store>" not in content
    assert "#0505" not in content  # every placeholder became a colour of the page
    assert content == pages[1].read_text()
    reported = json.loads((tmp_path / "report.json").read_text())
    assert reported["messages"] == report.messages
    assert [finding["title"] for finding in reported["findings"]] == [finding.title for finding in findings[0]]


def test_the_page_of_an_empty_log_says_so(tmp_path):
    write_report(summarise(ReportPartial(), "empty"), tmp_path / "page.html", None)
    assert "has no such message" in (tmp_path / "page.html").read_text()


def test_a_log_of_a_few_messages_with_one_key_has_a_report():
    assert "Hot keys" not in unusual([{"keys": "same"}] * 9)


def test_long_names_are_shortened_in_plots_and_whole_in_tips_and_tables():
    names = ["X" * 141, "orders-" + "payments_and_refunds-" * 6 + "eu$west$1", "%RETRY%" + "W" * 110]
    report = report_of([{"topic": name, "keys": f"k{'K' * 80}", "tags": "T" * 60} for name in names for _ in range(9)])

    page = page_of(report, find_unusual(report))

    labels = re.findall(r"<text [^>]*>([^<]*)</text>", page)
    assert any("…" in label for label in labels)
    assert max(map(len, labels)) <= 40
    for name in names:
        assert f"<td>{name}</td>" in page
        assert f"<title>{name}: " in page
