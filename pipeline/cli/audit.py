"""`dledger spark audit`: compares the replicas of a log and checks their checksums."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from cluster.cli.common import EXIT_FAILED, notes, output
from cluster.cli.rows import show_table
from pipeline.cli.common import ConfOption, MasterOption, check_output, command_session, reported_errors
from pipeline.spark.session import LOCAL_MASTER

if TYPE_CHECKING:
    from pipeline.audit.run import Audit

_SHOWN_MAX = 50


def audit(
    replicas: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR...", help="The directory of each replica; of a single one, only checksums are checked."
        ),
    ],
    *,
    checksums: Annotated[
        bool,
        typer.Option(help="Also check the checksums of records, to find damage that all replicas share."),
    ] = True,
    figures: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all findings to this file, as JSON.")
    ] = None,
    master: MasterOption = LOCAL_MASTER,
    conf: ConfOption = None,
) -> None:
    """Compare the replicas of a log, and check their checksums.

    Finds flipped bits, the first entry at which two replicas differ, and missing entries. Every range of the log is
    read on every replica and compared by its digest; if digests differ, each entry is compared. If the commit index is
    known, differences after it are no errors. Nothing is changed. The exit code is 1 if there was an error. Audit
    copies of the files, or nodes that are stopped.

    Examples:
        dledger spark audit /data/n0 /data/n1 /data/n2
        dledger spark audit /data/n0 /data/n1 --json audit.json || echo look at audit.json
        dledger spark audit /backup/n0                       check a backup
    """
    check_output("--json", figures)
    with reported_errors():
        from pipeline.audit.replica import open_replicas  # see `pipeline.cli.app`
        from pipeline.audit.run import run_audit
        from pipeline.spark.jobs import run_each
        from pipeline.spark.progress import shown_progress

        opened = open_replicas(replicas)
        size = sum(replica.end - replica.begin for replica in opened)
        with command_session("audit", master, conf) as spark, shown_progress(spark, "comparing", size):
            started = time.monotonic()
            done = run_audit(opened, is_checked=checksums, runner=partial(run_each, spark))
            elapsed_s = time.monotonic() - started
        if figures is not None:
            figures.write_text(json.dumps(done.to_json(), indent=1) + "\n")
    _print_result(done, elapsed_s)
    if done.errors:
        raise typer.Exit(EXIT_FAILED)


def _print_result(done: Audit, elapsed_s: float) -> None:
    """Print the result."""
    rate = done.size_bytes / max(elapsed_s, 1e-9) / 1e6
    title = f"{len(done.replicas)} replicas, {done.size_bytes / 1e6:,.1f} MB, {elapsed_s:.1f} s ({rate:,.0f} MB/s)"
    if not done.findings and not done.unexamined:
        output.print(f"{title}: all replicas are identical and intact", highlight=False)
        return
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left")
    for name in ("what", "replica", "entry", "offset", "where, expected, found"):
        table.add_column(name, overflow="fold")
    for finding in done.findings[:_SHOWN_MAX]:
        where = f"{finding.path} at byte {finding.position}: " if finding.path else ""
        table.add_row(
            f"[{'red' if finding.is_error else 'yellow'}]{finding.kind}[/]",
            finding.replica,
            f"{finding.entry_index}" if finding.entry_index >= 0 else "",
            f"{finding.begin} to {finding.end}",
            f"{where}expected {finding.expected}, found {finding.found}",
        )
    show_table(table)
    if len(done.findings) > _SHOWN_MAX:
        notes.print(f"dledger: and {len(done.findings) - _SHOWN_MAX} findings more; --json FILE has all")
    if done.unexamined:
        notes.print(f"dledger: {done.unexamined} windows more differ; repair these first, and audit again")
    notes.print(f"dledger: {done.errors} errors, {len(done.findings) - done.errors + done.unexamined} notes")
