"""Lakes as tables: adds the files of each batch once to a Delta log, or to an Iceberg snapshot.

The table stores the number of each write's last batch, in the same transaction as the files, so that applying a batch
again, after a crash of a driver, has no effect.

| kind | place of the number | readers open |
| --- | --- | --- |
| delta | application transaction `dledger-lake/<write id>` | the lake's directory |
| iceberg | the table's property `dledger-lake.<write id>` | `dledger.messages` in catalog `dledger`: `_catalog.db` |

Delta needs the package `deltalake`, Iceberg `pyiceberg[sql-sqlite]`; the extras `delta` and `iceberg` install them.
"""

from __future__ import annotations

import json
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa

from pipeline.common.errors import PipelineError

if TYPE_CHECKING:
    from types import ModuleType

    from pipeline.lake.manifest import Manifest

PARTITIONS: Final = ("topic", "date")
_APPLICATION: Final = "dledger-lake"
_NAMESPACE: Final = "dledger"
_TABLE: Final = "dledger.messages"
# Columns without statistics.
_WITHOUT_METRICS: Final = {f"write.metadata.metrics.column.{name}": "none" for name in ("body", "propertiesRaw")}
_CATALOG_FILE: Final = "_catalog.db"


class MissingPackage(PipelineError):
    """The package for a kind of lake is not installed."""


def open_table(root: str, kind: str, schema: pa.Schema) -> DeltaLakeTable | IcebergTable:
    """Open the table of a lake, or create it.

    Args:
        root: of the lake.
        kind: delta or iceberg.
        schema: of its rows.

    Raises:
        MissingPackage: the required package is not installed.
    """
    return DeltaLakeTable(root, schema) if kind == "delta" else IcebergTable(root, schema)


class DeltaLakeTable:
    """A Delta table, by topic and date."""

    def __init__(self, root: str, schema: pa.Schema) -> None:
        self._delta = _package("deltalake", "delta")
        self._root = root
        # The path contains both; Delta requires them as columns.
        self._schema = self._delta.Schema.from_arrow(schema.append(pa.field("date", pa.date32())))
        self._delta.DeltaTable.create(root, self._schema, mode="ignore", partition_by=list(PARTITIONS))

    def apply(self, manifest: Manifest) -> None:
        """Apply a batch, unless it was applied already."""
        transaction = import_module("deltalake.transaction")
        application = f"{_APPLICATION}/{manifest.batch.write_id}"
        table = self._delta.DeltaTable(self._root)
        applied = table.transaction_version(application)
        if applied is not None and applied >= manifest.batch.number:
            return
        is_change = not manifest.removed
        actions: list[Any] = [
            transaction.AddAction(
                path=file.path,
                size=file.size_bytes,
                partition_values={"topic": file.topic, "date": file.date},
                modification_time=manifest.made_ms,
                data_change=is_change,
                stats=json.dumps({"numRecords": file.rows}),
            )
            for file in manifest.files
        ]
        held = set(manifest.removed) & self._paths(table)
        actions += [self._remove_action(transaction, path, manifest.made_ms) for path in sorted(held)]
        done = transaction.Transaction(application, manifest.batch.number)
        properties = transaction.CommitProperties(app_transactions=[done])
        table.create_write_transaction(actions, "append", self._schema, list(PARTITIONS), commit_properties=properties)

    def paths(self) -> frozenset[str]:
        """Return the current files of the table, relative to the root."""
        return frozenset(self._paths(self._delta.DeltaTable(self._root)))

    @staticmethod
    def _paths(table: Any) -> set[str]:
        # Paths in a Delta log are URIs.
        return {unquote(path) for path in pa.table(table.get_add_actions()).column("path").to_pylist()}

    @staticmethod
    def _remove_action(transaction: ModuleType, path: str, made_ms: int) -> Any:
        return transaction.RemoveAction(path=path, deletion_timestamp=made_ms, data_change=False)


class IcebergTable:
    """An Iceberg table, by topic and day, with its own catalog."""

    def __init__(self, root: str, schema: pa.Schema) -> None:
        catalogs = _package("pyiceberg.catalog.sql", "iceberg")
        transforms = _package("pyiceberg.transforms", "iceberg")
        absolute = Path(root).absolute()
        self._root = absolute.as_uri()
        catalog = catalogs.SqlCatalog(_NAMESPACE, uri=f"sqlite:///{absolute / _CATALOG_FILE}", warehouse=self._root)
        catalog.create_namespace_if_not_exists(_NAMESPACE)
        self._table = catalog.create_table_if_not_exists(
            _TABLE, schema=schema, location=self._root, properties=_WITHOUT_METRICS
        )
        if not self._table.spec().fields:
            with self._table.update_spec() as change:
                change.add_identity("topic")
                change.add_field("storeTimestamp", transforms.DayTransform(), "date")

    def apply(self, manifest: Manifest) -> None:
        """Apply a batch, unless it was applied already."""
        table, name = self._table.refresh(), f"{_APPLICATION}.{manifest.batch.write_id}"
        applied = table.properties.get(name)
        if applied is not None and int(applied) >= manifest.batch.number:
            return
        removed = {f"{self._root}/{path}" for path in manifest.removed}
        with table.transaction() as change:
            change.set_properties({name: str(manifest.batch.number)})
            if removed:
                old = [task.file for task in table.scan().plan_files() if task.file.file_path in removed]
                with change.update_snapshot().overwrite() as overwrite:
                    _separate_evaluators(overwrite)
                    for file in old:
                        overwrite.delete_data_file(file)
            if manifest.files:
                paths = [f"{self._root}/{file.path}" for file in manifest.files]
                change.add_files(paths, check_duplicate_files=False)

    def paths(self) -> frozenset[str]:
        """Return the current files of the table, relative to the root, except files with deleted rows."""
        tasks = self._table.refresh().scan().plan_files()
        return frozenset(task.file.file_path.removeprefix(f"{self._root}/") for task in tasks if not task.delete_files)


def _separate_evaluators(overwrite: Any) -> None:
    """Give an overwrite an evaluator of its own for each manifest.

    pyiceberg 0.12 uses one in several threads, and it keeps the manifest that it evaluates: files were not found that
    the table has, and the commit failed.
    """
    new_evaluator = overwrite._build_manifest_evaluator  # noqa: SLF001  (there is no public way)

    def evaluate(spec_id: int, manifest: Any) -> bool:
        return bool(new_evaluator(spec_id)(manifest))

    overwrite._build_manifest_evaluator = lambda spec_id: partial(evaluate, spec_id)  # noqa: SLF001


def _package(name: str, extra: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError as error:
        remedy = f"Install it on the driver: in a checkout, pip install '.[{extra}]'"
        raise MissingPackage(f"kind {extra!r}", f"the package of {name}", str(error), remedy) from None
