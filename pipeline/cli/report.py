"""`dledger spark report`: figures and findings about a log, as an HTML page and as JSON."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.cli.common import notes, output
from pipeline.cli.common import (
    ConfOption,
    MasterOption,
    SinceOption,
    TopicsOption,
    UntilOption,
    check_output,
    command_session,
    reported_errors,
)
from pipeline.cli.sql import OptionOption, SourceArgument, source_options
from pipeline.common.errors import BadOption
from pipeline.spark.session import LOCAL_MASTER

if TYPE_CHECKING:
    from pipeline.source.options import SourceOptions

_KEYS_KEPT = 1 << 22
# Options that only affect the rows of a query.
_OF_QUERIES = ("columns", "decompress", "includeHeaders", "pushFilters", "schemaStyle")


def report(
    source: SourceArgument,
    *,
    page: Annotated[Path, typer.Option("--page", metavar="FILE", help="The page to write.")] = Path("report.html"),
    figures: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write all figures to this file, as JSON.")
    ] = None,
    topic: TopicsOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    option: OptionOption = None,
    keys: Annotated[
        int,
        typer.Option(
            "--keys",
            min=1024,
            help="Compare up to this number of unique keys exactly; of more keys, a sample of this size.",
        ),
    ] = _KEYS_KEPT,
    master: MasterOption = LOCAL_MASTER,
    conf: ConfOption = None,
) -> None:
    """Write an HTML page with figures and findings about a log.

    The page shows traffic, sizes, delays, hot keys, retries, repeats and gaps, and lists what is unusual. It is one
    self-contained file. Damaged records are skipped and counted (`-o onCorrupt=fail` fails at the first one). A report
    takes a few seconds per gigabyte; its memory does not grow with the log.

    Examples:
        dledger spark report /data/n0
        dledger spark report 127.0.0.1:20921,127.0.0.1:20922,127.0.0.1:20923
        dledger spark report /data/n0 --topic orders --since 2026-11-20 --page orders.html --json orders.json
        dledger spark report /data/n0 --master spark://head:7077
    """
    check_output("--page", page)
    check_output("--json", figures)
    with reported_errors():
        from pipeline.report.page import write_report  # see `pipeline.cli.app`
        from pipeline.report.partial import REPORT_COLUMNS
        from pipeline.report.summary import summarise
        from pipeline.source.plan import batch_parts
        from pipeline.spark.jobs import report_over, size_of
        from pipeline.spark.part import read_settings_of
        from pipeline.spark.progress import shown_progress

        options = _parsed(source_options(source, topic, since, until, option))
        parts = batch_parts(options)
        size = sum(map(size_of, parts))
        with command_session("report", master, conf) as spark, shown_progress(spark, "reading", size):
            partial = report_over(spark, parts, keys_kept=keys, how=read_settings_of(options, REPORT_COLUMNS))
        findings = write_report(summarise(partial, source), page, figures)
        for finding in findings:
            output.print(f"{finding.level}: {finding.title}. {finding.text}", highlight=False, markup=False)
        if not findings:
            output.print("Nothing unusual was found.")
        notes.print(f"dledger: wrote {page}", highlight=False, soft_wrap=True, markup=False)


def _parsed(given: dict[str, str]) -> SourceOptions:
    from pipeline.reading.corrupt_policy import SKIP
    from pipeline.source.options import parse_source_options

    options = parse_source_options(given)
    for name in _OF_QUERIES:
        if name in options.given:
            raise BadOption(name, "a query (count, sql, tail)", "a report", f"Leave {name!r} out")
    return options if "onCorrupt" in options.given else replace(options, on_corrupt=SKIP)
