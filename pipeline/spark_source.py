"""The data source `format("dledger")`: messages of a store's files or of a running broker, as a batch or a stream.

Options: `pipeline.options`. Not here: streams (`pipeline.spark_stream`), and anything that works without Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from pipeline import arrow_check
from pipeline.options import SourceOptions, parse_source_options
from pipeline.source_plan import Source, batch_selection
from pipeline.spark_filters import narrowed
from pipeline.spark_part import DLedgerPart
from pipeline.spark_schema import OutputColumns, default_ddl
from pipeline.spark_sink import LogBatchWriter, LogStreamWriter, log_stream_writer, log_writer
from pipeline.spark_stream import DLedgerStreamReader, how_to_read

if TYPE_CHECKING:
    import pyarrow as pa

assert arrow_check.VERSION


class DLedgerSource(DataSource):
    """The data source."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return what stands in `format(...)`."""
        return "dledger"

    @property
    def _parsed(self) -> SourceOptions:
        return parse_source_options(self.options)

    def schema(self) -> str:
        """Return the columns that the options ask for."""
        return default_ddl(self._parsed)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a batch; a schema of the user's own says which columns are read."""
        options = self._parsed
        options.check_batch()
        return (FilteringReader if options.push_filters else DLedgerReader)(options, schema)

    def streamReader(self, schema: StructType) -> DLedgerStreamReader:  # noqa: N802  (Spark's name)
        """Return what reads a stream."""
        options = self._parsed
        options.check_stream()
        return DLedgerStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> LogBatchWriter:
        """Return what stores a batch in the log; its options are in `pipeline.sink_options`."""
        return log_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> LogStreamWriter:  # noqa: N802  (Spark's name)
        """Return what stores a stream in the log."""
        return log_stream_writer(self.options, schema, overwrite)


class DLedgerReader(DataSourceReader):
    """Reads a batch.

    Args:
        options: of the query.
        schema: what Spark expects.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._columns = OutputColumns.of(options, schema)
        self._how = how_to_read(options, self._columns)
        self._filters: list[Filter] = []

    def partitions(self) -> list[InputPartition]:
        """Return what tasks read; what comes to the log later is not seen."""
        options = self._options
        view = Source(options).view()
        try:
            selection = narrowed(batch_selection(options, view), self._filters, view.spans, view.index_range)
            if selection is None:
                return []
            parts = view.parts(
                selection, options.min_partitions, options.max_records, fail_on_data_loss=options.fail_on_data_loss
            )
        finally:
            view.close()
        return [DLedgerPart(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a part; Spark asks for none when there are no parts."""
        if isinstance(partition, DLedgerPart):
            yield from map(self._columns.fit, self._how.read(partition.part))


class FilteringReader(DLedgerReader):
    """The same, told by Spark which filters the query has: less is read, and Spark filters all the same."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Take note of the filters, and give all of them back."""
        self._filters = list(filters)
        return filters
