"""The data source `format("dledger-lake")`: writes rows of a batch or a stream as files of a lake, and reads lakes.

Tasks write files, and the driver commits them once per batch (`pipeline.lake.lake`). Options: `pipeline.sink.options`.
Reads return the rows in the manifests of the lake: exactly the committed rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from pipeline.common import option_values as values
from pipeline.common.errors import BadOption
from pipeline.common.grouping import grouped
from pipeline.lake.columns import check_types
from pipeline.lake.files import DataFile, check_lake_schema, read_rows
from pipeline.lake.lake import Lake
from pipeline.lake.manifest import BatchId
from pipeline.sink.options import LakeTarget, lake_root, parse_lake_target
from pipeline.spark.task import partition_id, stream_task

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping, Sequence

    from pyspark.sql.types import StructType

_READ_SIZE_BYTES = 64 << 20
_BATCH_ROWS = 10_000


class LakeSource(DataSource):
    """The data source."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "dledger-lake"

    def _root(self) -> str:
        return lake_root(values.check_names(self.options, ("path",)).get("path", ""))

    def schema(self) -> StructType:
        """Return the columns of the lake."""
        values.check_no_table(self.options, self.name())
        return from_arrow_schema(Lake.open(self._root()).schema)

    def reader(self, schema: StructType) -> LakeReader:
        """Return a reader of a lake; a schema of the user selects the columns."""
        return LakeReader(self._root(), to_arrow_schema(schema, timezone="UTC"))

    def writer(self, schema: StructType, overwrite: bool) -> LakeBatchWriter:
        """Return a writer of batches."""
        target, write_id = parse_lake_target(self.options)
        return LakeBatchWriter(target, _checked(schema, is_overwriting=overwrite), write_id)

    def streamWriter(self, schema: StructType, overwrite: bool) -> LakeStreamWriter:  # noqa: N802  (Spark's name)
        """Return a writer of a stream."""
        target, _ = parse_lake_target(self.options)
        return LakeStreamWriter(target, _checked(schema, is_overwriting=overwrite))


@dataclass
class FilesStaged(WriterCommitMessage):
    """The files that one task has staged, and the streaming query."""

    files: list[DataFile]
    query_id: str = ""


class LakeBatchWriter(DataSourceArrowWriter):
    """Writes a batch."""

    def __init__(self, target: LakeTarget, schema: pa.Schema, write_id: str) -> None:
        self._target = target
        self._schema = schema
        self._batch = BatchId(write_id, 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesStaged:
        """Stage the rows of one task."""
        return FilesStaged(_stage(self._target, self._schema, f"{self._batch.name}-{partition_id()}", iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the files that all tasks have staged."""
        _lake(self._target, self._schema).commit(self._batch, _files(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the staged files, unless they are committed."""
        _lake(self._target, self._schema).abort(self._batch, _files(messages))


class LakeStreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream."""

    def __init__(self, target: LakeTarget, schema: pa.Schema) -> None:
        self._target = target
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesStaged:
        """Stage the rows of one task."""
        task = stream_task()
        name = f"{BatchId(task.query_id, task.batch_id).name}-{task.partition}"
        return FilesStaged(_stage(self._target, self._schema, name, iterator), task.query_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Commit the files that all tasks have staged, once per batch of the query."""
        if query := _query_of(messages):
            _lake(self._target, self._schema).commit(BatchId(query, batchId), _files(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Delete the staged files, unless they are committed: Spark also calls this after a commit that took effect."""
        if query := _query_of(messages):
            _lake(self._target, self._schema).abort(BatchId(query, batchId), _files(messages))


@dataclass
class LakePart(InputPartition):
    """Files that one task reads."""

    files: list[DataFile]


class LakeReader(DataSourceReader):
    """Reads the files in the manifests of a lake."""

    def __init__(self, root: str, schema: pa.Schema) -> None:
        self._root = root
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return the files, in groups of up to 64 MiB."""
        return [LakePart(files) for files in grouped(Lake.open(self._root).files(), _READ_SIZE_BYTES)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some files. Without files, Spark passes a partition of its own class."""
        for file in partition.files if isinstance(partition, LakePart) else ():
            yield from read_rows(self._root, file, self._schema).to_batches(_BATCH_ROWS)


def _stage(target: LakeTarget, schema: pa.Schema, name: str, batches: Iterator[pa.RecordBatch]) -> list[DataFile]:
    writer = target.writer(name)
    for batch in batches:
        writer.write(batch.cast(schema))
    return writer.finish()


def _lake(target: LakeTarget, schema: pa.Schema) -> Lake:
    return Lake.create(target.root, target.kind, schema)


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[DataFile]:
    return [file for message in messages if isinstance(message, FilesStaged) for file in message.files]


def _query_of(messages: Sequence[WriterCommitMessage | None]) -> str:
    return next((message.query_id for message in messages if isinstance(message, FilesStaged)), "")


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
