"""What one task reads, as Spark carries it."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from pipeline.source_parts import Part


class DLedgerPart(InputPartition):
    """A part of a query.

    Attributes:
        part: see there.
    """

    def __init__(self, part: Part) -> None:
        super().__init__(None)
        self.part = part
