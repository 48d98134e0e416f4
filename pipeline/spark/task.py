"""The identity of a Spark task: its partition, query and batch.

Spark passes query and batch to a writer's tasks as local properties. They are not a public interface, so only this
module reads them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark import TaskContext

from pipeline.common.errors import PipelineError

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


class StreamTask(NamedTuple):
    """A task of a streaming query."""

    query_id: str
    batch_id: int
    partition: int


def partition_id() -> int:
    """Return the number of this task's partition."""
    return _context().partitionId()


def stream_task() -> StreamTask:
    """Return the streaming query, batch and partition of this task.

    Raises:
        PipelineError: Spark did not set the properties.
    """
    context = _context()
    query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    if not query or not batch:
        expected = f"the local properties {_QUERY} and {_BATCH}"
        raise PipelineError(
            "task", expected, f"{query!r} and {batch!r}", "Use one of the versions of PySpark in docs/pipeline.md"
        )
    return StreamTask(query, int(batch), context.partitionId())


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "only a task of Spark reads them"
    return context
