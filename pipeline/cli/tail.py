"""`dledger spark tail`: prints new messages as JSON lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.common import (
    ConfOption,
    MasterOption,
    TopicsOption,
    command_session,
    reported_errors,
)
from pipeline.cli.sql import OptionOption, SourceArgument, json_line, source_options
from pipeline.spark.session import LOCAL_MASTER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COLUMNS = "topic,queueId,queueOffset,storeTimestamp,tags,keys,body"


def tail(
    source: SourceArgument,
    *,
    topic: TopicsOption = None,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="WHERE", help='Where to begin: earliest, latest (default), or {"orders": {"0": 17}}.'
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new messages until Ctrl-C.")] = False,
    columns: Annotated[str, typer.Option("--columns", metavar="NAME,...", help="The columns to print.")] = _COLUMNS,
    option: OptionOption = None,
    master: MasterOption = LOCAL_MASTER,
    conf: ConfOption = None,
) -> None:
    """Print the messages that a Spark stream reads, as JSON lines.

    The source and its options are those of a streaming query, so the output shows what such a query would get. For a
    few messages of one topic `dledger consume` is quicker.

    Examples:
        dledger spark tail 127.0.0.1:20921 --topic orders --follow
        dledger spark tail /data/n0 --from earliest --columns topic,queueOffset,tags | head
        dledger spark tail /data/n0 -o startingTimestamp=2026-11-21T09:00
    """
    options = {"columns": columns} | source_options(source, topic, None, None, option)
    if begin is not None:
        options["startingOffsets"] = begin
    with reported_errors(), command_session("tail", master, conf) as spark:
        stream = spark.readStream.format("dledger").options(**options).load().writeStream.foreachBatch(_print)
        stream = stream.trigger(processingTime="1 second") if follow else stream.trigger(availableNow=True)
        query = stream.start()
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()


def _print(frame: DataFrame, _batch_id: int) -> None:
    for row in frame.toLocalIterator():
        sys.stdout.write(json_line(row) + "\n")
    sys.stdout.flush()
