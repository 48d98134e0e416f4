"""`dledger spark restore` and `replay`: put messages of an archive, or of another store, into topics again."""

from __future__ import annotations

import importlib
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from cluster.cli.common import EXIT_USAGE, fail, notes, output
from pipeline.cli.common import (
    SinceOption,
    StoreArgument,
    TopicsOption,
    UntilOption,
    own_arguments,
    print_submit,
    reported_errors,
    selection_of,
)
from pipeline.cli.sql import is_endpoints
from pipeline.spark.session import LOCAL_MASTER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from pipeline.archive.restore import RestorePlan

TargetArgument = Annotated[
    str,
    typer.Argument(metavar="TARGET", help="host:port,... of brokers, or the directory of a new store."),
]
RenameOption = Annotated[
    list[str] | None, typer.Option("--rename", metavar="OLD=NEW", help="Rename a topic; may be given several times.")
]
TransformOption = Annotated[
    str | None,
    typer.Option(
        "--transform",
        metavar="MODULE:FUNCTION",
        help="A function that takes batches of rows (pyarrow.RecordBatch) and returns the rows to put.",
    ),
]
RateOption = Annotated[
    float | None, typer.Option("--rate", min=0.001, metavar="COUNT", help="At most this number of messages per second.")
]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Put nothing; print what would be put.")]
TableOption = Annotated[
    Path | None,
    typer.Option(
        "--table", metavar="FILE", help="Write the old and the new place of each message to this file (Parquet)."
    ),
]
OnceOption = Annotated[
    bool,
    typer.Option(help="Store no message twice if the command is repeated; each message needs its UNIQ_KEY."),
]
QueuesOption = Annotated[
    bool, typer.Option("--any-queue", help="Use all queues in turn instead of the queue with the same number.")
]


def restore(
    lake: Annotated[str, typer.Argument(metavar="LAKE", help="A lake that `dledger spark archive` wrote.")],
    target: TargetArgument,
    *,
    log: Annotated[
        str | None, typer.Option("--log", metavar="NAME", help="The log's name, if the lake has several.")
    ] = None,
    topic: TopicsOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    rename: RenameOption = None,
    transform: TransformOption = None,
    rate: RateOption = None,
    any_queue: QueuesOption = False,
    table: TableOption = None,
    exactly_once: OnceOption = True,
    dry_run: DryOption = False,
) -> None:
    """Put messages of a lake into topics, or into a new store.

    Bodies, properties, keys, tags and born times are those of the archive; offsets, hosts and store times are new (in a
    new store only if they have to be). The topics must exist. The file of --table holds the old and the new place of
    each message, so that consumer offsets can be converted.

    Examples:
        dledger spark restore /lake 127.0.0.1:20921 --topic orders --dry-run
        dledger spark restore /lake 127.0.0.1:20921 --topic orders --rename orders=orders_again --rate 5000
        dledger spark restore /lake /data/new                a store that a broker, RocketMQ's too, can open
    """
    with reported_errors():
        from pipeline.archive.archived_rows import lake_rows  # see `pipeline.cli.app`
        from pipeline.lake.lake import Lake
        from pipeline.sink.options import lake_root

        rows = lake_rows(Lake.open(lake_root(lake)), selection_of(topic, since, until), log)
        plan = _plan(rename, transform, rate, is_queue_kept=not any_queue, is_dry=dry_run)
        _put(rows, target, plan, table, is_exactly_once=exactly_once)


def replay(
    directory: StoreArgument,
    target: TargetArgument,
    *,
    topic: TopicsOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    rename: RenameOption = None,
    transform: TransformOption = None,
    rate: RateOption = None,
    any_queue: QueuesOption = False,
    table: TableOption = None,
    exactly_once: OnceOption = True,
    dry_run: DryOption = False,
) -> None:
    """Put messages of a store into topics again.

    The store is ours, or RocketMQ's. Everything else is as with `restore`, which reads a lake.

    Examples:
        dledger spark replay /data/n0 127.0.0.1:20921 --topic orders --since 2026-11-21T08:00 --until 2026-11-21T09:00
        dledger spark replay /old/rocketmq 127.0.0.1:20921 --transform my_fixes:mask_names --table moved.parquet
    """
    with reported_errors():
        from pipeline.archive.archived_rows import store_rows  # see `pipeline.cli.app`
        from pipeline.log.stores import open_store

        plan = _plan(rename, transform, rate, is_queue_kept=not any_queue, is_dry=dry_run)
        with open_store(directory) as store:
            rows = store_rows(store, selection_of(topic, since, until))
            _put(rows, target, plan, table, is_exactly_once=exactly_once)


def _plan(
    rename: list[str] | None, transform: str | None, rate: float | None, *, is_queue_kept: bool, is_dry: bool
) -> RestorePlan:
    from pipeline.archive.restore import RestorePlan

    topics = {}
    for text in rename or ():
        old, equals, new = text.partition("=")
        if not (old and equals and new):
            fail(f"--rename: expected OLD=NEW, found {text!r}", EXIT_USAGE)
        topics[old] = new
    function = None if transform is None else _function(transform)
    return RestorePlan(topics, function, rate, is_queue_kept, is_dry)


def _function(text: str) -> Callable[[Any], Any]:
    module, colon, name = text.partition(":")
    if not colon:
        fail(f"--transform: expected MODULE:FUNCTION, found {text!r}", EXIT_USAGE)
    try:
        found: Callable[[Any], Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        fail(f"--transform {text}: {error}; is the module in a folder of PYTHONPATH?", EXIT_USAGE)
    return found


def _put(
    rows: Iterable[pa.RecordBatch], target: str, plan: RestorePlan, table: Path | None, *, is_exactly_once: bool
) -> None:
    # On a cluster only the driver runs: one program puts all messages, in order.
    print_submit(own_arguments(), LOCAL_MASTER)
    if not is_endpoints(target) and not plan.is_dry:
        if plan.topics or plan.rate or table is not None or not plan.is_queue_kept:
            words = "--rename, --rate, --table and --any-queue are for brokers"
            fail(f"{words}; messages are copied into a new store unchanged", EXIT_USAGE)
        _put_into_store(rows, target, plan)
        return
    from pipeline.archive.offset_table import OffsetTable
    from pipeline.archive.restore import Restored
    from pipeline.archive.restore import restore as put
    from pipeline.sink.log_writer import LogTarget
    from pipeline.sink.options import parse_log_target

    options = {"endpoints": target, "exactlyOnce": str(is_exactly_once)}
    log_target = LogTarget() if plan.is_dry else parse_log_target(options)[0]
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=notes, transient=True) as progress:
        task = progress.add_task("")

        def show(done: Restored) -> None:
            progress.update(task, description=f"{done.rows or sum(done.by_queue.values()):,} messages")

        with ExitStack() as stack:
            offsets = None if table is None or plan.is_dry else OffsetTable(str(table))
            if offsets is not None:
                stack.callback(offsets.close)
            done = put(rows, log_target, plan, offsets, on_progress=show)
    verb = "would be put" if plan.is_dry else "were put"
    repeated = f"; {done.repeated_rows:,} had been put before" if done.repeated_rows else ""
    output.print(f"{done.rows:,} messages of {len(done.by_queue)} queues {verb}{repeated}", highlight=False)


def _put_into_store(rows: Iterable[pa.RecordBatch], root: str, plan: RestorePlan) -> None:
    from pipeline.archive.restore_store import restore_store

    count = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in rows:
            count += batch.num_rows
            yield batch

    restore_store(counted(), root, transform=plan.transform)
    output.print(f"{count:,} messages are in {root}; `dledger verify {root}` checks it", highlight=False, markup=False)
