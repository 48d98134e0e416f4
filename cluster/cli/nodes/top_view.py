"""The view of `dledger top`: a heading and a table for each group, then as many consumer groups as fit.

Pure: from a sample and the size of the terminal to a renderable of rich.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.segment import Segment, SegmentLines
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from cluster.cli.nodes.top_samples import ConsumerRow, GroupRow, NodeRow, Sample

# The minimum width in columns for the addresses of nodes.
_WIDE: Final = 100
_FULL_RATIO: Final = 0.85
_STEPS: Final = ((1e9, "G"), (1e6, "M"), (1e4, "k"))


def tables(sample: Sample, width: int) -> RenderableType:
    """Return all tables of a sample, for a page of `width` columns."""
    blocks = [_group_block(group, width) for group in sample.groups]
    if sample.consumers:
        blocks.append(_consumer_block(sample.consumers))
    return Group(*blocks)


class Page:
    """A sample in a terminal of fixed size: the lines that fit, and a status line at the bottom.

    Args:
        console: console of the terminal.
        sample: the sample to show.
        first: number of lines scrolled off at the top; limited to the lines that do not fit.
        status: text of the status line.

    Attributes:
        first: the limited number of lines scrolled off at the top.
    """

    def __init__(self, console: Console, sample: Sample, first: int, status: str) -> None:
        width, height = console.size
        lines = console.render_lines(tables(sample, width), console.options.update(height=None))
        space = max(height - 1, 1)
        self.first = min(first, max(len(lines) - space, 0))
        shown = lines[self.first : self.first + space]
        shown += [[Segment(" " * width)]] * (space - len(shown))
        self._lines = SegmentLines(shown, new_lines=True)
        self._status = Text(status.ljust(width)[:width], style="reverse", no_wrap=True, end="")

    def renderable(self) -> RenderableType:
        """Return the object that rich prints."""
        return Group(self._lines, self._status)


def _group_block(group: GroupRow, width: int) -> RenderableType:
    leader = f"leader {group.leader}" if group.leader else "no leader"
    heading = Text.assemble(
        (f"{group.group}", "bold"),
        f"  term {group.term}  ",
        (leader, "" if group.leader else "bold red"),
        f"  appends {number(group.appends_per_s)}/s  {number(group.append_bytes_per_s)}B/s"
        f"  reads {number(group.reads_per_s)}/s",
    )
    heading.truncate(width, overflow="ellipsis")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("node", no_wrap=True)
    if width >= _WIDE:
        table.add_column("endpoint", no_wrap=True)
    table.add_column("role", no_wrap=True)
    for name in ("term", "last index", "lag", "reads/s", "disk"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state", overflow="fold")
    for node in group.nodes:
        table.add_row(*_node_cells(node, is_wide=width >= _WIDE))
    return Group(heading, table, "")


def _node_cells(node: NodeRow, *, is_wide: bool) -> tuple[str, ...]:
    disk = "-" if node.disk_used_ratio is None else f"{node.disk_used_ratio:.0%}"
    is_full = node.disk_used_ratio is not None and node.disk_used_ratio >= _FULL_RATIO
    colour = "red" if node.term is None or node.state.startswith("disk") else "yellow"
    return (
        escape(node.id),
        *((node.endpoint,) if is_wide else ()),
        f"[green]{node.role}[/]" if node.role == "LEADER" else node.role,
        _whole(node.term),
        _whole(node.last_index),
        _whole(node.lag_entries),
        number(node.reads_per_s),
        f"[red]{disk}[/]" if is_full else disk,
        "ok" if node.state == "ok" else f"[{colour}]{escape(node.state)}[/]",
    )


def _consumer_block(rows: tuple[ConsumerRow, ...]) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name in ("consumer group", "topic", "broker"):
        table.add_column(name, overflow="fold")
    for name in ("consumers", "lag", "commits/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            escape(row.consumer_group),
            escape(row.topic),
            escape(row.broker),
            str(row.consumers),
            str(row.lag),
            number(row.commits_per_s),
        )
    return table


def _whole(value: int | None) -> str:
    return "-" if value is None else str(value)


def number(value: float | None) -> str:
    """Format a rate in at most six characters; "-" if there is none yet."""
    if value is None:
        return "-"
    for step, unit in _STEPS:
        if value >= step:
            scale = 1e3 if unit == "k" else step
            return f"{value / scale:.1f}{unit}"
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
