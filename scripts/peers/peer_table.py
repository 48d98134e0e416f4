"""The result as text: Markdown tables that also fit a terminal of 100 columns, and the reasons of blanks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from peer_figures import FAILOVER, OURS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from peer_figures import Comparison, Sample, Spread

WIDTH: Final = 100
_NONE: Final = "-"
_HEADS: Final = ("workload", "system", "bodies/s", "ours / it", "p50 ms", "nodes", "client")
_THOUSANDS_FROM: Final = 10_000


def figures_table(comparison: Comparison, systems: Sequence[str], workloads: Sequence[str]) -> str:
    """Return a row for each workload and system; CPU time is in ms for 1,000 bodies."""
    rows = [
        (workload if system == systems[0] else "", *_row(comparison, system, workload))
        for workload in workloads
        for system in systems
    ]
    return markdown(_HEADS, rows, right_from=2)


def _row(comparison: Comparison, system: str, workload: str) -> tuple[str, ...]:
    def middle(figure: str, factor: float = 1.0) -> str:
        spread = comparison.spread(system, workload, lambda sample: _value(sample, figure))
        return _NONE if spread is None else short(spread.median * factor)

    main = comparison.spread(system, workload, lambda sample: sample.figure)
    ratio = None if system == OURS else comparison.ratio(system, workload)
    shown = seconds(main) if workload == FAILOVER else rate(main)
    if workload == FAILOVER:
        return system, shown, ratio_text(ratio), "", "", ""
    return system, shown, ratio_text(ratio), middle("p50_ms"), middle("node_cpu_s", 1e3), middle("client_cpu_s", 1e3)


def _value(sample: Sample, figure: str) -> float | None:
    value: float | None = getattr(sample, figure)
    return value


def rate(spread: Spread | None) -> str:
    """Return a rate with its spread, from 10,000 on in thousands."""
    if spread is None:
        return _NONE
    if spread.median < _THOUSANDS_FROM:
        return f"{spread.median:,.0f} ({spread.low:,.0f}-{spread.high:,.0f})"
    return f"{spread.median / 1e3:.1f}k ({spread.low / 1e3:.1f}-{spread.high / 1e3:.1f})"


def seconds(spread: Spread | None) -> str:
    """Return seconds with their spread."""
    return _NONE if spread is None else f"{spread.median:.2f} s ({spread.low:.2f}-{spread.high:.2f})"


def ratio_text(spread: Spread | None) -> str:
    """Return a ratio with its spread."""
    if spread is None:
        return _NONE
    return f"{short(spread.median)} ({short(spread.low)}-{short(spread.high)})"


def short(value: float) -> str:
    """Return a number with about three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def systems_table(systems: Mapping[str, tuple[str, str]]) -> str:
    """Return a row for each system: its version, and the event after which it acknowledges."""
    rows = [(name, title, acknowledges) for name, (title, acknowledges) in systems.items()]
    return markdown(("system", "version", "acknowledges after"), rows, right_from=3)


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], right_from: int) -> str:
    """Return a table whose columns have equal widths; those from `right_from` on are aligned to the right."""
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    rule = ["-" * width if column < right_from else "-" * (width - 1) + ":" for column, width in enumerate(widths)]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if column < right_from else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return f"| {' | '.join(padded)} |"

    return "\n".join(map(line, (heads, rule, *rows)))
