"""The sink `format("dledger")`: writes rows of a batch or a stream as messages of the log.

Tasks store the messages, and they stay stored if the batch fails. For retries of a batch see
`pipeline.sink.log_writer`, for options `pipeline.sink.options`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.common.errors import BadOption
from pipeline.sink.log_rows import check_schema
from pipeline.sink.log_writer import LogTarget, LogWriter, RowOrigin, RowsStored
from pipeline.sink.options import parse_log_target
from pipeline.spark.task import partition_id, stream_task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass
class RowsWritten(WriterCommitMessage):
    """The result of one task."""

    written: RowsStored


def log_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> LogBatchWriter:
    """Return a writer of batches.

    Raises: pipeline.common.errors.PipelineError: an option or a column is invalid.
    """
    target, write_id = parse_log_target(options)
    _check(target, schema, is_overwriting=overwrite)
    return LogBatchWriter(target, write_id)


def log_stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> LogStreamWriter:
    """Return a writer of a stream. Raises the same errors as `log_writer`."""
    target, _ = parse_log_target(options)
    _check(target, schema, is_overwriting=overwrite)
    return LogStreamWriter(target)


class LogBatchWriter(DataSourceArrowWriter):
    """Writes a batch."""

    def __init__(self, target: LogTarget, write_id: str) -> None:
        self._target = target
        self._write_id = write_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """Store the rows of one task."""
        return _write(self._target, RowOrigin(self._write_id, 0, partition_id()), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: rows are already committed when they are stored."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: stored messages cannot be removed."""


class LogStreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream."""

    def __init__(self, target: LogTarget) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """Store the rows of one task."""
        return _write(self._target, RowOrigin(*stream_task()), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Do nothing: rows are already committed when they are stored."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: stored messages cannot be removed."""


def _write(target: LogTarget, origin: RowOrigin, batches: Iterator[pa.RecordBatch]) -> RowsWritten:
    with LogWriter(target, origin) as writer:
        for batch in batches:
            writer.write(batch)
        return RowsWritten(writer.finish())


def _check(target: LogTarget, schema: StructType, *, is_overwriting: bool) -> None:
    if is_overwriting:
        raise BadOption("mode", "append (and outputMode append)", "overwrite or complete", "A log is only appended to")
    check_schema(to_arrow_schema(schema, timezone="UTC"), target.topic)
