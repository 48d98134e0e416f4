"""The library `deltalake`, as far as lakes need it: imported on first use, its errors as those of the pipeline.

Only drivers need the library; tasks write and read data files without it.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa

from pipeline.common.errors import PipelineError
from pipeline.lake.files import SPANNED, DataFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

LOG_FOLDER: Final = "_delta_log"
# Not columns of the rows: values of partitions only.
DATE, LOG = "date", "log"
PARTITIONS: Final = ("topic", DATE)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)
# Features with which raw Parquet files do not show the rows of the table.
_UNREADABLE: Final = {"deletionVectors": "delta.enableDeletionVectors", "columnMapping": "delta.columnMapping.mode"}


class MissingPackage(PipelineError):
    """The library for lakes is not installed."""


class UnsupportedTable(PipelineError):
    """Another program switched a feature of the Delta table on with which its Parquet files do not show its rows."""


def delta() -> ModuleType:
    """Return the module `deltalake`.

    Raises:
        MissingPackage: it is not installed.
    """
    try:
        return import_module("deltalake")
    except ImportError as error:
        remedy = "Install it on the driver: in a checkout, pip install '.[spark]'"
        raise MissingPackage("a lake", "the package deltalake", str(error), remedy) from None


def transactions() -> ModuleType:
    """Return the module with the parts of a commit."""
    delta()
    return import_module("deltalake.transaction")


def errors() -> ModuleType:
    """Return the module with the library's errors."""
    delta()
    return import_module("deltalake.exceptions")


def check_readable(root: str, table: Any) -> None:
    """Check that the rows of a table are those in its Parquet files.

    Raises:
        UnsupportedTable: they are not; nothing was read.
    """
    features = set(table.protocol().reader_features or ())
    settings = table.metadata().configuration
    for feature, setting in _UNREADABLE.items():
        if feature in features and settings.get(setting, "false") not in ("false", "none"):
            remedy = (
                "Read the lake with a Delta reader that supports it, or copy the table: for deletion vectors, set "
                "delta.enableDeletionVectors=false and purge them (REORG TABLE … APPLY (PURGE))"
            )
            raise UnsupportedTable(f"lake {root}", "a table whose files hold its rows", f"{feature} in use", remedy)


def delta_schema(schema: pa.Schema, partitions: Sequence[str]) -> Any:
    """Return the schema of the table for rows of `schema`: with the columns that are values of partitions only."""
    fields = [*schema, pa.field(DATE, pa.date32())]
    if LOG in partitions:
        fields.append(pa.field(LOG, pa.string()))
    return delta().Schema.from_arrow(pa.schema(fields))


def row_schema(table: Any) -> pa.Schema:
    """Return the columns of the rows of a table."""
    found = pa.schema(table.schema().to_arrow())
    return pa.schema([pa.field(each.name, _plain(each.type)) for each in found if each.name not in (DATE, LOG)])


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type with which this project writes a column that the library calls nullable, large or viewed."""
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    return kind


def add_action(file: DataFile, made_ms: int) -> Any:
    """Return the action that adds a file to a table."""
    values = {"topic": file.topic, DATE: file.date}
    if file.log is not None:
        values[LOG] = file.log
    return transactions().AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values=values,
        modification_time=made_ms,
        data_change=True,
        stats=statistics_of(file),
    )


def statistics_of(file: DataFile) -> str:
    """Return the statistics of a file as the Delta protocol has them: JSON, times in ISO format."""
    spans = {
        name: [_iso(each) if name.endswith("Timestamp") else each for each in span] for name, span in file.spans.items()
    }
    return json.dumps(
        {
            "numRecords": file.rows,
            "minValues": {name: span[0] for name, span in spans.items()},
            "maxValues": {name: span[1] for name, span in spans.items()},
            "nullCount": dict.fromkeys(spans, 0),
        }
    )


def _iso(micros: int) -> str:
    return f"{_EPOCH + micros * _US:%Y-%m-%dT%H:%M:%S.%fZ}"


def files_of(table: Any, root: str) -> list[DataFile]:
    """Return the current files of a table, by topic, date and path.

    Raises:
        UnsupportedTable: a file has no number of rows; the program that added it writes no statistics.
    """
    found = pa.table(table.get_add_actions(flatten=True))
    names = found.column_names
    # Paths in a Delta log are URIs.
    paths = [unquote(path) for path in found["path"].to_pylist()]
    logs = found[f"partition.{LOG}"].to_pylist() if f"partition.{LOG}" in names else [None] * len(paths)
    columns = {name: _spans(found, name) for name in SPANNED if f"min.{name}" in names}
    files = []
    rows = zip(
        paths,
        found["partition.topic"].to_pylist(),
        map(_day, found[f"partition.{DATE}"].to_pylist()),
        found["num_records"].to_pylist(),
        found["size_bytes"].to_pylist(),
        logs,
        strict=True,
    )
    for number, (path, topic, day, count, size_bytes, log) in enumerate(rows):
        if count is None:
            remedy = "Write it again with statistics, for example by OPTIMIZE of the program that added it"
            raise UnsupportedTable(f"{root}/{path}", "a number of rows in the Delta log", "none", remedy)
        spans = {name: span for name, column in columns.items() if (span := column[number]) is not None}
        files.append(DataFile(path, topic, day, count, size_bytes, log, spans))
    return sorted(files, key=lambda file: (file.topic, file.date, file.path))


def _day(value: date | str) -> str:
    return value if isinstance(value, str) else f"{value:%Y-%m-%d}"


def _spans(found: pa.Table, name: str) -> list[tuple[int, int] | None]:
    """Return first and last value of a column in each file."""
    ends = []
    for side in ("min", "max"):
        column = found[f"{side}.{name}"]
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        ends.append(column.to_pylist())
    return [None if first is None or last is None else (first, last) for first, last in zip(*ends, strict=True)]
