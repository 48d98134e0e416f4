"""Common code of the bench commands: selection of parts, output of figures."""

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
Runs = Annotated[int, typer.Option("--runs", min=1, help="Number of runs; the table has medians.")]
Flush = Annotated[str, typer.Option("--flush", metavar="sync|async", help="Flush mode of the temporary nodes.")]


def chosen_parts(asked: Sequence[str] | None, known: Sequence[str], what: str) -> list[str]:
    """Return the parts to measure, in the order of `known`; all if `asked` is empty.

    The command ends if a part is unknown.
    """
    unknown = [name for name in asked or () if name not in known]
    if unknown:
        fail(f"unknown {what} {unknown[0]!r}: choose from {', '.join(known)}", EXIT_USAGE)
    return [name for name in known if name in (asked or known)]


def check_flush(flush: str) -> None:
    """End the command unless `flush` is sync or async."""
    if flush not in ("sync", "async"):
        fail(f"--flush {flush}: expected sync or async", EXIT_USAGE)


def show_figures(
    table: Table, objects: Sequence[Mapping[str, object]], folder: Path, json_file: Path | None, prefix: str
) -> None:
    """Print the table, and write the same figures as JSON.

    Args:
        table: the table.
        objects: the JSON objects, written one a line.
        folder: folder of the new file if `json_file` is None.
        json_file: path of the file; `-`: standard output, and the table goes to standard error.
        prefix: prefix of the new file's name, before the time.
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
    typer.echo(f"the same figures as JSON lines: {file}")


def empty_table(title: str, first: str, others: Sequence[str]) -> Table:
    """Return a table without rows: a column of names, and columns of figures."""
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def table_of_targets(figures: Sequence[Figure], title: str) -> Table:
    """Return a table of figures with their targets."""
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
