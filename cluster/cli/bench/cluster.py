"""`dledger bench`: measure a temporary cluster of three nodes, or given nodes; prints a table, writes JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.cli.bench.output import (
    DEFAULT_FOLDER,
    Flush,
    JsonFile,
    Runs,
    check_flush,
    chosen_parts,
    empty_table,
    show_figures,
)
from cluster.cli.common import DEFAULT_GROUP, EXIT_USAGE, Group, fail, notes
from dledger.allocator import keep_large_blocks

if TYPE_CHECKING:
    from rich.table import Table

    from cluster.bench.cluster import Bench, BenchSummary

_NAMES = ("sync1", "conc64", "batch100", "batch100x16", "batch1000x8", "failover")


def bench(
    workloads: Annotated[
        list[str] | None, typer.Argument(metavar="[WORKLOAD]...", help=f"Workloads: {', '.join(_NAMES)}; default: all.")
    ] = None,
    runs: Runs = 3,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="Duration of one run.")] = 3.0,
    body_size: Annotated[int, typer.Option("--body-size", min=0, metavar="BYTES", help="Size of an entry.")] = 1024,
    flush: Flush = "sync",
    folder: Annotated[
        Path,
        typer.Option(
            "--folder", metavar="DIR", help="Directory for the results, and for the nodes' data during the run."
        ),
    ] = DEFAULT_FOLDER,
    json_file: JsonFile = None,
    *,
    endpoints: Annotated[
        str, typer.Option("--endpoints", "-e", metavar="HOST:PORT,...", help="Measure these nodes instead.")
    ] = "",
    group: Group = DEFAULT_GROUP,
) -> None:
    """Measure throughput, latency, failover and memory.

    For every run the command starts three new nodes on this machine, with data on the disk of --folder, and deletes
    them afterwards. With --endpoints existing nodes are measured: their log GROWS by the appended entries, and no node
    is killed.

    Examples:
        dledger bench
        dledger bench conc64 batch100x16 --runs 5
        dledger bench sync1 --json -
    """
    # Imported here: clients and the local cluster are slow to load.
    from cluster.bench.cluster import Bench

    known = [name for name in _NAMES if not (endpoints and name == "failover")]
    if endpoints and "failover" in (workloads or ()):
        fail("failover kills nodes, so it runs only on a temporary cluster: omit --endpoints", EXIT_USAGE)
    chosen = chosen_parts(workloads, known, "workload")
    check_flush(flush)
    keep_large_blocks()
    summaries = _measure(Bench(folder, seconds, body_size, flush, endpoints, group), chosen, runs)
    objects = [summary.as_object() for summary in summaries]
    show_figures(_table(summaries), objects, folder, json_file, "")


def _measure(plan: Bench, chosen: list[str], runs: int) -> list[BenchSummary]:
    """Run the chosen workloads; end the command if nodes do not start or an append fails."""
    from cluster.bench.workloads import WORKLOADS
    from cluster.local.node import ClusterError
    from dledger.errors import DLedgerError

    by_name = {workload.name: workload for workload in WORKLOADS}
    summaries: list[BenchSummary] = []
    try:
        with notes.status("") as line:
            for name in chosen:
                summary = plan.summary_of(name)
                figures = plan.run_failovers(runs) if name == "failover" else plan.run(by_name[name], runs)
                for number in range(1, runs + 1):
                    line.update(f"{name}: run {number} of {runs}")
                    summary.runs.append(next(figures))
                figures.close()
                summaries.append(summary)
    except (DLedgerError, ClusterError, ValueError) as error:
        fail(f"the benchmark failed: {error}")
    return summaries


def _table(summaries: list[BenchSummary]) -> Table:
    flushes = {True: "fsync before acknowledgement", False: "no fsync before acknowledgement", None: "existing nodes"}
    size = summaries[0].body_size_bytes
    title = f"{size}-byte entries, {flushes[summaries[0].is_fsync]}; medians, spread of entries/s or of failover times"
    table = empty_table(title, "workload", ("entries/s", "spread", "target", "p50 ms", "p99 ms", "cpu s", "MiB"))
    for summary in summaries:
        table.add_row(*_row(summary))
    return table


def _row(summary: BenchSummary) -> tuple[str, ...]:
    figures = summary.as_object()
    return (
        summary.workload,
        _number(figures["ops_s"], 0),
        f"{_number(figures['lowest'], 0)} to {_number(figures['highest'], 0)}",
        _target(summary),
        _number(figures["p50_ms"], 2),
        _number(figures["p99_ms"], 2),
        _number(figures["cpu_s"], 1),
        _number(figures["rss_mb"], 0),
    )


def _target(summary: BenchSummary) -> str:
    if summary.target is None:
        return "-"
    return f"≤ {summary.target} ms" if summary.workload == "failover" else f"≥ {summary.target:,}"


def _number(value: object, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
