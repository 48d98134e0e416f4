"""Common code of the bench commands: choosing the parts to measure, and writing the figures."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from cluster.cli.common import EXIT_USAGE, fail, notes, output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cluster.bench.store import Figure

DEFAULT_FOLDER = Path("bench")

JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="File of the JSON; - for standard output.")
]
Runs = Annotated[int, typer.Option("--runs", min=1, help="How often each is run; medians are shown.")]
Flush = Annotated[str, typer.Option("--flush", metavar="sync|async", help="How our own nodes flush.")]


def chosen_parts(asked: Sequence[str] | None, known: Sequence[str], what: str) -> list[str]:
    """Return the parts that are to be measured, in the order of `known`; all if none is asked for.

    End the command if one is not known.
    """
    unknown = [name for name in asked or () if name not in known]
    if unknown:
        fail(f"no {what} is called {unknown[0]!r}: choose from {', '.join(known)}", EXIT_USAGE)
    return [name for name in known if name in (asked or known)]


def check_flush(flush: str) -> None:
    """End the command if it is no way to flush."""
    if flush not in ("sync", "async"):
        fail(f"--flush {flush}: expected sync or async", EXIT_USAGE)


def show_figures(
    table: Table, objects: Sequence[Mapping[str, object]], folder: Path, json_file: Path | None, prefix: str
) -> None:
    """Print the table, and write the same as JSON.

    Args:
        table: for people.
        objects: the same for programs, one line each.
        folder: where a new file is made when none is named.
        json_file: the file's name; `-`: standard output, and the table goes to standard error.
        prefix: of the new file's name; the moment follows.
    """
    lines = "".join(json.dumps(each) + "\n" for each in objects)
    if str(json_file) == "-":
        notes.print(table)
        typer.echo(lines, nl=False)
        return
    output.print(table)
    folder.mkdir(parents=True, exist_ok=True)
    file = json_file or folder / f"{prefix}{datetime.now().astimezone():%Y-%m-%dT%H-%M-%S}.json"
    file.write_text(lines)
    typer.echo(f"the same as JSON, one object a line: {file}")


def empty_table(title: str, first: str, others: Sequence[str]) -> Table:
    """Return a table without rows: names on the left, figures on the right."""
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def table_of_targets(figures: Sequence[Figure], title: str) -> Table:
    """Return figures beside their targets."""
    table = empty_table(title, "figure", ("target", "median", "spread", "met"))
    for figure in figures:
        table.add_row(
            f"{figure.name}, {figure.target.unit}",
            f"{'≤' if figure.target.is_less_better else '≥'} {_number(figure.target.value)}",
            _number(figure.median),
            f"{_number(min(figure.runs))} to {_number(max(figure.runs))}",
            "yes" if figure.is_met else "no",
        )
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
