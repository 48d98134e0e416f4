"""The tables of a measurement as Markdown: medians of the runs, with the lowest and the highest rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shape_figures import by_x, drift, latency_at, series_of, spread_of
from shape_views import VIEWS, View

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shape_figures import Point
    from shape_results import Results

NODES_RATIO_TARGET: Final = 1.6
IDLE_TARGET_PERCENT: Final = 1.0
IMAGES: Final = "images"
_LATENCY_SHARES: Final = (0.5, 0.99, 0.999)


def number_text(value: float | None) -> str:
    """Return a figure with three digits, or all digits before the point; `-`: there is none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def image_of(name: str) -> str:
    """Return the name of the picture of an axis."""
    return f"shape-{name}.svg"


def page_of(results: Results) -> str:
    """Return the text of all axes that have points: headings, pictures and tables."""
    parts = [
        _section(view.title, view.note, view.name, results, _table(view, points))
        for view in VIEWS
        if (points := results.points.get(view.name))
    ]
    if points := results.points.get("minutes"):
        note = "64 callers, bodies of 1 KiB, three nodes, in windows of some seconds."
        parts.append(_section("Minutes of full load", note, "minutes", results, _minutes_table(points)))
    if points := results.points.get("idle"):
        note = f"Target: at most {IDLE_TARGET_PERCENT:g} % of a core for each node."
        parts.append(_section("Nodes without requests", note, "idle", results, _idle_table(points)))
    return "\n\n".join(parts)


def _section(title: str, note: str, name: str, results: Results, table: str) -> str:
    settings = results.settings[name]
    others = spread_of(results.points[name], lambda point: point.other_cores)
    busy = ""
    if others:
        busy = f"; other programs used {others.median:.1f} (at most {others.high:.1f}) of {settings['cores']} cores"
    failure = f"\n\nThis axis did not end: {results.failures[name].splitlines()[0]}" if name in results.failures else ""
    measured = f"Measured on {settings['date']}{busy}."
    return f"### {title}\n\n{note} {measured}\n\n![{title}]({IMAGES}/{image_of(name)})\n\n{table}{failure}"


def _rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *(["---:"] * (len(header) - 1))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))


_SPREAD: Final = "lowest to highest"


def _table(view: View, points: Sequence[Point]) -> str:
    """Return a row for each value: rate, latencies, and CPU time by process."""
    header = [view.first_column, view.rate, _SPREAD]
    header += ["p50, ms", "p99, ms", "p99.9, ms", "leader, µs", "each follower, µs", "client, µs", "all nodes, µs"]
    if view.name == "body":
        header.insert(2, "MB/s")
    rows = []
    for series in series_of(points):
        for x, group in by_x(points, series).items():
            name = f"{series}, {view.text_of(x)}" if series else view.text_of(x)
            rows.append([name, *_row(group)])
            if view.name == "body":
                rates = _median(group, lambda point: point.messages_s * point.x / 1e6)
                rows[-1].insert(2, number_text(rates))
    if all(row[header.index(_SPREAD)] == "-" for row in rows):
        # One run of each point.
        at = header.index(_SPREAD)
        header, rows = [*header[:at], *header[at + 1 :]], [[*row[:at], *row[at + 1 :]] for row in rows]
    lines = [_rows(header, rows)]
    if elections := sum(point.elections for point in points):
        lines.append(f"Elections during these measurements: {elections}. CPU times by process are then not exact.")
    if view.name == "nodes" and (ratio := nodes_ratio(points)) is not None:
        lines.append(
            f"Five nodes use {ratio:.2f} times the CPU time of three for a message, the client not included "
            f"(target: at most {NODES_RATIO_TARGET:g})."
        )
    return "\n\n".join(lines)


def _row(group: Sequence[Point]) -> list[str]:
    rates = spread_of(group, lambda point: point.messages_s)
    low_high = f"{number_text(rates.low)} to {number_text(rates.high)}" if rates and len(group) > 1 else "-"
    latencies = [_median(group, latency_at(share)) for share in _LATENCY_SHARES]
    costs: list[Callable[[Point], float | None]] = [
        lambda point: point.leader_us,
        lambda point: point.follower_us,
        lambda point: point.client_us,
        lambda point: point.nodes_us,
    ]
    return [
        number_text(rates.median if rates else None),
        low_high,
        *map(number_text, latencies),
        *(number_text(_median(group, cost)) for cost in costs),
    ]


def _median(group: Sequence[Point], figure: Callable[[Point], float | None]) -> float | None:
    spread = spread_of(group, figure)
    return spread.median if spread else None


def nodes_ratio(points: Sequence[Point]) -> float | None:
    """Return the CPU time of a message on five nodes as a multiple of that on three; None: not measured."""
    groups = by_x(points)
    five, three = (_median(groups.get(float(nodes), []), lambda point: point.nodes_us) for nodes in (5, 3))
    return five / three if five and three else None


def _minutes_table(points: Sequence[Point]) -> str:
    """Return the changes under load: rate, latency, CPU time and memory in its first and its last quarter."""
    quarter = max(len(points) // 4, 1)
    first, last = points[:quarter], points[-quarter:]
    figures: list[tuple[str, Callable[[Point], float | None]]] = [
        ("appends/s", lambda point: point.messages_s),
        ("p99, ms", latency_at(0.99)),
        ("CPU time of all nodes for a message, µs", lambda point: point.nodes_us),
        ("memory of the leader, MiB", lambda point: point.node_memory_mib[0]),
        ("memory of a follower, highest, MiB", lambda point: max(point.node_memory_mib[1:], default=None)),
    ]
    rows = []
    for label, figure in figures:
        change = drift(points, figure)
        shown = "-" if change is None else f"{change * 100:+.1f} %"
        rows.append([label, number_text(_median(first, figure)), number_text(_median(last, figure)), shown])
    table = _rows(["figure, median of the windows", "first quarter", "last quarter", "change"], rows)
    elections = sum(point.elections for point in points)
    return f"{table}\n\n{points[-1].x:.1f} minutes; elections: {elections}."


def _idle_table(points: Sequence[Point]) -> str:
    rows = []
    for point in points:
        shares = [f"{cores * 100:.2f} %" for cores in point.node_cores]
        memory = ", ".join(number_text(each) for each in point.node_memory_mib)
        is_met = max(point.node_cores) * 100 <= IDLE_TARGET_PERCENT
        rows.append([point.series, shares[0], ", ".join(shares[1:]), memory, "yes" if is_met else "no"])
    return _rows(["nodes of a", "leader, of a core", "followers, of a core", "memory, MiB", "target met"], rows)
