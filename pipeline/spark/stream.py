"""The stream of the data source: what Spark asks, answered by `pipeline.source.stream_plan`.

Spark keeps one of these for a query, in a process of its own; what tasks read travels apart from it.
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
        schema: what Spark expects.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._parts = PartReader(options, schema)
        self._lazy_plan: StreamPlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks need no plan, and no connections."""
        return {**self.__dict__, "_lazy_plan": None}

    @property
    def _plan(self) -> StreamPlan:
        if self._lazy_plan is None:
            self._lazy_plan = StreamPlan(self._options)
        return self._lazy_plan

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's names, here and below)
        """Return the begin of a query without a checkpoint."""
        return self._plan.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return that there are limits; all of them are kept, also those that Spark has no word for."""
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return ReadMaxRows((1 << 31) - 1) if options.min_offsets is not None else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch; `start` if there is none yet."""
        options = self._options
        limits = Limits(options.max_offsets, options.max_bytes, options.min_offsets)
        if isinstance(limit, ReadAllAvailable):
            limits = Limits()
        begin = StreamOffset.from_json(start)
        end = self._plan.latest(begin, limits)
        return start if end is begin else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the ends of the queues, from which Spark computes the lag of the query."""
        newest = self._plan.newest
        return None if newest is None else newest.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """End at what there is now."""
        self._plan.fix_target()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the partitions for the tasks of a batch."""
        parts = self._plan.parts(StreamOffset.from_json(start), StreamOffset.from_json(end))
        return partitions_of(parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a part."""
        return self._parts.read(partition)
