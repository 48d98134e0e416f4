"""The columns of a query, from the options or from the user's schema, and the conversion of batches to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.columns.schema import DERIVED, NATIVE, spark_ddl
from pipeline.common.errors import BadSchema
from pipeline.source import kafka_style

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pipeline.source.options import SourceOptions

_NATIVE_TYPES: Final = {column.name: column.ddl for column in (*NATIVE, *DERIVED)}
_KAFKA_TYPES: Final = {name: ddl for name, (ddl, _, _) in kafka_style.COLUMNS.items()}


def default_ddl(options: SourceOptions) -> str:
    """Return the schema of a query without a user's schema, as Spark DDL."""
    if options.schema_style == "kafka":
        return kafka_style.ddl(has_headers=options.include_headers)
    return spark_ddl(options.names)


@dataclass(frozen=True, slots=True)
class OutputColumns:
    """The columns of the batches for Spark.

    Attributes:
        names: in order.
        schema: that Spark expects of each batch.
        is_kafka: whether they are Kafka's columns, converted from native ones.
    """

    names: tuple[str, ...]
    schema: pa.Schema
    is_kafka: bool

    @classmethod
    def of(cls, options: SourceOptions, schema: StructType) -> OutputColumns:
        """Return the columns of a query.

        Raises:
            BadSchema: a column is unknown, or has another type.
        """
        is_kafka = options.schema_style == "kafka"
        types = _KAFKA_TYPES if is_kafka else _NATIVE_TYPES
        for field in schema.fields:
            expected = types.get(field.name)
            if expected is None:
                raise BadSchema(field.name, f"one of {', '.join(types)}", "no such column")
            if field.dataType.simpleString() != expected:
                raise BadSchema(field.name, f"the type {expected}", field.dataType.simpleString())
        arrow = to_arrow_schema(schema, timezone="UTC")
        return cls(tuple(schema.fieldNames()), arrow, is_kafka)

    @property
    def native(self) -> tuple[str, ...]:
        """The native columns to read."""
        return kafka_style.native_names(self.names) if self.is_kafka else self.names

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch of native columns to the columns of the query.

        Raises: BadSchema: a column that is not nullable contains null.
        """
        arrays = kafka_style.convert(batch, self.names) if self.is_kafka else batch.columns
        for array, field in zip(arrays, self.schema, strict=True):
            if array.null_count and not field.nullable:
                raise BadSchema(field.name, "no null, as the schema says", f"{array.null_count} of them in a batch")
        # Spark uses its own names for the inner fields of a map.
        fitted = [
            array if array.type == field.type else array.cast(field.type)
            for array, field in zip(arrays, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(fitted, schema=self.schema)
