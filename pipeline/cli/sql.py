"""`dledger spark sql` and `count`: queries of the messages of a log."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from cluster.cli.common import EXIT_USAGE, fail, notes, output
from pipeline.cli.common import (
    ConfOption,
    MasterOption,
    SinceOption,
    TopicsOption,
    UntilOption,
    command_session,
    reported_errors,
    selection_of,
)
from pipeline.common.option_values import check_names, parse_names, parse_time_ms
from pipeline.spark.session import LOCAL_MASTER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

VIEW = "messages"
_TEXT_SHOWN_MAX = 120
_LAKE_OPTIONS = ("path", "subscribe", "startingTimestamp", "endingTimestamp", "columns", "log")


class RowFormat(StrEnum):
    """The format of printed rows."""

    TABLE = "table"
    JSONL = "jsonl"


SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="Directory of a store (several replicas: separated by commas), or host:port,... of a running broker.",
    ),
]
RowsArgument = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="Directory of a store (several replicas: separated by commas) or of a lake, or host:port,... of a broker.",
    ),
]
RowFormatOption = Annotated[RowFormat, typer.Option("--format", help="A table, or one JSON object a line.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, metavar="COUNT", help="Print at most this number of rows.")]
OptionOption = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the source; docs/pipeline.md lists them."),
]


def sql(
    source: RowsArgument,
    query: Annotated[str, typer.Argument(metavar="QUERY", help=f"An SQL query on the table `{VIEW}`.")],
    *,
    topic: TopicsOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    option: OptionOption = None,
    format_: RowFormatOption = RowFormat.TABLE,
    limit: LimitOption = 100,
    master: MasterOption = LOCAL_MASTER,
    conf: ConfOption = None,
) -> None:
    """Run an SQL query on the messages of a log.

    The table `messages` has a row for each message: topic, queueId, queueOffset, body, tags, keys, uniqKey, properties,
    bornTimestamp, storeTimestamp, bodySize, storeSize and more. --topic, --since and --until are
    evaluated with consume queues and indexes; conditions of the query itself are evaluated by reading all messages. If
    bodies are not needed, name the columns that are: `-o columns=topic,tags`.

    A lake has the columns with which it was written, and `date`; an archive also has `log`. Spark reads its Parquet
    files, and only those that a condition may concern. Options of a lake: columns, log.

    Examples:
        dledger spark sql /data/n0 "SELECT topic, count(*) AS messages FROM messages GROUP BY topic ORDER BY 2 DESC"
        dledger spark sql /data/n0 --topic orders "SELECT * FROM messages WHERE keys = 'o-17'"
        dledger spark sql 127.0.0.1:20921 --topic orders "SELECT get_json_object(string(body), '$.city') AS city,
            count(*) FROM messages GROUP BY 1" --format jsonl
        dledger spark sql /lake "SELECT date, count(*) FROM messages WHERE topic = 'orders' GROUP BY date"
    """
    with reported_errors():
        options = source_options(source, topic, since, until, option)
        with command_session("sql", master, conf) as spark:
            _frame_of(spark, options).createOrReplaceTempView(VIEW)
            _print_frame(spark.sql(query), limit, format_)


def count(
    source: RowsArgument,
    *,
    by: Annotated[
        str,
        typer.Option("--by", metavar="COLUMN,...", help="Count for each value of these columns; empty: all messages."),
    ] = "topic",
    topic: TopicsOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    option: OptionOption = None,
    format_: RowFormatOption = RowFormat.TABLE,
    limit: LimitOption = 100,
    master: MasterOption = LOCAL_MASTER,
    conf: ConfOption = None,
) -> None:
    """Count messages and their bytes by any columns.

    The most frequent values come first.

    Examples:
        dledger spark count /data/n0
        dledger spark count /data/n0 --by topic,queueId
        dledger spark count /data/n0 --topic orders --by tags --since 2026-11-21T09:00:00
        dledger spark count 127.0.0.1:20921 --by ""
        dledger spark count /lake --by topic,date
    """
    names = [name.strip() for name in by.split(",") if name.strip()]
    with reported_errors():
        options = source_options(source, topic, since, until, option)
        options.setdefault("columns", ",".join(dict.fromkeys([*names, "storeSize"])))
        with command_session("count", master, conf) as spark:
            from pyspark.sql import functions as f  # see `pipeline.cli.app`

            frame = _frame_of(spark, options)
            counted = frame.groupBy(*names).agg(f.count("*").alias("messages"), f.sum("storeSize").alias("bytes"))
            _print_frame(counted.orderBy(f.desc("messages"), *names), limit, format_)


def source_options(
    source: str, topics: list[str] | None, since: str | None, until: str | None, more: list[str] | None
) -> dict[str, str]:
    """Return the options of the source for a command line.

    Raises:
        BadOption: a time is not valid, or the range is reversed; it names the option of the command.
    """
    selection_of(topics, since, until)
    options = {"endpoints" if is_endpoints(source) else "path": source}
    given = {"subscribe": ",".join(topics or ()), "startingTimestamp": since, "endingTimestamp": until}
    options |= {name: value for name, value in given.items() if value}
    for text in more or ():
        name, equals, value = text.partition("=")
        if not equals:
            fail(f"--option: expected NAME=VALUE, found {text!r}", EXIT_USAGE)
        options[name] = value
    return options


def is_endpoints(source: str) -> bool:
    """Return whether a source consists of addresses of a broker, not directories."""
    parts = source.split(",")
    return all(":" in part and "/" not in part and part.rpartition(":")[2].isdigit() for part in parts)


def _frame_of(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """Return the messages of a source of the command line.

    Raises:
        pipeline.common.errors.PipelineError: an option does not fit, or a lake cannot be opened; Spark reports the
            faults of other sources.
    """
    from pipeline.lake.lake import is_lake  # see `pipeline.cli.app`

    if not is_lake(root := options.get("path", "")):
        return spark.read.format("dledger").options(**options).load()
    from pipeline.spark.lake_frame import lake_frame

    given = check_names(options, _LAKE_OPTIONS)
    topics, since, until = (given.get(name) for name in ("subscribe", "startingTimestamp", "endingTimestamp"))
    frame = lake_frame(
        spark,
        root,
        topics=None if topics is None else parse_names("subscribe", topics),
        begin_ms=None if since is None else parse_time_ms("startingTimestamp", since),
        end_ms=None if until is None else parse_time_ms("endingTimestamp", until),
        log=given.get("log"),
    )
    return frame.select(*parse_names("columns", given["columns"])) if "columns" in given else frame


def _print_frame(frame: DataFrame, limit: int, format_: RowFormat) -> None:
    """Print the first rows of a frame, with a note if there are more."""
    rows = frame.limit(limit + 1).collect()
    _print_rows(frame.columns, rows[:limit], format_)
    if len(rows) > limit:
        notes.print(f"dledger: more than {limit} rows; --limit shows more")


def _print_rows(names: list[str], rows: list[Row], format_: RowFormat) -> None:
    if format_ is RowFormat.JSONL:
        for row in rows:
            typer.echo(json_line(row))
        return
    table = Table(*names)
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    output.print(table)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (bytes, bytearray)):
        value = bytes(value).decode("utf-8", "replace")
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = str(value)
    return text if len(text) <= _TEXT_SHOWN_MAX else text[: _TEXT_SHOWN_MAX - 1] + "…"


def json_line(row: Row) -> str:
    """Return a row as one JSON object; bytes and times are texts."""
    return json.dumps(row.asDict(recursive=True), default=_json_value, ensure_ascii=False)


def _json_value(value: Any) -> str:
    """Return values without a JSON type (bytes, times) as text."""
    return bytes(value).decode("utf-8", "replace") if isinstance(value, (bytes, bytearray)) else str(value)
