"""The plots of a measurement as SVG, the same bytes for the same points: no date, no version, no random ids.

One style: a white ground for print, curves that differ in colour, marker and dashes, every axis with its unit. A curve
is the median of the runs, and a bar at each point goes from the lowest to the highest. Text stays text.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from shape_figures import SHARES, by_x, latency_at, series_of, spread_of
from shape_views import VIEWS, View

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from shape_figures import Point

    Measure = Callable[[Point], float | None]
    Curve = tuple[str, Measure]

# Colours that people with any colour vision can distinguish (Okabe and Ito), from dark to light.
_COLORS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9")
_MARKERS: Final = ("o", "s", "^", "D", "v")
_DASHES: Final = ("-", "--", ":", "-.", (0, (5, 1)))
_STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "shape",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.5,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "figure.facecolor": "white",
    "legend.frameon": False,
    "legend.fontsize": 9,
}
# Above the highest value, for the legend.
_SPACE: Final = 1.15
_WIDTH: Final = 11.0
_HEIGHT: Final = 3.3
# A latency axis with ticks at 99 %, 99.9 % and so on: x = 1 / (1 - share).
_TAIL_SHARES: Final = tuple(share for share in SHARES if 0.5 <= share < 1)
_TARGET_PERCENT: Final = 50
_IDLE_TARGET_PERCENT: Final = 1.0

_LATENCIES: Final[tuple[Curve, ...]] = (
    ("p99.9", latency_at(0.999)),
    ("p99", latency_at(0.99)),
    ("p50", latency_at(0.5)),
)
_COSTS: Final[tuple[Curve, ...]] = (
    ("leader", lambda point: point.leader_us),
    ("each follower", lambda point: point.follower_us),
    ("client", lambda point: point.client_us),
)


def draw(name: str, points: Sequence[Point]) -> str:
    """Return the plot of an axis as SVG.

    Raises:
        KeyError: there is no such axis.
    """
    with mpl.rc_context(_STYLE):
        if name == "minutes":
            return _svg(_minutes(points), "Minutes of full load")
        if name == "idle":
            return _svg(_idle(points), "Nodes without requests")
        view = next((view for view in VIEWS if view.name == name), None)
        if view is None:
            raise KeyError(name)
        return _svg(_open_loop(view, points) if name == "open-loop" else _three(view, points), view.title)


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def _three(view: View, points: Sequence[Point]) -> Figure:
    """Return panels of rate, latency and CPU time."""
    figure, (rates, latencies, costs) = _panels(3)
    _curves(rates, view, points, (("", lambda point: point.messages_s),))
    rates.set_ylabel(view.rate)
    _curves(latencies, view, points, _LATENCIES)
    latencies.set_ylabel("latency, ms")
    _curves(costs, view, points, _COSTS)
    costs.set_ylabel(f"CPU time of {'a delivery' if view.name == 'consumers' else 'a message'}, µs")
    for axes in (latencies, costs):
        axes.set_yscale("log")
        _plain_ticks(axes)
    if view.name == "body":
        rates.set_yscale("log")
    else:
        rates.set_ylim(bottom=0)
    _plain_ticks(rates)
    return figure


def _curves(
    axes: Axes, view: View, points: Sequence[Point], curves: Sequence[Curve], series: str = "", *, first: int = 0
) -> None:
    """Draw one curve for each figure, over the values of the axis."""
    groups = by_x(points, series)
    places = _places(view, list(groups))
    for number, (label, figure) in enumerate(curves, start=first):
        found = [(place, spread_of(group, figure)) for place, group in zip(places, groups.values(), strict=True)]
        shown = [(place, spread) for place, spread in found if spread is not None]
        medians = [spread.median for _, spread in shown]
        bars = [[each.median - each.low for _, each in shown], [each.high - each.median for _, each in shown]]
        axes.errorbar(
            [place for place, _ in shown],
            medians,
            yerr=bars,
            label=label or None,
            capsize=2,
            **_look(number),
        )
    _label_values(axes, view, list(groups), places)
    if curves[0][0]:
        axes.legend()


def _look(number: int) -> dict[str, Any]:
    place = number % len(_COLORS)
    return {"color": _COLORS[place], "marker": _MARKERS[place], "linestyle": _DASHES[place]}


def _places(view: View, values: Sequence[float]) -> list[float]:
    return list(values) if view.scale == "log" else [float(number) for number in range(len(values))]


def _label_values(axes: Axes, view: View, values: Sequence[float], places: Sequence[float]) -> None:
    if view.scale == "log":
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(places, [view.text_of(value) for value in values])
    if len(values) > 4:
        axes.tick_params(axis="x", labelrotation=45)
    axes.set_xlabel(view.label)


def _plain_ticks(axes: Axes) -> None:
    """Write numbers instead of powers of ten, also between these."""
    if axes.get_yscale() == "log":
        axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5), numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _open_loop(view: View, points: Sequence[Point]) -> Figure:
    """Return panels of the latency for each rate, and of its distribution at half of the highest one."""
    names = series_of(points)
    figure, panels = _panels(len(names) + 1)
    for axes, name in zip(panels, names, strict=False):
        _curves(axes, view, points, _LATENCIES, name)
        axes.set_title(name)
        axes.set_ylabel("latency, ms")
        axes.set_yscale("log")
        _plain_ticks(axes)
    tail = panels[-1]
    places = [1 / (1 - share) for share in _TAIL_SHARES]
    for number, name in enumerate(names):
        chosen = [point for point in points if point.series == name and point.x == _TARGET_PERCENT]
        found = [spread_of(chosen, latency_at(share)) for share in _TAIL_SHARES]
        shown = [(place, spread.median) for place, spread in zip(places, found, strict=True) if spread is not None]
        tail.plot([place for place, _ in shown], [median for _, median in shown], label=name, **_look(number))
    tail.set_title(f"at {_TARGET_PERCENT} % of the highest rate")
    tail.set_xscale("log")
    tail.set_yscale("log")
    tail.xaxis.set_minor_locator(NullLocator())
    shown_shares = (0.5, 0.9, 0.99, 0.999, 0.9999)
    tail.set_xticks([1 / (1 - share) for share in shown_shares], [f"{share * 100:g}" for share in shown_shares])
    tail.set_xlabel("percentile")
    tail.set_ylabel("latency, ms")
    _plain_ticks(tail)
    tail.legend()
    return figure


def _minutes(points: Sequence[Point]) -> Figure:
    """Return panels of rate, latency and memory over time."""
    figure, (rates, latencies, memory) = _panels(3)
    minutes = [point.x for point in points]
    rates.plot(minutes, [point.messages_s for point in points], color=_COLORS[0])
    rates.set_ylabel("appends/s")
    for number, (label, figure_of) in enumerate(_LATENCIES):
        values = [value if (value := figure_of(point)) is not None else float("nan") for point in points]
        latencies.plot(minutes, values, label=label, color=_COLORS[number], linestyle=_DASHES[number])
    latencies.set_ylabel("latency, ms")
    latencies.set_yscale("log")
    for number in range(len(points[0].node_memory_mib)):
        label = f"follower {number}" if number else "leader"
        values = [point.node_memory_mib[number] for point in points]
        memory.plot(minutes, values, label=label, color=_COLORS[number % 5], linestyle=_DASHES[number % 5])
    memory.set_ylabel("memory without mapped files, MiB")
    for axes in (rates, memory):
        axes.set_ylim(0, axes.get_ylim()[1] * _SPACE)
    for axes in (rates, latencies, memory):
        axes.set_xlabel("time, minutes")
        axes.set_xlim(0, minutes[-1])
        _plain_ticks(axes)
    latencies.legend()
    memory.legend()
    return figure


def _idle(points: Sequence[Point]) -> Figure:
    """Return bars of the share of a core of each node."""
    figure = Figure(figsize=(_WIDTH / 2, _HEIGHT), layout="constrained")
    axes = figure.subplots()
    names: list[str] = []
    for number, point in enumerate(points):
        places = [float(len(names) + place) for place in range(len(point.node_cores))]
        percents = [cores * 100 for cores in point.node_cores]
        axes.bar(places, percents, width=0.6, color=_COLORS[number % 5], label=point.series or None)
        names += [f"follower {node}" if node else "leader" for node in range(len(point.node_cores))]
    axes.axhline(_IDLE_TARGET_PERCENT, color="#000000", linewidth=1, linestyle="--")
    axes.set_xticks(range(len(names)), names, rotation=30)
    axes.set_ylabel("share of a core, %")
    axes.set_ylim(0, max(_IDLE_TARGET_PERCENT, *(max(point.node_cores) * 100 for point in points)) * 1.25)
    axes.grid(visible=False, axis="x")
    axes.legend(ncols=2)
    return figure


def _svg(figure: Figure, title: str) -> str:
    content = io.StringIO()
    figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
    text = content.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    return text.replace("<svg ", '<svg role="img" ', 1).replace(">", f">\n <title>{title}</title>", 1)
