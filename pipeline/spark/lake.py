"""The data source `format("dledger-lake")`: writes rows of a batch or a stream into a lake, each batch once.

Tasks write files, and the driver commits them (`pipeline.lake.lake`). Options: `pipeline.sink.options`. Lakes are read
by Spark's own Parquet reader (`pipeline.spark.lake_frame`), or by any Delta reader.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.common import option_values as values
from pipeline.common.errors import BadOption
from pipeline.lake.columns import check_types
from pipeline.lake.delta_table import LOG_FOLDER
from pipeline.lake.files import DataFile, check_lake_schema, plain_name
from pipeline.lake.lake import BatchId, DamagedLake, Lake
from pipeline.lake.maintenance import optimize
from pipeline.sink.options import LakeTarget, parse_lake_target
from pipeline.spark.task import partition_id, stream_task

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping, Sequence

    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)


class LakeSource(DataSource):
    """The data source."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "dledger-lake"

    def schema(self) -> StructType:
        """Refuse to read: rows that pass through Python take many times as long as with Spark's own reader.

        Raises:
            BadOption: always; it names what reads a lake.
        """
        values.check_no_table(self.options, self.name())
        self._refuse()

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  (Spark's interface)
        """Refuse to read, as `schema`."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        remedy = "Use lake_frame(spark, path) of pipeline.spark.lake_frame, or any reader of Delta tables"
        raise BadOption("format", "dledger-lake for a write", "a read", remedy)

    def writer(self, schema: StructType, overwrite: bool) -> LakeBatchWriter:
        """Return a writer of batches; the lake is created, because files of tasks are added to one that exists."""
        target, write_id = parse_lake_target(self.options)
        columns = _checked(schema, is_overwriting=overwrite)
        Lake.create(target.root, columns)
        return LakeBatchWriter(target, columns, write_id)

    def streamWriter(self, schema: StructType, overwrite: bool) -> LakeStreamWriter:  # noqa: N802  (Spark's name)
        """Return a writer of a stream, for each batch; the lake is created, as for batches."""
        target, _ = parse_lake_target(self.options)
        columns = _checked(schema, is_overwriting=overwrite)
        # Opening it takes longer with each entry of its log, and the commit does so.
        if not Path(target.root, LOG_FOLDER).is_dir():
            Lake.create(target.root, columns)
        return LakeStreamWriter(target, columns)


@dataclass
class FilesWritten(WriterCommitMessage):
    """The files that one task has written, and the streaming query."""

    files: list[DataFile]
    query_id: str = ""


class LakeBatchWriter(DataSourceArrowWriter):
    """Writes a batch."""

    def __init__(self, target: LakeTarget, schema: pa.Schema, write_id: str) -> None:
        self._target = target
        self._schema = schema
        self._batch = BatchId(write_id, 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        """Write the rows of one task."""
        return FilesWritten(
            _write(self._target, self._schema, f"{plain_name(self._batch.write_id)}-{partition_id()}", iterator)
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the files of all tasks."""
        Lake.open(self._target.root, schema=self._schema).commit(self._batch, _files(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave the files: Spark calls this also for a commit that took effect, and vacuum deletes the others."""


class LakeStreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream."""

    def __init__(self, target: LakeTarget, schema: pa.Schema) -> None:
        self._target = target
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        """Write the rows of one task."""
        task = stream_task()
        name = f"{plain_name(task.query_id)}-{task.batch_id}-{task.partition}"
        return FilesWritten(_write(self._target, self._schema, name, iterator), task.query_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Commit the files of all tasks, once per batch of the query."""
        if query := _query_of(messages):
            lake = Lake.open(self._target.root, schema=self._schema)
            is_new = lake.commit(BatchId(query, batchId), _files(messages))
            every = self._target.optimize_every
            if is_new and every and (batchId + 1) % every == 0:
                _join_small_files(lake)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Leave the files: Spark calls this also for a commit that took effect, and vacuum deletes the others."""


def _write(target: LakeTarget, schema: pa.Schema, name: str, batches: Iterator[pa.RecordBatch]) -> list[DataFile]:
    writer = target.writer(name)
    for batch in batches:
        writer.write(batch.cast(schema))
    return writer.finish()


def _join_small_files(lake: Lake) -> None:
    try:
        joined = optimize(lake)
    except DamagedLake as error:
        # The batch is committed; another program may have changed the same files.
        logger.warning("lake_not_optimized lake=%s error=%r", lake.root, str(error))
    else:
        logger.info("lake_optimized lake=%s removed=%d added=%d", lake.root, *joined)


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[DataFile]:
    return [file for message in messages if isinstance(message, FilesWritten) for file in message.files]


def _query_of(messages: Sequence[WriterCommitMessage | None]) -> str:
    return next((message.query_id for message in messages if isinstance(message, FilesWritten)), "")


def _checked(schema: StructType, *, is_overwriting: bool) -> pa.Schema:
    if is_overwriting:
        remedy = "A lake is only appended to: name another directory for other rows"
        raise BadOption("mode", "append (and outputMode append)", "overwrite or complete", remedy)
    columns = to_arrow_schema(schema, timezone="UTC")
    # The lake does not distinguish columns that may be null from others.
    columns = pa.schema([pa.field(column.name, column.type) for column in columns])
    check_types(columns)
    check_lake_schema(columns)
    return columns
