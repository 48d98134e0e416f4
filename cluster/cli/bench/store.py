"""`dledger bench-store`: measure the message store in one process; prints a table, writes JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.bench.output import DEFAULT_FOLDER, JsonFile, Runs, chosen_parts, show_figures, table_of_targets
from cluster.cli.common import fail, notes

_PARTS = ("put", "dispatch", "get", "memory", "verify", "rebuild", "query", "open", "open-killed", "turn", "put-many")


def bench_store(
    parts: Annotated[
        list[str] | None, typer.Argument(metavar="[PART]...", help=f"Parts: {', '.join(_PARTS)}; default: all.")
    ] = None,
    runs: Runs = 3,
    size_mib: Annotated[int, typer.Option("--size", min=1, metavar="MIB", help="Size of the log.")] = 1024,
    body_size: Annotated[int, typer.Option("--body-size", min=0, metavar="BYTES", help="Size of a body.")] = 1024,
    index_items: Annotated[
        int, typer.Option("--index-items", min=1000, metavar="N", help="Items of the index file in query.")
    ] = 20_000_000,
    queues: Annotated[
        int,
        typer.Option("--queues", min=8, metavar="N", help="Number of queues in open, open-killed, turn and put-many."),
    ] = 16_000,
    folder: Annotated[
        Path,
        typer.Option("--folder", metavar="DIR", help="Directory for the results, and for the stores during the run."),
    ] = DEFAULT_FOLDER,
    json_file: JsonFile = None,
) -> None:
    """Measure the message store in one process.

    Parts: puts, dispatch, gets, verify, rebuild, queries by key, the memory of reading, and many queues.

    For every run the command writes a new store on the disk of --folder, and deletes it afterwards. It needs at most
    some 2.5 times --size. Puts are batches of 100 with TAGS and UNIQ_KEY to four queues; gets read 32 messages a call;
    flushes run in a thread, as with RocketMQ's ASYNC_FLUSH.

    Parts with many queues: open and open-killed are the seconds to open a store with --queues after a clean exit, or
    after a kill; turn is the longest pause of the event loop while each queue gets its first message; put-many is the
    99th percentile latency of durable puts to --queues in turn, as a multiple of that of 8 queues.

    Examples:
        dledger bench-store
        dledger bench-store open open-killed turn put-many --queues 10000
        dledger bench-store put get --size 256
        dledger bench-store query --runs 5 --json -
    """
    # Imported here: the store is slow to load.
    from cluster.bench.store import StoreBench
    from store.errors import StoreError

    chosen = chosen_parts(parts, _PARTS, "part")
    plan = StoreBench(folder, size_mib << 20, body_size, index_items, queues)
    try:
        with notes.status("") as line:
            figures = plan.measure(chosen, runs, line.update)
    except StoreError as error:
        fail(f"the benchmark failed: {error}")
    objects = [figure.as_object() for figure in figures]
    show_figures(table_of_targets(figures, plan.title), objects, folder, json_file, "store-")
