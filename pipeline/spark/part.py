"""The part of a read for one task, as a Spark partition; the same for batches and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pipeline.source.parts import Part, ReadSettings
from pipeline.spark.schema import OutputColumns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pipeline.source.options import SourceOptions


class DLedgerPart(InputPartition):
    """A part of a query.

    Attributes:
        part: the range that one task reads.
    """

    def __init__(self, part: Part) -> None:
        super().__init__(None)
        self.part = part


def partitions_of(parts: Iterable[Part]) -> list[InputPartition]:
    """Return parts as Spark partitions."""
    return [DLedgerPart(part) for part in parts]


class PartReader:
    """Reads parts as batches with Spark's schema. Sent to the tasks.

    Args:
        options: of the query.
        schema: that Spark expects.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._columns = OutputColumns.of(options, schema)
        self._how = read_settings_of(options, self._columns.native)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a part. Without parts, Spark passes a partition of its own class."""
        if isinstance(partition, DLedgerPart):
            yield from map(self._columns.fit, self._how.read(partition.part))


def read_settings_of(options: SourceOptions, columns: tuple[str, ...]) -> ReadSettings:
    """Return the settings that all tasks of a query share."""
    return ReadSettings(
        columns,
        options.verify_crc,
        options.on_corrupt,
        options.fail_on_data_loss,
        options.decompress,
        options.read_mode == "nearest",
    )
