"""The data source `format("dledger")`: reads messages from files or a running broker, as a batch or a stream.

Options: `pipeline.source.options`. Streams: `pipeline.spark.stream`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition

from pipeline.common import arrow_check
from pipeline.common.option_values import check_no_table
from pipeline.source.options import SourceOptions, parse_source_options
from pipeline.source.plan import batch_parts
from pipeline.spark.filters import narrowed
from pipeline.spark.part import PartReader, partitions_of
from pipeline.spark.schema import default_ddl
from pipeline.spark.stream import DLedgerStreamReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, MutableMapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pipeline.log.selection import Selection
    from pipeline.source.view import SourceView
    from pipeline.spark.sink import LogBatchWriter, LogStreamWriter

assert arrow_check.VERSION


class DLedgerSource(DataSource):
    """The data source."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "dledger"

    @property
    def _parsed(self) -> SourceOptions:
        return parse_source_options(self.options)

    def schema(self) -> str:
        """Return the columns for the options."""
        check_no_table(self.options, self.name())
        return default_ddl(self._parsed)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of a batch; a schema of the user selects the columns."""
        options = self._parsed
        options.check_batch()
        return (FilteringReader if options.push_filters else DLedgerReader)(options, schema)

    def streamReader(self, schema: StructType) -> DLedgerStreamReader:  # noqa: N802  (Spark's name)
        """Return a reader of a stream."""
        options = self._parsed
        options.check_stream()
        return DLedgerStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> LogBatchWriter:
        """Return a writer that stores a batch in the log; its options are in `pipeline.sink.options`."""
        # Every Python process of Spark imports this module, but few of them write.
        from pipeline.spark.sink import log_writer  # noqa: PLC0415

        return log_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> LogStreamWriter:  # noqa: N802  (Spark's name)
        """Return a writer that stores a stream in the log."""
        from pipeline.spark.sink import log_stream_writer  # noqa: PLC0415

        return log_stream_writer(self.options, schema, overwrite)


class DLedgerReader(DataSourceReader):
    """Reads a batch.

    Args:
        options: of the query.
        schema: that Spark expects.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._parts = PartReader(options, schema)
        self._filters: list[Filter] = []

    def partitions(self) -> list[InputPartition]:
        """Return the partitions for tasks; messages appended later are not included."""
        return partitions_of(batch_parts(self._options, self._narrowed))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a part."""
        return self._parts.read(partition)

    def _narrowed(self, selection: Selection, view: SourceView) -> Selection | None:
        return narrowed(selection, self._filters, view.spans, view.index_range)


class FilteringReader(DLedgerReader):
    """A reader that uses the query's filters to read less. Spark applies the filters again."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Record the filters, and return all of them so that Spark applies them too."""
        self._filters = list(filters)
        return filters
