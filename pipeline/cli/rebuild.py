"""`dledger spark rebuild`: rebuilds consume queues and index in parallel, or checks them against the log."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.cli.common import fail, notes, output
from pipeline.cli.common import (
    ConfOption,
    MasterOption,
    StoreArgument,
    command_session,
    reported_errors,
)
from pipeline.common.errors import BadOption
from pipeline.spark.session import LOCAL_MASTER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from commitlog.offline.rebuild import Rebuilt
    from pipeline.rebuild.rebuild import Difference

_SHOWN_MAX = 20


def rebuild(
    directory: StoreArgument,
    *,
    verify: Annotated[bool, typer.Option("--verify", help="Change nothing; compare with the present files.")] = False,
    keep_old: Annotated[bool, typer.Option("--keep-old", help="Keep the old files in rebuild.old/.")] = False,
    scratch: Annotated[
        str | None,
        typer.Option(
            "--scratch", metavar="DIR", help="Folder for the files that --verify builds; default: beside the store."
        ),
    ] = None,
    master: MasterOption = LOCAL_MASTER,
    conf: ConfOption = None,
) -> None:
    """Rebuild the consume queues and the key index in parallel.

    The store must not be in use. The result is byte for byte that of `dledger rebuild`; if the command is interrupted,
    the store has its old queues and index or the new ones, and the command can be repeated. With --verify nothing is
    changed, and the exit code is 1 if a file differs.

    Examples:
        dledger spark rebuild /data/n0
        dledger spark rebuild /data/n0 --verify --scratch /fast/disk
    """
    with reported_errors():
        from pipeline.log.stores import open_store
        from pipeline.rebuild.rebuild import rebuild_store, verify_store  # see `pipeline.cli.app`
        from pipeline.spark.jobs import run_each
        from pipeline.spark.progress import shown_progress

        if scratch is not None and not Path(scratch).is_dir():
            raise BadOption("--scratch", "a folder that exists", scratch, "Create it, or omit the option")
        with open_store(directory) as view:
            size = view.size
        with command_session("rebuild", master, conf) as spark, shown_progress(spark, "building", size):
            in_tasks = partial(run_each, spark)
            began = time.monotonic()
            if verify:
                _print_differences(verify_store(directory, in_tasks, scratch=scratch))
            else:
                _print_rebuilt(rebuild_store(directory, in_tasks, is_old_kept=keep_old), size, time.monotonic() - began)


def _print_differences(differences: Sequence[Difference]) -> None:
    for difference in differences[:_SHOWN_MAX]:
        where = f" at byte {difference.position}" if difference.position >= 0 else ""
        output.print(f"{difference.path}{where}: {difference.found}", highlight=False, markup=False)
    if differences:
        fail(f"{len(differences)} files differ; without --verify the command rebuilds them")
    output.print("queues and index agree with the log", highlight=False)


def _print_rebuilt(rebuilt: Rebuilt, size: int, elapsed_s: float) -> None:
    for note in rebuilt.notes[:_SHOWN_MAX]:
        notes.print(f"dledger: {note}", highlight=False, markup=False, soft_wrap=True)
    rate = size / max(elapsed_s, 1e-9) / 1e6
    text = f"{rebuilt.messages:,} messages, {rebuilt.queues:,} queues, {elapsed_s:.1f} s ({rate:,.0f} MB/s)"
    output.print(text, highlight=False)
