"""`dledger bench-store`: measure the message store in one process; a table for people, JSON for programs."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from cluster.cli_common import EXIT_USAGE, fail, notes, output

if TYPE_CHECKING:
    from cluster.bench_store import Figure

_PARTS = ("put", "dispatch", "get", "memory", "verify", "rebuild", "query")


def bench_store(
    parts: Annotated[
        list[str] | None, typer.Argument(metavar="[PART]...", help=f"Which of {', '.join(_PARTS)}; or all.")
    ] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, help="How often each is run; medians are shown.")] = 3,
    size_mib: Annotated[
        int, typer.Option("--size", min=1, metavar="MIB", help="Size of the log that is written and read.")
    ] = 1024,
    body_size: Annotated[int, typer.Option("--body-size", min=0, metavar="BYTES", help="Size of a body.")] = 1024,
    index_items: Annotated[
        int, typer.Option("--index-items", min=1000, metavar="N", help="Items of the full index file of query.")
    ] = 20_000_000,
    folder: Annotated[
        Path, typer.Option("--folder", metavar="DIR", help="Where results, and the stores meanwhile, go.")
    ] = Path("bench"),
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Where the JSON goes instead; - for standard output.")
    ] = None,
) -> None:
    """Measure puts, dispatch, gets, verify, rebuild, queries by key, and the memory of reading.

    Writes a store of its own on the disk of --folder, a new one for every run, and removes it afterwards: some 2.5
    times --size at most. Puts go in batches of 100 with TAGS and UNIQ_KEY into four queues, gets in calls of 32, and
    flushes run beside them in a thread, as with RocketMQ's ASYNC_FLUSH.

    Examples:
        dledger bench-store
        dledger bench-store put get --size 256
        dledger bench-store query --runs 5 --json -
    """
    # Only now: what it measures takes a while to load.
    from cluster.bench_store import StoreBench  # noqa: PLC0415
    from store.errors import StoreError  # noqa: PLC0415

    chosen = [part for part in _PARTS if part in (parts or _PARTS)]
    unknown = [part for part in parts or () if part not in _PARTS]
    if unknown:
        fail(f"no part is called {unknown[0]!r}: choose from {', '.join(_PARTS)}", EXIT_USAGE)
    plan = StoreBench(folder, size_mib << 20, body_size, index_items)
    try:
        with notes.status("") as line:
            figures = plan.measure(chosen, runs, line.update)
    except StoreError as error:
        fail(f"the bench was given up: {error}")
    lines = "".join(json.dumps(figure.as_object()) + "\n" for figure in figures)
    if str(json_file) == "-":
        notes.print(table_of(figures, plan.title))
        typer.echo(lines, nl=False)
        return
    output.print(table_of(figures, plan.title))
    folder.mkdir(parents=True, exist_ok=True)
    file = json_file or folder / f"store-{datetime.now().astimezone():%Y-%m-%dT%H-%M-%S}.json"
    file.write_text(lines)
    typer.echo(f"the same as JSON, one object a figure: {file}")


def table_of(figures: list[Figure], title: str) -> Table:
    """Return figures beside their targets."""
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("figure", no_wrap=True)
    for name in ("target", "median", "spread", "met"):
        table.add_column(name, justify="right", no_wrap=True)
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
