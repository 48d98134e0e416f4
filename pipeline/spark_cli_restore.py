"""`dledger spark restore` and `replay`: messages of an archive, or of another store, are put into topics again."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from cluster.cli_common import EXIT_USAGE, fail, notes, output
from pipeline.spark_cli_common import SinceOption, StoreArgument, TopicsOption, UntilOption, selection_of, told_errors
from pipeline.spark_cli_sql import is_endpoints

if TYPE_CHECKING:
    import pyarrow as pa

    from pipeline.restore import RestorePlan

TargetArgument = Annotated[
    str,
    typer.Argument(metavar="TARGET", help="host:port,... of brokers, or the directory of a new store."),
]
RenameOption = Annotated[
    list[str] | None, typer.Option("--rename", metavar="OLD=NEW", help="Of a topic; may be given several times.")
]
TransformOption = Annotated[
    str | None,
    typer.Option(
        "--transform",
        metavar="MODULE:FUNCTION",
        help="Gets batches of rows (pyarrow.RecordBatch), gives others.",
    ),
]
RateOption = Annotated[
    float | None, typer.Option("--rate", min=0.001, metavar="COUNT", help="Messages a second at most.")
]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Put nothing: tell what would be.")]
TableOption = Annotated[
    Path | None, typer.Option("--table", metavar="FILE", help="Write which old place became which new one (Parquet).")
]
OnceOption = Annotated[
    bool,
    typer.Option(help="Given again, store nothing twice; each message needs its UNIQ_KEY."),
]
QueuesOption = Annotated[bool, typer.Option("--any-queue", help="Queues in turn, not those of the same number.")]


def restore(
    lake: Annotated[str, typer.Argument(metavar="LAKE", help="A lake that `dledger spark archive` wrote.")],
    target: TargetArgument,
    *,
    log: Annotated[str | None, typer.Option("--log", metavar="NAME", help="Which, where there are several.")] = None,
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
    """Bring messages back from a lake: into topics of running brokers, or into a new store.

    Bodies, properties, keys, tags, times of birth and hosts are those of the archive; offsets and the time of storing
    are new, in a new store only where they must be. The topics must be there. The table says where each message went,
    so that progress of consumers can be carried over.

    Examples:
        dledger spark restore /lake 127.0.0.1:40921 --topic orders --dry-run
        dledger spark restore /lake 127.0.0.1:40921 --topic orders --rename orders=orders_again --rate 5000
        dledger spark restore /lake /data/new                a store that a broker, RocketMQ's too, can open
    """
    with told_errors():
        from pipeline.archived_rows import lake_rows  # noqa: PLC0415  # see `pipeline.spark_cli`
        from pipeline.lake import Lake  # noqa: PLC0415
        from pipeline.sink_options import lake_root  # noqa: PLC0415

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
    """Put messages of a store (ours, or RocketMQ's) into topics again, as `restore` does from a lake.

    Examples:
        dledger spark replay /data/n0 127.0.0.1:40921 --topic orders --since 2026-11-21T08:00 --until 2026-11-21T09:00
        dledger spark replay /old/rocketmq 127.0.0.1:40921 --transform my_fixes:mask_names --table moved.parquet
    """
    with told_errors():
        from pipeline.archived_rows import store_rows  # noqa: PLC0415  # see `pipeline.spark_cli`
        from pipeline.stores import open_store  # noqa: PLC0415

        plan = _plan(rename, transform, rate, is_queue_kept=not any_queue, is_dry=dry_run)
        with open_store(directory) as store:
            rows = store_rows(store, selection_of(topic, since, until))
            _put(rows, target, plan, table, is_exactly_once=exactly_once)


def _plan(
    rename: list[str] | None, transform: str | None, rate: float | None, *, is_queue_kept: bool, is_dry: bool
) -> RestorePlan:
    from pipeline.restore import RestorePlan  # noqa: PLC0415

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
    if not is_endpoints(target) and not plan.is_dry:
        _put_into_store(rows, target, plan)
        return
    from pipeline.log_writer import LogTarget  # noqa: PLC0415
    from pipeline.offset_table import OffsetTable  # noqa: PLC0415
    from pipeline.restore import Restored  # noqa: PLC0415
    from pipeline.restore import restore as put  # noqa: PLC0415

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=notes, transient=True) as progress:
        task = progress.add_task("")

        def show(done: Restored) -> None:
            progress.update(task, description=f"{done.rows or sum(done.by_queue.values()):,} messages")

        log_target = LogTarget(target, is_exactly_once=is_exactly_once)
        with ExitStack() as stack:
            offsets = None if table is None else OffsetTable(str(table))
            if offsets is not None:
                stack.callback(offsets.close)
            done = put(rows, log_target, plan, offsets, on_progress=show)
    verb = "would be put" if plan.is_dry else "were put"
    repeated = f"; {done.repeated_rows:,} had been put before" if done.repeated_rows else ""
    output.print(f"{done.rows:,} messages of {len(done.by_queue)} queues {verb}{repeated}", highlight=False)


def _put_into_store(rows: Iterable[pa.RecordBatch], root: str, plan: RestorePlan) -> None:
    from pipeline.restore_store import restore_store  # noqa: PLC0415

    if plan.topics or plan.rate:
        fail("--rename and --rate are for brokers; into a new store messages go as they are", EXIT_USAGE)
    count = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in rows:
            count += batch.num_rows
            yield batch

    restore_store(counted(), root, transform=plan.transform)
    output.print(
        f"{count:,} messages stand in {root}; `dledger verify {root}` checks it", highlight=False, markup=False
    )
