"""The stream reader of the data source: passes Spark's calls to `pipeline.source.stream_plan`.

Spark keeps one stream reader per query in a separate process. Partitions are sent to tasks separately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pipeline.source.stream_offsets import StreamOffset
from pipeline.source.stream_plan import Limits, StreamPlan
from pipeline.spark.part import PartReader, partitions_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pipeline.source.options import SourceOptions


class DLedgerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream.

    Args:
        options: of the query.
        schema: that Spark expects.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._parts = PartReader(options, schema)
        self._lazy_plan: StreamPlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Exclude plan and connections, which tasks do not need."""
        return {**self.__dict__, "_lazy_plan": None}

    @property
    def _plan(self) -> StreamPlan:
        if self._lazy_plan is None:
            self._lazy_plan = StreamPlan(self._options)
        return self._lazy_plan

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's names, here and below)
        """Return the start offset of a query without a checkpoint."""
        return self._plan.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return a placeholder for the limits; the plan applies them, including those that Spark does not know."""
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return ReadMaxRows((1 << 31) - 1) if options.min_offsets is not None else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch; `start` if there are no new messages."""
        options = self._options
        limits = Limits(options.max_offsets, options.max_bytes, options.min_offsets)
        if isinstance(limit, ReadAllAvailable):
            limits = Limits()
        begin = StreamOffset.from_json(start)
        end = self._plan.latest(begin, limits)
        return start if end is begin else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the ends of the queues. Spark computes the lag of the query from them."""
        newest = self._plan.newest
        return None if newest is None else newest.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Set the current end as the end of the stream."""
        self._plan.fix_target()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the partitions for the tasks of a batch."""
        parts = self._plan.parts(StreamOffset.from_json(start), StreamOffset.from_json(end))
        return partitions_of(parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a part."""
        return self._parts.read(partition)
