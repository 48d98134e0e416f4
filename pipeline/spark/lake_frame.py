"""Reads a lake with Spark's own Parquet reader: the files of the newest version of the table, chosen by its log.

Only files that may hold wanted rows are given to Spark: by topic, day, and the first and last store timestamp that the
Delta log has for each. A Delta reader of Spark, where one is installed, reads the same: `format("delta")`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from pipeline.lake.delta_table import DATE, LOG
from pipeline.lake.lake import Lake

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame, SparkSession

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def lake_frame(
    spark: SparkSession,
    root: str,
    *,
    topics: Collection[str] | None = None,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    log: str | None = None,
) -> DataFrame:
    """Return the rows of a lake, with the columns `date` and, in an archive, `log`.

    The frame is of the version that is newest now: rows that are committed later are not in it, also if it is used
    again. Files that `vacuum` deletes after a week are missed by a frame that is used for longer.

    Args:
        spark: the session; all executors see the directory under the same path.
        root: of the lake.
        topics: names; None: all.
        begin_ms: the least store timestamp, milliseconds since 1970; None: no bound.
        end_ms: all store timestamps are before it; None: no bound.
        log: name of the log; None: of all.

    Raises:
        pipeline.common.errors.PipelineError: see `Lake.open`.
    """
    lake = Lake.open(root)
    partitions = [DATE, LOG] if lake.has_logs else [DATE]
    rows = from_arrow_schema(lake.schema)
    schema = StructType([*rows.fields, *(StructField(name, StringType()) for name in partitions)])
    files = [file for file in lake.files() if log in (None, file.log) and file.may_hold(topics, begin_ms, end_ms)]
    if not files:
        return spark.createDataFrame([], schema)
    paths = [f"{root}/{file.path}" for file in files]
    frame = spark.read.schema(schema).option("basePath", root).parquet(*paths).select(schema.names)
    if topics is not None:
        frame = frame.where(f.col("topic").isin(list(topics)))
    if begin_ms is not None:
        frame = frame.where(f.col("storeTimestamp") >= f.lit(_time(begin_ms)))
    if end_ms is not None:
        frame = frame.where(f.col("storeTimestamp") < f.lit(_time(end_ms)))
    return frame


def _time(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)
