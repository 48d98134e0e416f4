"""`dledger bench-broker`: measure a broker of three nodes of its own; a table for people, JSON for programs."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from cluster.cli_bench_store import table_of
from cluster.cli_common import EXIT_USAGE, fail, notes, output

_PARTS = ("send1", "send64", "batch100", "batch100x16", "tail", "catch-up", "failover")


def bench_broker(
    parts: Annotated[
        list[str] | None, typer.Argument(metavar="[PART]...", help=f"Which of {', '.join(_PARTS)}; or all.")
    ] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, help="How often each is run; medians are shown.")] = 3,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="How long one run is measured.")] = 3.0,
    body_size: Annotated[int, typer.Option("--body-size", min=1, metavar="BYTES", help="Size of a body.")] = 1024,
    size_mib: Annotated[
        int,
        typer.Option("--size", min=1, metavar="MIB", help="Log that is read by catch-up, and is there at failover."),
    ] = 1024,
    flush: Annotated[str, typer.Option("--flush", metavar="sync|async", help="How the nodes flush.")] = "sync",
    folder: Annotated[
        Path, typer.Option("--folder", metavar="DIR", help="Where results, and the nodes' data meanwhile, go.")
    ] = Path("bench"),
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Where the JSON goes instead; - for standard output.")
    ] = None,
) -> None:
    """Measure a broker through its clients: puts, consumers at the end and catching up, a killed leader.

    Starts three nodes on this machine with data on the disk of --folder, new ones for every run, and removes them
    afterwards: up to some four times --size. Puts go one at a time from 1 and from 64 callers, and in batches of 100
    by 1 and by 16; tail is the time from sending to a consumer at 1,000 messages a second.

    Examples:
        dledger bench-broker
        dledger bench-broker send64 tail --runs 5
        dledger bench-broker failover --size 64 --json -
    """
    # Only now: clients and the starter of nodes take a while to load.
    from cluster.bench_broker import BrokerBench  # noqa: PLC0415
    from cluster.local_node import ClusterError  # noqa: PLC0415
    from dledger.errors import DLedgerError  # noqa: PLC0415

    unknown = [part for part in parts or () if part not in _PARTS]
    if unknown:
        fail(f"no part is called {unknown[0]!r}: choose from {', '.join(_PARTS)}", EXIT_USAGE)
    if flush not in ("sync", "async"):
        fail(f"--flush {flush}: expected sync or async", EXIT_USAGE)
    plan = BrokerBench(folder, seconds, body_size, flush, size_mib << 20)
    try:
        with notes.status("") as line:
            figures = plan.measure([part for part in _PARTS if part in (parts or _PARTS)], runs, line.update)
    except (ClusterError, DLedgerError) as error:
        fail(f"the bench was given up: {error}")
    lines = "".join(json.dumps(figure.as_object()) + "\n" for figure in figures)
    if str(json_file) == "-":
        notes.print(table_of(figures, plan.title))
        typer.echo(lines, nl=False)
        return
    output.print(table_of(figures, plan.title))
    folder.mkdir(parents=True, exist_ok=True)
    file = json_file or folder / f"broker-{datetime.now().astimezone():%Y-%m-%dT%H-%M-%S}.json"
    file.write_text(lines)
    typer.echo(f"the same as JSON, one object a figure: {file}")
