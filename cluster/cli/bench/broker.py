"""`dledger bench-broker`: measure a temporary broker of three nodes; prints a table, writes JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.bench.output import (
    DEFAULT_FOLDER,
    Flush,
    JsonFile,
    Runs,
    check_flush,
    chosen_parts,
    show_figures,
    table_of_targets,
)
from cluster.cli.common import fail, notes
from dledger.allocator import keep_large_blocks

_PARTS = (
    *("send1", "send64", "batch100", "batch100x16", "tail", "catch-up"),
    *("delays", "timers", "delay-late", "transactions", "pop", "put-many", "failover"),
)


def bench_broker(
    parts: Annotated[
        list[str] | None, typer.Argument(metavar="[PART]...", help=f"Parts: {', '.join(_PARTS)}; default: all.")
    ] = None,
    runs: Runs = 3,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="Duration of one run.")] = 3.0,
    body_size: Annotated[int, typer.Option("--body-size", min=1, metavar="BYTES", help="Size of a body.")] = 1024,
    size_mib: Annotated[
        int,
        typer.Option("--size", min=1, metavar="MIB", help="Size of the log in catch-up and failover."),
    ] = 1024,
    flush: Flush = "sync",
    folder: Annotated[
        Path,
        typer.Option(
            "--folder", metavar="DIR", help="Directory for the results, and for the nodes' data during the run."
        ),
    ] = DEFAULT_FOLDER,
    json_file: JsonFile = None,
    *,
    queues: Annotated[int, typer.Option("--queues", min=8, metavar="N", help="Queues of put-many.")] = 10_000,
    delayed: Annotated[int, typer.Option("--delayed", min=200, metavar="N", help="Backlog to deliver.")] = 100_000,
    popped: Annotated[int, typer.Option("--popped", min=200, metavar="N", help="Messages of pop.")] = 100_000,
) -> None:
    """Measure a broker of three nodes through its clients.

    Parts: puts, consumers that are up to date or catching up, and failover after a kill of the leader.

    For every run the command starts three new nodes on this machine, with data on the disk of --folder, and deletes
    them afterwards. They need up to some four times --size. Puts are measured with single messages of 1 and of 64
    callers, and with batches of 100 of 1 and of 16 callers. tail is the latency from send to consumer at 1,000 messages
    a second.

    put-many is the 99th percentile latency of puts to --queues in turn, 500 a second, as a multiple of that of 8 queues
    on the same nodes. It is measured for at least 20 seconds, after a warm-up of the same length.

    delays is the rate at which a broker delivers --delayed messages that became due while it was stopped; timers that
    of messages with times of their own; delay-late the p99 of the time from due to receipt, at 1,000 a second;
    transactions the commits of 256 callers; pop the rate at which 32 pop consumers take and acknowledge --popped ones.

    Examples:
        dledger bench-broker send64 tail
        dledger bench-broker put-many --queues 10000 --runs 1
    """
    # Imported here: clients and the local cluster are slow to load.
    from cluster.bench.broker import BrokerBench
    from cluster.local.node import ClusterError
    from dledger.errors import DLedgerError

    chosen = chosen_parts(parts, _PARTS, "part")
    check_flush(flush)
    keep_large_blocks()
    plan = BrokerBench(folder, seconds, body_size, flush, size_mib << 20, queues, delayed, popped)
    try:
        with notes.status("") as line:
            figures = plan.measure(chosen, runs, line.update)
    except (ClusterError, DLedgerError) as error:
        fail(f"the benchmark failed: {error}")
    objects = [figure.as_object() for figure in figures]
    show_figures(table_of_targets(figures, plan.title), objects, folder, json_file, "broker-")
