"""`dledger spark tail`: messages as they come, in a shape that the next program can read."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.spark_cli_common import (
    DEFAULT_MASTER,
    ConfOption,
    MasterOption,
    TopicsOption,
    command_session,
    told_errors,
)
from pipeline.spark_cli_sql import OptionOption, SourceArgument, json_value, source_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COLUMNS = "topic,queueId,queueOffset,storeTimestamp,tags,keys,body"


def tail(
    source: SourceArgument,
    *,
    topic: TopicsOption = None,
    begin: Annotated[
        str, typer.Option("--from", metavar="WHERE", help='earliest, latest, or offsets: {"orders": {"0": 17}}.')
    ] = "latest",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    columns: Annotated[str, typer.Option("--columns", metavar="NAME,...", help="Of each message.")] = _COLUMNS,
    option: OptionOption = None,
    master: MasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
) -> None:
    """Print messages as they come, one JSON object a line, as a stream of Spark gives them.

    Of one topic at a time and a few messages, `dledger consume` is quicker. This is a way to see what a streaming query
    would get: the same source, with the same options.

    Examples:
        dledger spark tail 127.0.0.1:40921 --topic orders --follow
        dledger spark tail /data/n0 --from earliest --columns topic,queueOffset,tags | head
    """
    options = source_options(source, topic, None, None, option) | {"startingOffsets": begin, "columns": columns}
    with told_errors(), command_session("tail", master, conf) as spark:
        stream = spark.readStream.format("dledger").options(**options).load().writeStream.foreachBatch(_print)
        stream = stream.trigger(processingTime="1 second") if follow else stream.trigger(availableNow=True)
        query = stream.start()
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()


def _print(frame: DataFrame, _batch_id: int) -> None:
    for row in frame.toLocalIterator():
        sys.stdout.write(json.dumps(row.asDict(recursive=True), default=json_value, ensure_ascii=False) + "\n")
    sys.stdout.flush()
