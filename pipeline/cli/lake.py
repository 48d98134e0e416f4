"""`dledger spark lake`: joins, deletes, checks and converts the files of a lake. These commands need no Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from cluster.cli.common import fail, help_of, notes, output
from pipeline.cli.common import reported_errors

LakeArgument = Annotated[str, typer.Argument(metavar="LAKE", help="The lake's directory.")]

lake_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def optimize(
    lake: LakeArgument,
    *,
    target_mib: Annotated[
        int, typer.Option("--target", min=1, metavar="MIB", help="Join files up to about this size.")
    ] = 256,
) -> None:
    """Join the small files of a lake, in one commit.

    Files of the same topic, day and log are joined; queries see the same rows before and after. The replaced files are
    kept for queries that began earlier, until `vacuum` deletes them. It may run while messages are written to the lake.

    Examples:
        dledger spark lake optimize /lake
        dledger spark lake optimize /lake --target 1024
    """
    with reported_errors():
        from pipeline.lake.lake import Lake  # see `pipeline.cli.app`
        from pipeline.lake.maintenance import optimize as join

        done = join(Lake.open(_root(lake)), target_size_bytes=target_mib << 20)
        text = f"{done.removed:,} files were joined to {done.added:,}" if done.removed else "no small files to join"
        output.print(text, highlight=False)


def vacuum(
    lake: LakeArgument,
    *,
    age_h: Annotated[
        int,
        typer.Option("--older-than", metavar="HOURS", help="Keep files that are younger, or were in use since then."),
    ] = 168,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing; print what would be deleted.")] = False,
) -> None:
    """Delete files of a lake that are not in use.

    These are files that `optimize`, or a delete by another Delta program, has replaced, and files of attempts that were
    never committed. Old entries of the transaction log are deleted, too. At least 24 hours: a query may be about to
    commit a younger file. It may run while messages are written to the lake.

    Examples:
        dledger spark lake vacuum /lake --dry-run
        dledger spark lake vacuum /lake --older-than 48
    """
    with reported_errors():
        from pipeline.lake.lake import Lake  # see `pipeline.cli.app`
        from pipeline.lake.maintenance import clean_log
        from pipeline.lake.maintenance import vacuum as delete

        opened = Lake.open(_root(lake))
        for path in (deleted := delete(opened, age_h=age_h, is_dry=dry_run)):
            output.print(path, highlight=False, markup=False, soft_wrap=True)
        if not dry_run:
            clean_log(opened)
        notes.print(f"dledger: {len(deleted):,} files {'would be' if dry_run else 'were'} deleted", highlight=False)


def verify(
    lake: LakeArgument,
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Check files and pages only; do not rebuild the records.")
    ] = False,
) -> None:
    """Check every file of a lake; exit with 1 if one is damaged.

    The checksum of each page is compared, and the records of an archive are rebuilt and compared with the checksum that
    the file has of them. A damaged file is printed with what was expected and found.

    Examples:
        dledger spark lake verify /lake
        dledger spark lake verify /lake --quick
    """
    with reported_errors():
        from pipeline.lake.lake import Lake  # see `pipeline.cli.app`
        from pipeline.lake.maintenance import verify as check

        opened = Lake.open(_root(lake))
        files = opened.files()
        for finding in (faults := list(check(opened, is_deep=not quick))):
            output.print(str(finding), highlight=False, markup=False, soft_wrap=True)
    if faults:
        remedy = "Restore the files, or archive their range again"
        fail(f"{lake}: expected no fault in {len(files):,} files, found {len(faults):,}. {remedy}")
    output.print(f"{len(files):,} files of {sum(file.rows for file in files):,} rows are intact", highlight=False)


def convert(lake: LakeArgument) -> None:
    """Convert a lake of an older version, in place.

    Lakes were of three kinds, and manifests listed their files; now each is a Delta table. Data files are not written
    again. Nothing else may write to the lake meanwhile. If it is interrupted, repeat it. What the older version needed
    is moved to the folder `_converted`, which may be deleted after `verify` has found no fault.

    Example:
        dledger spark lake convert /lake
    """
    with reported_errors():
        from pipeline.common.figures import bytes_text  # see `pipeline.cli.app`
        from pipeline.lake.conversion import convert as work

        done = work(_root(lake))
        text = f"{lake} is a Delta table of {done.files:,} files, {done.rows:,} rows, {bytes_text(done.size_bytes)}"
        output.print(text, highlight=False, markup=False, soft_wrap=True)


def _root(lake: str) -> str:
    from pipeline.sink.options import lake_root

    return lake_root(lake)


for command in (optimize, vacuum, verify, convert):
    lake_app.command(help=help_of(command))(command)


def lake() -> None:
    """Maintain a lake: join, delete, check, convert.

    A lake is a Delta table of messages, written by `dledger spark archive` or a query. Other Delta programs may
    maintain it as well.

    Examples:
        dledger spark lake optimize /lake            join small files
        dledger spark lake vacuum /lake --dry-run    list files that are not in use
        dledger spark lake verify /lake              check every file
    """


lake_app.callback(help=help_of(lake))(lake)
