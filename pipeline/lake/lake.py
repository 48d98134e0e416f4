"""A lake: messages as a Delta table in a directory that all tasks and the driver share.

    <root>/_delta_log/                                  the transaction log: which files belong to the lake
    <root>/topic=<t>/date=<YYYY-MM-DD>/*.parquet         data files (`pipeline.lake.files`)
    <root>/_archived/<log>.json                         archive marks (`pipeline.archive.archive`)

Tasks write files under final names that are unique; the driver adds them to the log in one atomic commit. What is
committed exactly once is decided by *application transactions* of the same commit, numbers that the log keeps for
ever, also through checkpoints, clean-up and the work of other Delta programs:

| application | number |
| --- | --- |
| `dledger/write/<write id>` | the last batch of a query, or 0 for a named batch write |
| `dledger/archive/<log>/begin`, `.../end` | physical offsets of the archived range of a log |

The library accepts a repeated number, but refuses a commit if another one with the same application was made since the
snapshot it is based on. So a driver reads the number from a fresh snapshot, and commits on that snapshot, or begins
again. A file of a batch that lost is in no version of the table.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import tenacity

from pipeline.common.errors import BadOption, NotWritable, PipelineError
from pipeline.lake.columns import check_columns
from pipeline.lake.delta_table import (
    LOG,
    LOG_FOLDER,
    PARTITIONS,
    add_action,
    check_readable,
    delta,
    delta_schema,
    errors,
    files_of,
    row_schema,
    transactions,
)
from pipeline.lake.files import DataFile, FileWriter, read_rows
from store.fs.linux.files import OsFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from store.fs.ports import Files

logger = logging.getLogger(__name__)

DESCRIPTION: Final = "messages of a log"
# The file that describes a lake of an older version.
OLD_DESCRIPTION: Final = "_lake.json"
_WRITE: Final = "dledger/write/"
_ARCHIVE: Final = "dledger/archive/"
_COMMIT_ATTEMPTS: Final = 20
_PAUSE_MAX_S: Final = 2.0
# A day of commits every 10 s leaves 8,640 files in the log, and each commit lists them (10 us each).
_SETTINGS: Final = {
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 7 days",
}


class DamagedLake(PipelineError):
    """There is no lake, or its log is missing or damaged."""


class OldLake(PipelineError):
    """A lake of an older version, whose batches are described by manifests."""


class BusyLake(PipelineError):
    """Other drivers committed so often that this commit found no turn; it was certainly not made."""


class BatchId(NamedTuple):
    """Identifies a batch by its write (the id of a streaming query, or the name of a job) and its number."""

    write_id: str
    number: int


class LogRange(NamedTuple):
    """A range of a log that a lake contains completely: physical offsets, half open."""

    log: str
    begin: int
    end: int


def is_lake(root: str, files: Files | None = None) -> bool:
    """Return whether a directory is a lake, or one of an older version; without the library, and without opening it."""
    system: Files = OsFiles() if files is None else files
    return bool(root) and any(system.exists(f"{root}/{name}") for name in (LOG_FOLDER, OLD_DESCRIPTION))


class Lake:
    """One lake, for its driver; open it by `open` or `create`.

    Attributes:
        root: its directory.
        schema: of its rows.
        has_logs: whether each file belongs to a log, as in archives.
    """

    def __init__(self, root: str, table: Any, files: Files) -> None:
        self.root = root
        self._table = table
        self._files = files
        self.schema: pa.Schema = row_schema(table)
        self._partitions: list[str] = list(table.metadata().partition_columns)
        self.has_logs = LOG in self._partitions

    @classmethod
    def create(cls, root: str, schema: pa.Schema, *, has_logs: bool = False, files: Files | None = None) -> Lake:
        """Open the lake in a directory, or create it.

        Args:
            root: the directory.
            schema: of its rows.
            has_logs: for a new one: whether each file belongs to a log.
            files: the file system.

        Raises:
            UnfitSchema: the lake has other columns.
            BadOption: the directory holds something else.
            OldLake, DamagedLake, UnsupportedTable, MissingPackage: see `open`.
        """
        system: Files = OsFiles() if files is None else files
        if not system.exists(f"{root}/{LOG_FOLDER}") and not system.exists(f"{root}/{OLD_DESCRIPTION}"):
            system.make_directory(root)
            others = [name for name in system.list_directory(root) if not name.startswith((".", "_"))]
            # Another driver may have created and filled the lake in between.
            if others and not system.exists(f"{root}/{LOG_FOLDER}"):
                found = f"a directory that holds {others[0]!r} and is no lake"
                raise BadOption("path", "a lake, or an empty directory", found, "Name another directory")
            return cls.create_table(root, schema, has_logs=has_logs, files=system)
        return cls.open(root, files, schema=schema)

    @classmethod
    def create_table(cls, root: str, schema: pa.Schema, *, has_logs: bool, files: Files) -> Lake:
        """Create the table in a directory, unless it exists, and open it; raises as `create`."""
        _create_table(root, schema, [*PARTITIONS, LOG] if has_logs else list(PARTITIONS))
        lake = cls._open_table(root, files)
        check_columns(root, lake.schema, schema)
        return lake

    @classmethod
    def open(cls, root: str, files: Files | None = None, *, schema: pa.Schema | None = None) -> Lake:
        """Open the lake in a directory.

        Raises:
            OldLake: it is one of an older version, which must be converted.
            DamagedLake: there is no lake, or its log is damaged.
            UnsupportedTable: another program changed the table in a way that this one cannot read.
            UnfitSchema: `schema` is given, and the lake has other columns.
            MissingPackage: the library `deltalake` is not installed.
        """
        system: Files = OsFiles() if files is None else files
        if system.exists(f"{root}/{OLD_DESCRIPTION}"):
            remedy = f"Convert it once, while nothing writes to it: dledger spark lake convert {root}"
            raise OldLake(f"lake {root}", "a Delta table", "a lake of an older version", remedy)
        lake = cls._open_table(root, system)
        if schema is not None:
            check_columns(root, lake.schema, schema)
        return lake

    @classmethod
    def _open_table(cls, root: str, files: Files) -> Lake:
        try:
            table = delta().DeltaTable(root)
        except errors().TableNotFoundError:
            remedy = "Name the directory of a lake"
            raise DamagedLake(f"{root}/{LOG_FOLDER}", "the log of a Delta table", "none", remedy) from None
        except (errors().DeltaError, OSError) as error:
            remedy = "Restore _delta_log from a backup; nothing was changed"
            raise DamagedLake(f"{root}/{LOG_FOLDER}", "the log of a Delta table", str(error), remedy) from error
        check_readable(root, table)
        lake = cls(root, table, files)
        if not set(PARTITIONS) <= set(lake._partitions):
            found = f"one partitioned by {', '.join(lake._partitions) or 'nothing'}"
            raise DamagedLake(f"lake {root}", "a table partitioned by topic and date", found, "Name a lake's directory")
        return lake

    # --------------------------------------------------------------------------------------------------- committing

    def commit(self, batch: BatchId, files: Sequence[DataFile]) -> bool:
        """Add the files of a batch, unless the batch is committed; return whether this call has added them.

        A batch with a lower number than one of the same write counts as committed: a query commits in order.

        Raises:
            BusyLake: see there. The batch was not committed.
            DamagedLake: the log cannot be read or written; the batch may have been committed, and may be repeated.
        """

        def plan() -> Mapping[str, int] | None:
            return {_write(batch.write_id): batch.number} if self.last_number(batch.write_id) < batch.number else None

        return self._add(files, plan)

    def extend(self, covers: LogRange, files: Sequence[DataFile]) -> bool:
        """Add the files of the next range of a log; return whether this call has added them.

        False: the lake covers the start of the range already, because another driver has added it. A range after a gap
        begins a new one, and the lake forgets that the one before the gap is complete.

        Raises: see `commit`.
        """

        def plan() -> Mapping[str, int] | None:
            known = self.covered(covers.log)
            if known is not None and known.end > covers.begin:
                return None
            begin = covers.begin if known is None or known.end < covers.begin else known.begin
            return {_begin(covers.log): begin, _end(covers.log): covers.end}

        return self._add(files, plan)

    def adopt(self, files: Sequence[DataFile], numbers: Mapping[str, int], covered: Sequence[LogRange]) -> bool:
        """Add the files, the last batches of queries, and the ranges of an older lake, unless files were added already.

        Raises: see `commit`.
        """
        known = {_write(write_id): number for write_id, number in numbers.items()}
        for log, begin, end in covered:
            known |= {_begin(log): begin, _end(log): end}
        return self._add(files, lambda: known if self._table.version() == 0 else None)

    def _add(self, files: Sequence[DataFile], plan: Callable[[], Mapping[str, int] | None]) -> bool:
        """Add files with the numbers that `plan` returns for the newest snapshot; None: they are committed already."""
        attempts = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(_COMMIT_ATTEMPTS),
            wait=tenacity.wait_random_exponential(multiplier=0.05, max=_PAUSE_MAX_S),
            retry=tenacity.retry_if_exception_type(errors().CommitFailedError),
        )
        try:
            return bool(attempts(self._add_once, files, plan))
        except tenacity.RetryError as error:
            found = f"{_COMMIT_ATTEMPTS} conflicts, the last one: {error.last_attempt.exception()}"
            remedy = "Nothing was committed: repeat it when fewer programs write to the lake"
            raise BusyLake(f"lake {self.root}", "a turn to commit", found, remedy) from error

    def _add_once(self, files: Sequence[DataFile], plan: Callable[[], Mapping[str, int] | None]) -> bool:
        self._refresh()
        numbers = plan()
        if numbers is None:
            return False
        made_ms, before = time.time_ns() // 1_000_000, self._table.version()
        parts = transactions()
        done = [parts.Transaction(*each) for each in numbers.items()]
        try:
            self._table.create_write_transaction(
                [add_action(each, made_ms) for each in files],
                "append",
                delta_schema(self.schema, self._partitions),
                self._partitions,
                commit_properties=parts.CommitProperties(app_transactions=done),
            )
        except errors().CommitFailedError:
            raise
        except (errors().DeltaError, OSError) as error:
            # Of the commit, or of the checkpoint after it.
            self._refresh()
            if any(self._table.transaction_version(name) != number for name, number in numbers.items()):
                remedy = "Correct the cause and repeat it: a batch is never committed twice"
                raise DamagedLake(f"{self.root}/{LOG_FOLDER}", "a commit", str(error), remedy) from error
            logger.warning("lake_checkpoint_not_written lake=%s error=%r", self.root, str(error))
        self._refresh()
        self._sync(range(before + 1, self._table.version() + 1))
        return True

    def _refresh(self) -> None:
        try:
            self._table.update_incremental()
        except (errors().DeltaError, OSError) as error:
            remedy = "Repair or restore the folder; nothing was changed"
            raise DamagedLake(f"{self.root}/{LOG_FOLDER}", "the log of a Delta table", str(error), remedy) from error

    def _sync(self, versions: Sequence[int]) -> None:
        """Make versions of the log durable: the library does not."""
        folder = f"{self.root}/{LOG_FOLDER}"
        for version in versions:
            path = f"{folder}/{version:020d}.json"
            if self._files.exists(path):
                file = self._files.open(path)
                try:
                    file.sync()
                finally:
                    file.close()
        self._files.sync_directory(folder)

    def sync(self) -> None:
        """Make the whole log durable, also what other drivers have committed."""
        self._files.sync_tree(f"{self.root}/{LOG_FOLDER}")

    # ------------------------------------------------------------------------------------------------------ reading

    def last_number(self, write_id: str) -> int:
        """Return the highest committed batch number of a write; -1: none."""
        return self._number(_write(write_id))

    def covered(self, log: str) -> LogRange | None:
        """Return the last range of a log that the lake contains without a gap; None: nothing of it."""
        end = self._number(_end(log))
        return None if end < 0 else LogRange(log, self._number(_begin(log)), end)

    def _number(self, application: str) -> int:
        found = self._table.transaction_version(application)
        return -1 if found is None else int(found)

    def refresh(self) -> None:
        """See what other programs have committed since this lake was opened.

        Raises:
            DamagedLake: the log cannot be read.
            UnsupportedTable: see `open`.
        """
        self._refresh()
        check_readable(self.root, self._table)

    def files(self) -> list[DataFile]:
        """Return the files of the newest version that this object has seen, by topic, date and path."""
        return files_of(self._table, self.root)

    def read(self, file: DataFile, names: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of a file, with all columns or the named ones.

        Raises:
            pipeline.lake.files.UnfitRows: the file is missing or damaged.
        """
        wanted = self.schema.names if names is None else names
        return read_rows(self.root, file, pa.schema([self.schema.field(name) for name in wanted]))

    def writer(self, name: str, compression: str = "zstd", log: str | None = None) -> FileWriter:
        """Return the writer for the rows of one task; `name` is unique for batch and partition."""
        return FileWriter(self.root, name, compression, log=log)

    @property
    def table(self) -> Any:
        """The `deltalake.DeltaTable`, for maintenance."""
        return self._table


def _write(write_id: str) -> str:
    return f"{_WRITE}{write_id}"


def _begin(log: str) -> str:
    return f"{_ARCHIVE}{log}/begin"


def _end(log: str) -> str:
    return f"{_ARCHIVE}{log}/end"


def _create_table(root: str, schema: pa.Schema, partitions: Sequence[str]) -> None:
    """Create the table, unless another driver has."""
    try:
        delta().DeltaTable.create(
            root,
            delta_schema(schema, partitions),
            mode="ignore",
            partition_by=list(partitions),
            description=DESCRIPTION,
            configuration=_SETTINGS,
        )
    except errors().CommitFailedError:
        # It was created concurrently.
        return
    except (errors().DeltaError, OSError) as error:
        raise NotWritable(root, str(error)) from error
