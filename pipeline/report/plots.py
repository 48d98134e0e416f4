"""The plots of a report as SVG with the colours of the page, so that one plot works in both themes.

Drawn with matplotlib, without its global state. Each colour is drawn as a placeholder and replaced by a CSS variable.
Text stays text. Elements with a tooltip have a `<title>`.
"""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib import dates
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from pipeline.common.figures import bytes_text, duration_text, share_text, short_count
from pipeline.report.sketches import BUCKETS, bucket_begins, dense

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from pipeline.report.summary import NameCount, Percentiles, Report
    from store.model.dispatch_batch import Int64s

_DATES: Final[Any] = dates  # ships without types
# Placeholder colours, replaced by the colours of the page.
_INK, _SOFT, _GRID, _PAPER = "#010101", "#020202", "#030303", "#040404"
SERIES_COUNT: Final = 8
_SERIES: Final = tuple(f"#0505{number:02d}" for number in range(SERIES_COUNT))
_OTHERS: Final = "#060606"
_VARIABLES: Final = {
    _INK: "--ink",
    _SOFT: "--soft",
    _GRID: "--grid",
    _PAPER: "--card",
    _OTHERS: "--others",
} | {color: f"--c{number}" for number, color in enumerate(_SERIES)}
_STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": _INK,
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _SOFT,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "xtick.color": _GRID,
    "ytick.color": _GRID,
    "xtick.labelcolor": _SOFT,
    "ytick.labelcolor": _SOFT,
    "ytick.major.size": 0,
    "figure.facecolor": "none",
    "legend.frameon": False,
}
_TOPICS_SHOWN: Final = 14
_NAMES_SHOWN: Final = 8
_QUEUES_LABELLED_MAX: Final = 12
_HEAT_TOPICS_MAX: Final = 24
_HEAT_QUEUES_MAX: Final = 32
# Most characters of a name next to a plot, so that enough space is left for the plot.
_NAME_MAX: Final = 26
_PAIR_NAME_MAX: Final = 14
_MS_A_DAY: Final = 86_400_000
_ROW: Final = 0.27
_TIPS: Final = "tip-"


class _Plot:
    """One figure, with the texts that appear under the mouse pointer."""

    def __init__(self, width: float, height: float, name: str) -> None:
        self.figure = Figure(figsize=(width, height), layout="constrained")
        self.axes: Axes = self.figure.add_subplot()
        self.name = name
        self.tips: list[str] = []

    def tip(self, artist: Any, text: str) -> None:
        """Set the text that appears when the mouse pointer is over an artist."""
        artist.set_gid(f"{_TIPS}{self.name}-{len(self.tips)}")
        self.tips.append(text)

    def svg(self, label: str) -> str:
        """Return it as SVG for a page."""
        content = io.StringIO()
        self.figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
        text = content.getvalue()
        text = text[text.index("<svg") :]
        for color, variable in _VARIABLES.items():
            text = text.replace(color, f"var({variable})")
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        # The page's own typeface.
        text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", text)
        text = re.sub(r' width="[\d.]+pt"| height="[\d.]+pt"', "", text, count=2)
        for number, tip in enumerate(self.tips):
            mark = f'<g id="{_TIPS}{self.name}-{number}">'
            text = text.replace(mark, f'<g class="tip {self.name}"><title>{escape(tip)}</title>', 1)
        return text.replace("<svg ", f'<svg role="img" aria-label="{escape(label, quote=True)}" ', 1)


def _drawn(name: str, width: float, height: float, label: str, draw: Callable[[_Plot], None]) -> str:
    with mpl.rc_context(_STYLE | {"svg.hashsalt": name}):
        plot = _Plot(width, height, name)
        draw(plot)
        return plot.svg(label)


def draw_traffic(report: Report) -> str:
    """Return a plot of messages per second over time, with one layer for each of the largest topics."""

    def draw(plot: _Plot) -> None:
        axes, seconds = plot.axes, report.step_ms / 1000
        order = sorted(report.series, key=lambda name: -sum(report.series[name][0]))
        shown, others = order[: SERIES_COUNT - 1], order[SERIES_COUNT - 1 :]
        layers = [np.array(report.series[name][0]) / seconds for name in shown]
        if others:
            layers.append(np.sum([report.series[name][0] for name in others], axis=0) / seconds)
        labels = [*map(_short, shown), *([f"{len(others)} others"] if others else [])]
        steps = len(layers[0]) if layers else 0
        begins = report.first_step_ms + report.step_ms * np.arange(steps + 1)
        edges = begins / _MS_A_DAY
        floor = np.zeros(steps)
        for layer, label, color in zip(layers, labels, [*_SERIES[: len(shown)], _OTHERS], strict=False):
            axes.stairs(floor + layer, edges, baseline=floor, fill=True, color=color, label=label, linewidth=0)
            floor = floor + layer
        _add_step_tips(plot, edges, floor, layers, labels)
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0, max(float(floor.max(initial=0)) * 1.05, 1e-9))
        axes.grid(visible=False, axis="x")
        locator: Any = _DATES.AutoDateLocator()
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(_DATES.ConciseDateFormatter(locator, tz=UTC))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value)))
        axes.set_ylabel("messages a second")
        handles, names = axes.get_legend_handles_labels()
        plot.figure.legend(handles, names, loc="outside right upper", reverse=True, fontsize=10)

    return _drawn("traffic", 11.6, 3.7, "Messages a second over time, by topic", draw)


def _add_step_tips(plot: _Plot, edges: Any, totals: Any, layers: Sequence[Any], labels: Sequence[str]) -> None:
    top = float(totals.max(initial=0)) * 1.05
    for step, total in enumerate(totals.tolist()):
        bar = plot.axes.bar(
            edges[step], top, edges[step + 1] - edges[step], align="edge", facecolor=_INK, alpha=0.0, linewidth=0
        )[0]
        most = sorted(zip(labels, (float(layer[step]) for layer in layers), strict=True), key=lambda item: -item[1])
        time = datetime.fromtimestamp(round(edges[step] * _MS_A_DAY) / 1000, UTC)
        lines = [f"{time:%Y-%m-%d %H:%M:%S} UTC: {short_count(total)} a second"]
        lines += [f"{label}: {short_count(rate)}" for label, rate in most[:4] if rate]
        plot.tip(bar, "\n".join(lines))


def draw_topics(report: Report) -> str:
    """Return a bar chart of the bytes of the largest topics."""
    shown = report.topics[:_TOPICS_SHOWN]

    def draw(plot: _Plot) -> None:
        sizes = [topic.size for topic in shown]
        texts = [f"{bytes_text(topic.size)} · {short_count(topic.messages)} messages" for topic in shown]
        names = [topic.topic for topic in shown]
        _bars(plot, list(map(_short, names)), names, sizes, texts, _SERIES[0])

    return _drawn("topics", 5.7, _ROW * max(len(shown), 4) + 0.3, "Bytes of the largest topics", draw)


def draw_names(name: str, label: str, counts: Sequence[NameCount], color: int) -> str:
    """Return a bar chart of the most frequent keys or tags."""
    shown = counts[:_NAMES_SHOWN]

    def draw(plot: _Plot) -> None:
        texts = [
            f"{count.at_least:,}" if count.at_least == count.at_most else f"{count.at_least:,} to {count.at_most:,}"
            for count in shown
        ]
        labels = [f"{_short(count.topic, _PAIR_NAME_MAX)} / {_short(count.name, _PAIR_NAME_MAX)}" for count in shown]
        names = [f"{count.topic} / {count.name}" for count in shown]
        _bars(plot, labels, names, [count.at_least for count in shown], texts, _SERIES[color])

    return _drawn(name, 5.7, _ROW * max(len(shown), 4) + 0.3, label, draw)


def _bars(
    plot: _Plot, labels: Sequence[str], names: Sequence[str], values: Sequence[float], texts: Sequence[str], color: str
) -> None:
    axes = plot.axes
    places = np.arange(len(names))
    bars = axes.barh(places, values, height=0.72, color=color)
    for bar, name, text in zip(bars, names, texts, strict=True):
        plot.tip(bar, f"{name}: {text}")
        axes.annotate(
            text,
            (bar.get_width(), bar.get_y() + bar.get_height() / 2),
            (5, 0),
            textcoords="offset points",
            va="center",
            fontsize=9.5,
            color=_SOFT,
        )
    axes.set_yticks(places, labels)
    axes.tick_params(axis="y", labelcolor=_INK)
    axes.invert_yaxis()
    # Long labels leave a narrow plot, in which the figures need a larger share.
    space = 1.42 if max(map(len, labels), default=0) <= _NAME_MAX - _PAIR_NAME_MAX // 2 else 2.0
    axes.set_xlim(0, max([*values, 1]) * space)
    axes.set_xticks([])
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)


def draw_histogram(name: str, label: str, pairs: Sequence[Sequence[int]], *, of: Percentiles, is_time: bool) -> str:
    """Return a histogram of sizes or delays, on a logarithmic axis, with three percentiles marked."""
    text_of = _milliseconds if is_time else bytes_text

    def draw(plot: _Plot) -> None:
        axes = plot.axes
        edges, counts = _octave_parts(dense(pairs, BUCKETS))
        total = max(int(counts.sum()), 1)
        bars = axes.bar(
            edges[:-1], counts / total, np.diff(edges), align="edge", color=_SERIES[2 if is_time else 1], linewidth=0
        )
        for bar, begin, end, count in zip(bars, edges, edges[1:], counts, strict=False):
            if count:
                share = share_text(count / total)
                plot.tip(bar, f"{text_of(begin)} to {text_of(end)}: {share} ({count:,} messages)")
        top = float(counts.max(initial=1)) / total
        for place, (mark, value) in enumerate((("50 %", of.p50), ("99 %", of.p99), ("99.9 %", of.p999))):
            if value is not None:
                axes.axvline(max(value, edges[0]), color=_INK, linewidth=1, linestyle=(0, (2, 2)))
                height = top * (1.36 - 0.12 * place)
                text = f" {mark} ≤ {text_of(value)}"
                paper = {"facecolor": _PAPER, "edgecolor": "none", "pad": 0.8}
                axes.text(max(value, edges[0]), height, text, fontsize=9.5, color=_INK, va="top", bbox=paper)
        axes.set_xscale("log")
        axes.set_xlim(edges[0], edges[-1] * 3)
        axes.set_ylim(0, top * 1.38)
        axes.xaxis.set_major_locator(LogLocator(10, numticks=12))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: text_of(value)))
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: share_text(value) if value else "0"))
        axes.set_ylabel("share of messages")
        axes.grid(visible=False, axis="x")

    return _drawn(name, 5.7, 2.9, label, draw)


def _octave_parts(counts: Int64s) -> tuple[NDArray[np.float64], Int64s]:
    """Return edges and counts for a histogram: one bin per number up to 8, then four bins per octave."""
    used = np.flatnonzero(counts)
    if not len(used):
        return np.array([0.5, 1.0]), np.zeros(1, np.int64)
    edges = np.unique(np.concatenate(([0.5], np.arange(1, 8), np.round(2.0 ** (np.arange(12, 164) / 4)))))
    places = np.searchsorted(edges, bucket_begins()[used], "right") - 1
    places = np.maximum(places, 0)
    first, last = int(places.min()), int(places.max())
    joined = np.bincount(places - first, counts[used], last - first + 1).astype(np.int64)
    return edges[first : last + 2], joined


def draw_delays(report: Report) -> str:
    """Return a plot of the delay percentiles 50, 90, 99 and 99.9 of each topic."""
    shown = [topic for topic in report.topics if topic.delays_ms.p50 is not None][:_TOPICS_SHOWN]

    def draw(plot: _Plot) -> None:
        axes = plot.axes
        marks = (("p50", "50 %", 0.35), ("p90", "90 %", 0.55), ("p99", "99 %", 0.8), ("p999", "99.9 %", 1.0))
        for place, topic in enumerate(shown):
            values = [max(getattr(topic.delays_ms, name), 0.5) for name, _, _ in marks]
            axes.plot([values[0], values[-1]], [place, place], color=_GRID, linewidth=3, solid_capstyle="round")
            for value, (_, text, strength) in zip(values, marks, strict=True):
                dot = axes.plot([value], [place], "o", color=_SERIES[2], markersize=7, alpha=strength)[0]
                plot.tip(dot, f"{topic.topic}: {text} of the messages within {_milliseconds(value)}")
        for _, text, strength in marks:
            axes.plot([], [], "o", color=_SERIES[2], alpha=strength, label=text)
        axes.set_yticks(range(len(shown)), [_short(topic.topic) for topic in shown])
        axes.tick_params(axis="y", labelcolor=_INK)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _milliseconds(value)))
        axes.grid(visible=False, axis="y")
        plot.figure.legend(loc="outside upper right", ncols=4, fontsize=9.5, handletextpad=0.1)

    return _drawn("delays", 5.7, _ROW * max(len(shown), 4) + 0.9, "Delay percentiles by topic", draw)


def draw_queues(report: Report) -> str:
    """Return a heat map of the balance between each topic's queues: darker squares have more messages."""
    topics = [topic.topic for topic in report.topics[:_HEAT_TOPICS_MAX]]
    queues = [queue for queue in report.queues if queue.topic in topics and queue.queue_id < _HEAT_QUEUES_MAX]
    width = max((queue.queue_id for queue in queues), default=0) + 1

    def draw(plot: _Plot) -> None:
        axes = plot.axes
        totals = {topic: [queue.messages for queue in queues if queue.topic == topic] for topic in topics}
        for queue in queues:
            counts = totals[queue.topic]
            part = queue.messages * len(counts) / max(sum(counts), 1)
            place = topics.index(queue.topic)
            strength = min(0.12 + 0.44 * part, 1.0)
            cell = axes.barh(place, 0.92, 0.86, queue.queue_id - 0.46, color=_SERIES[3], alpha=strength)[0]
            gaps = f", {queue.missing:,} offsets missing" if queue.missing else ""
            tip = f"{queue.topic} / {queue.queue_id}: {queue.messages:,} messages, {part:.2f} of an even share{gaps}"
            plot.tip(cell, tip)
            if width <= _QUEUES_LABELLED_MAX:
                text = short_count(queue.messages) + (" !" if queue.missing or queue.repeated else "")
                axes.text(queue.queue_id, place, text, ha="center", va="center", fontsize=8.5, color=_INK)
        axes.set_xlim(-0.5, width - 0.5)
        axes.set_xticks(range(width))
        axes.xaxis.tick_top()
        axes.tick_params(axis="x", length=0)
        axes.set_yticks(range(len(topics)), [_short(topic) for topic in topics])
        axes.tick_params(axis="y", labelcolor=_INK)
        axes.set_ylim(len(topics) - 0.5, -0.5)
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)

    return _drawn("queues", 5.7, _ROW * max(len(topics), 4) + 0.5, "Messages of each queue", draw)


def _short(name: str, size: int = _NAME_MAX) -> str:
    """Return a name of at most this many characters, shortened in the middle, for an axis or a legend."""
    end = (size - 1) // 3
    name = name if len(name) <= size else f"{name[: size - 1 - end]}…{name[-end:]}"
    # Matplotlib would parse a dollar sign as the start of a formula.
    return name.replace("$", r"\$")


def _milliseconds(value: float) -> str:
    return "0" if value < 1 else duration_text(value / 1000)
