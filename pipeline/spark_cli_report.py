"""`dledger spark report`: what is in a log, as a page for people and as JSON for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cluster.cli_common import notes, output
from pipeline.spark_cli_common import (
    DEFAULT_MASTER,
    ConfOption,
    MasterOption,
    SinceOption,
    StoreArgument,
    TopicsOption,
    UntilOption,
    command_session,
    selection_of,
    told_errors,
)

_KEYS_KEPT = 1 << 22


def report(
    directory: StoreArgument,
    *,
    page: Annotated[Path, typer.Option("--page", metavar="FILE", help="The page that is written.")] = Path(
        "report.html"
    ),
    figures: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write all figures there.")
    ] = None,
    topic: TopicsOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    keys: Annotated[
        int,
        typer.Option("--keys", min=1024, help="Unique keys that are compared exactly; of more, a sample of so many."),
    ] = _KEYS_KEPT,
    master: MasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
) -> None:
    """Write a page about a log: traffic, sizes, delays, hot keys, retries, repeats, gaps; and what of it is unusual.

    The page is one file that needs nothing else. Damaged records are left out and counted. It takes a few seconds for
    each gigabyte, and the memory that it takes does not grow with the log.

    Examples:
        dledger spark report /data/n0
        dledger spark report /data/n0 --topic orders --since 2026-11-20 --page orders.html --json orders.json
        dledger spark report /data/n0 --master spark://head:7077
    """
    with told_errors():
        from pipeline.report_page import write_report  # noqa: PLC0415  # see `pipeline.spark_cli`
        from pipeline.report_summary import summarise  # noqa: PLC0415
        from pipeline.slices import plan  # noqa: PLC0415
        from pipeline.spark_jobs import report_over  # noqa: PLC0415
        from pipeline.spark_progress import shown_progress  # noqa: PLC0415
        from pipeline.stores import open_store  # noqa: PLC0415

        selection = selection_of(topic, since, until)
        with open_store(directory) as store:
            slices = plan(store, selection)
        size = sum(part.size_bytes for part in slices)
        with command_session("report", master, conf) as spark, shown_progress(spark, "reading", size):
            partial = report_over(spark, slices, selection, keys_kept=keys)
        findings = write_report(summarise(partial, directory), page, figures)
        for finding in findings:
            output.print(f"{finding.level}: {finding.title}. {finding.text}", highlight=False, markup=False)
        if not findings:
            output.print("Nothing unusual was found.")
        notes.print(f"dledger: wrote {page}", highlight=False, soft_wrap=True, markup=False)
