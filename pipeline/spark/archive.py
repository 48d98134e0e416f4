"""Archives a log with Spark. Each task reads the files of a group of slices and writes the files of the archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.archive.archive import ArchiveTask, stage
from pipeline.spark.jobs import run_over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from pipeline.lake.files import DataFile
    from pipeline.log.slice import Slice


class SparkRunner:
    """Runs the tasks of an archive. The store and the lake must have the same path on all hosts."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, groups: Sequence[Sequence[Slice]], task: ArchiveTask) -> list[DataFile]:
        """Return the files that the tasks have staged."""
        return run_over(self._spark, groups, lambda group: stage(group, task))
