"""The page of a report: one self-contained HTML file with a light and a dark theme, printable."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.common.figures import bytes_text, count_text, duration_text, share_text, short_count
from pipeline.report.findings import Level, ReportFinding, find_unusual
from pipeline.report.plots import draw_delays, draw_histogram, draw_names, draw_queues, draw_topics, draw_traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pipeline.report.summary import NameCount, Percentiles, QueueSummary, Report, TopicSummary

_STYLE_NAME: Final = "page.css"
_ROWS_MAX: Final = 200
_GAPS_SHOWN: Final = 5
_NO_VALUE: Final = "-"
_TOPIC_HEADS: Final = (
    *("Topic", "Messages", "Share", "Bytes", "Queues", "A second", "Peak"),
    *("Body 50 %", "99 %", "Delay 50 %", "99 %", "99.9 %", "Retried"),
)
_QUEUE_HEADS: Final = (
    *("Topic", "Queue", "First offset", "After the last"),
    *("Messages", "Missing", "Twice", "Largest gaps"),
)


def write_report(report: Report, page: Path | None, figures: Path | None) -> list[ReportFinding]:
    """Write the page, and the figures as JSON; return the unusual findings.

    Args:
        report: the figures.
        page: path of the HTML file; None: none is written, and no plotting library is needed.
        figures: path of the JSON file; None: none is written.
    """
    findings = find_unusual(report)
    if figures is not None:
        content = report.to_json() | {"findings": [finding._asdict() for finding in findings]}
        figures.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    if page is not None:
        page.write_text(page_of(report, findings))
    return findings


def page_of(report: Report, findings: Sequence[ReportFinding]) -> str:
    """Return the page."""
    cards = _cards(report) if report.messages else _card("Nothing here", "The log has no such message.", "")
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(report.title)}: report</title>\n<style>\n{_style()}</style></head>\n"
        '<body><label class="theme" title="light or dark"><input type="checkbox"><span>◐</span></label>\n<main>\n'
        f"{_head(report)}{_figures(report)}{_findings(findings)}"
        f"{cards}{_tables(report)}{_page_footer()}</main></body></html>\n"
    )


def _style() -> str:
    # Read as a package resource: `spark-submit --py-files` sends a zip.
    return files("pipeline.report").joinpath(_STYLE_NAME).read_text("utf-8")


def _cards(report: Report) -> str:
    traffic = _card("Traffic", f"Messages a second, by topic; {_step_text(report)}", draw_traffic(report))
    left = (
        _card("Topics", "Bytes in the log", draw_topics(report)),
        _card("Body sizes", "Of all messages", _histogram(report, is_time=False)),
        _card("Delay", "From creation to storage, all messages", _histogram(report, is_time=True)),
        _names_card("Tags", "TAGS", "tags", report.hot_tags, 5),
    )
    right = (
        _card("Queues", "Messages of each queue; a balanced topic has one shade", draw_queues(report)),
        _card(
            "Delay by topic", "The delay within which this share of a topic's messages was stored", draw_delays(report)
        ),
        _names_card("Hot keys", "KEYS", "keys", report.hot_keys, 4),
    )
    return f'{traffic}<div class="cards"><div>{"".join(left)}</div><div>{"".join(right)}</div></div>\n'


def _head(report: Report) -> str:
    span = "no messages"
    if report.begin is not None and report.end is not None:
        span = f"{report.begin:%Y-%m-%d %H:%M:%S} to {report.end:%Y-%m-%d %H:%M:%S} UTC"
        span += f" · {duration_text(report.span_s)}"
    return f"<header><h1>{escape(report.title)}</h1><p>{span}</p></header>\n"


def _figures(report: Report) -> str:
    delay = report.delays_ms.p99
    figures = (
        (short_count(report.messages), "messages", f"{report.messages:,}"),
        (bytes_text(report.size), "in the log", f"{report.size:,} bytes, bodies {bytes_text(report.body_size)}"),
        (short_count(report.messages / report.span_s), "messages a second", "on average"),
        (f"{len(report.topics)} / {len(report.queues)}", "topics / queues", "with messages"),
        (
            _NO_VALUE if report.body_sizes.p50 is None else bytes_text(report.body_sizes.p50),
            "body",
            "median",
        ),
        (_NO_VALUE if delay is None else duration_text(delay / 1000), "to store 99 %", "from creation to storage"),
    )
    boxes = "".join(
        f'<div class="figure" title="{escape(tip)}"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for value, name, tip in figures
    )
    return f'<section class="figures">{boxes}</section>\n'


def _findings(findings: Sequence[ReportFinding]) -> str:
    if not findings:
        return '<section class="findings"><p class="calm">Nothing unusual was found.</p></section>\n'
    rows = "".join(
        f'<li class="{finding.level}"><b>{escape(finding.title)}</b> {escape(finding.text)}</li>\n'
        for finding in findings
    )
    alarms = sum(finding.level == Level.ALARM for finding in findings)
    head = count_text(alarms, "alarm") + " among them" if alarms else "no damage, gaps or duplicates"
    return f'<section class="findings"><h2>What is unusual <small>{head}</small></h2><ul>\n{rows}</ul></section>\n'


def _card(title: str, text: str, plot: str) -> str:
    return f'<section class="card"><h2>{escape(title)}</h2><p>{escape(text)}</p>{plot}</section>\n'


def _names_card(title: str, property_name: str, name: str, counts: Sequence[NameCount], color: int) -> str:
    if not counts:
        return _card(title, f"None of the {property_name} is more frequent than the others.", "")
    return _card(title, f"The most frequent {property_name}", draw_names(name, f"Most frequent {name}", counts, color))


def _histogram(report: Report, *, is_time: bool) -> str:
    if is_time:
        name, label, pairs, of = "delay", "Spread of delays", report.delay_histogram, report.delays_ms
    else:
        name, label, pairs, of = "size", "Spread of body sizes", report.size_histogram, report.body_sizes
    return draw_histogram(name, label, pairs, of=of, is_time=is_time)


def _step_text(report: Report) -> str:
    return f"each step is {duration_text(report.step_ms / 1000)}"


def _tables(report: Report) -> str:
    rows = "".join(_row(_topic_cells(report, topic)) for topic in report.topics[:_ROWS_MAX])
    text = f'<section class="card"><h2>All topics</h2>{_table(_TOPIC_HEADS, rows)}'
    if len(report.topics) > _ROWS_MAX:
        text += f"<p>and {len(report.topics) - _ROWS_MAX} more, which are in the JSON</p>"
    text += "</section>\n"
    with_gaps = [queue for queue in report.queues if queue.missing or queue.repeated]
    if with_gaps:
        rows = "".join(_row(_queue_cells(queue)) for queue in with_gaps[:_ROWS_MAX])
        text += f'<section class="card"><h2>Queues with gaps</h2>{_table(_QUEUE_HEADS, rows)}</section>\n'
    return text


def _queue_cells(queue: QueueSummary) -> tuple[str, ...]:
    gaps = ", ".join(f"[{begin}, {end})" for begin, end in queue.gaps[:_GAPS_SHOWN])
    offsets = (queue.queue_id, queue.begin_offset, queue.end_offset)
    missing = ("" if queue.is_missing_exact else "≥ ") + f"{queue.missing:,}"
    return (queue.topic, *map(str, offsets), f"{queue.messages:,}", missing, f"{queue.repeated:,}", gaps)


def _topic_cells(report: Report, topic: TopicSummary) -> tuple[str, ...]:
    return (
        topic.topic,
        f"{topic.messages:,}",
        share_text(topic.messages / max(report.messages, 1)),
        bytes_text(topic.size),
        f"{topic.queues}",
        short_count(topic.per_second),
        short_count(topic.peak_per_second),
        *_texts(topic.body_sizes, ("p50", "p99"), bytes_text),
        *_texts(topic.delays_ms, ("p50", "p99", "p999"), lambda value: duration_text(value / 1000)),
        f"{topic.retried:,}" if topic.retried else "",
    )


def _texts(of: Percentiles, names: Sequence[str], text_of: Callable[[float], str]) -> list[str]:
    values = [getattr(of, name) for name in names]
    return ["" if value is None else text_of(value) for value in values]


def _table(heads: Sequence[str], rows: str) -> str:
    cells = "".join(f"<th>{escape(head)}</th>" for head in heads)
    return f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>\n{rows}</tbody></table></div>'


def _row(cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>\n"


def _page_footer() -> str:
    return (
        "<footer>Percentiles are at most 3 % too high. Of keys and tags with a range, the first number is certain. "
        "Times are UTC. A mouse that rests on a plot shows its figures. Made by <code>dledger spark report</code>."
        "</footer>\n"
    )
