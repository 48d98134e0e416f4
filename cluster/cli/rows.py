"""Rows of commands that list: a table that fits 80 columns, or one JSON object per row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from cluster.cli.common import output

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object a row instead of a table.")]
_NONE = "-"
# The longest numeric IPv4 address with port has 21 characters; longer texts may be wrapped.
_UNBROKEN_MAX = 40
# Wider than any table.
_ANY_WIDTH = 100_000

# The values of a row by their JSON names.
Row = Mapping[str, Any]


def print_rows(columns: Mapping[str, str], rows: Sequence[Row], *, as_json: bool) -> None:
    """Print rows.

    Args:
        columns: names of the values in a table, with their headings; JSON has all values of a row.
        rows: in the order of the output. In a table a list is joined with commas, and None is a dash.
        as_json: print JSON.
    """
    if as_json:
        for row in rows:
            typer.echo(json.dumps(dict(row), ensure_ascii=False))
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name, heading in columns.items():
        values = [row[name] for row in rows]
        is_number = all(isinstance(value, int) and not isinstance(value, bool) for value in values if value is not None)
        is_short = all(len(line) <= _UNBROKEN_MAX for value in values for line in _text(value).split("\n"))
        # A long name may be wrapped, but an address or a number that is broken in two cannot be copied.
        table.add_column(
            heading, justify="right" if is_number and values else "left", no_wrap=is_short, overflow="fold"
        )
    for row in rows:
        table.add_row(*(escape(_text(row[name])) for name in columns))
    show_table(table)


def show_table(table: Table) -> None:
    """Print a table; if the terminal is too narrow, print each row as lines of heading and value.

    The title is printed as a separate line, because a table would wrap it, and a path in it, at the table's width.
    """
    title, table.title = table.title, None
    if title:
        output.print(title, soft_wrap=True, highlight=False)
    if _fit(table):
        output.print(table)
        return
    headings = [str(column.header) for column in table.columns]
    width = max(map(len, headings))
    for row in zip(*(column.cells for column in table.columns), strict=True):
        for heading, cell in zip(headings, row, strict=True):
            output.print(f"{heading:<{width}}  ", cell, sep="", soft_wrap=True, highlight=False)
        output.print()


def _fit(table: Table) -> bool:
    """Set the column widths so that the table fits the terminal; return whether that is possible.

    No cell is cut or broken within a word. rich would do both: it uses the longest word of a column as its minimum
    width, even if the column must not wrap, and narrows the widest columns first, even below that.
    """
    options = output.options.update(width=_ANY_WIDTH)
    least, most = [], []
    for column in table.columns:
        cells = [output.measure(cell, options=options) for cell in (column.header, *column.cells)]
        most.append(max(cell.maximum for cell in cells))
        least.append(most[-1] if column.no_wrap else max(cell.minimum for cell in cells))
    borders = output.measure(table, options=options).maximum - sum(most)
    spare = output.width - borders - sum(least)
    if spare < 0:
        return False
    for column, low, high in zip(table.columns, least, most, strict=True):
        column.width = min(low + spare, high)
        spare -= column.width - low
    return True


def _text(value: Any) -> str:
    if value is None or value == []:
        return _NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return "\n".join(map(str, value))
    return str(value)
