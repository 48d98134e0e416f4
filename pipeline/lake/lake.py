"""A lake: messages as Parquet files in a directory that all tasks and the driver share, committed batch by batch.

    <root>/_lake.json                          format, kind and columns
    <root>/_manifests/                         files added and removed by each batch (`pipeline.lake.manifest`)
    <root>/_staging/                           files of tasks before their publication
    <root>/topic=<t>/date=<YYYY-MM-DD>/*.parquet

The driver commits a batch in two steps:

1. *Decide*: its manifest is created, permanently. A driver that commits the same batch again, because the query was
   killed before it recorded the commit, gets the first manifest, and its own files are discarded.
2. *Publish*: files are moved from staging to their final paths, and added to the table (kind `delta` or `iceberg`),
   once, by the batch's id. After a crash in between the next driver completes the publication.

Readers of the plain directory (kind `parquet`) may see a partly published batch; readers that use `files` or the table
do not. A lock on `_lock` serializes drivers.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from pipeline.common.errors import BadOption, PipelineError
from pipeline.lake.columns import check_columns, type_of
from pipeline.lake.files import DataFile, FileWriter, read_rows
from pipeline.lake.manifest import BatchId, DamagedLake, LogRange, Manifest, Manifests, create_once, read_sealed
from store.errors import DirectoryLocked
from store.fs.linux.files import OsFiles
from store.fs.sealed_json import seal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from store.fs.ports import DirectoryLock, Files

KINDS: Final = ("parquet", "delta", "iceberg")
DESCRIPTION: Final = "_lake.json"
_FORMAT: Final = 1
_LOCK: Final = "_lock"
_TURN_S: Final = 60.0
_LOOK_S: Final = 0.05


class FilesReplaced(PipelineError):
    """Files that a batch should replace are no longer in the lake: another batch has replaced them."""


class TableChanged(PipelineError):
    """Another program changed a table of a lake (DELETE, OPTIMIZE): maintenance would undo that or lose live files."""


class Table(Protocol):
    """A table over the files of a lake."""

    def paths(self) -> frozenset[str]:
        """Return the current files of the table, relative to the root, except files with deleted rows."""
        ...

    def apply(self, manifest: Manifest) -> None:
        """Apply a batch, unless it was applied already."""
        ...


class Lake:
    """One lake, for its driver; open it by `open` or `create`.

    Attributes:
        root: its directory.
        kind: parquet, delta or iceberg.
        schema: of its rows.
    """

    def __init__(self, root: str, kind: str, schema: pa.Schema, files: Files) -> None:
        self.root = root
        self.kind = kind
        self.schema = schema
        self._files = files
        self._manifests = Manifests(root, files)
        self._tables: list[Table] = []

    @classmethod
    def create(cls, root: str, kind: str, schema: pa.Schema, files: Files | None = None) -> Lake:
        """Open the lake in a directory, or create it; publish batches that are decided.

        Raises:
            UnfitSchema: it has other columns.
            BadOption: the lake has another kind, or there is no such kind.
            DamagedLake: a file of it is missing or damaged.
        """
        system: Files = OsFiles() if files is None else files
        if kind not in KINDS:
            raise BadOption("kind", f"one of {', '.join(KINDS)}", repr(kind))
        path = f"{root}/{DESCRIPTION}"
        if not system.exists(path):
            system.make_directory(root)
            other_files = [name for name in system.list_directory(root) if not name.startswith((".", "_"))]
            # Another driver may have created and filled the lake in between.
            if other_files and not system.exists(path):
                found = f"a directory that holds {other_files[0]!r} and is no lake"
                raise BadOption("path", "a lake, or an empty directory", found, "Name another directory")
            columns = [[field.name, str(field.type)] for field in schema]
            create_once(system, path, seal({"format": _FORMAT, "kind": kind, "columns": columns}))
        lake = cls.open(root, files, schema=schema)
        if lake.kind != kind:
            raise BadOption("kind", f"{lake.kind!r}, as the lake {root} was made", repr(kind))
        lake.publish()
        return lake

    @classmethod
    def open(cls, root: str, files: Files | None = None, *, schema: pa.Schema | None = None) -> Lake:
        """Open the lake in a directory.

        Raises:
            DamagedLake: there is no lake, or a file of it is missing or damaged.
            UnfitSchema: `schema` is given, and the lake has other columns.
        """
        system: Files = OsFiles() if files is None else files
        path = f"{root}/{DESCRIPTION}"
        raw = system.read_bytes(path)
        if raw is None:
            raise DamagedLake(path, "the description of a lake", "no such file", "Name the directory of a lake")
        described = read_sealed(path, raw)
        columns: list[list[str]] = described["columns"]
        if schema is not None:
            check_columns(root, columns, schema)
        known = pa.schema([pa.field(name, type_of(text)) for name, text in columns])
        return cls(root, described["kind"], known, system)

    # --------------------------------------------------------------------------------------------------- committing

    def commit(
        self,
        batch: BatchId,
        files: Sequence[DataFile],
        *,
        covers: LogRange | None = None,
        removed: Sequence[str] = (),
        note: dict[str, Any] | None = None,
    ) -> Manifest:
        """Commit a batch, unless it is committed already; return the committed manifest.

        Args:
            batch: id of the batch.
            files: staged by tasks.
            covers: range of a log that it contains completely.
            removed: paths of files that these replace.
            note: additional fields of the manifest.

        Raises:
            DamagedLake: a file to publish is missing.
            FilesReplaced: one of `removed` is not in the lake; no change was made.
            TableChanged: files should be replaced, but another program changed the table; no change was made.
        """
        now_ms = time.time_ns() // 1_000_000
        mine = Manifest(batch, now_ms, tuple(files), tuple(removed), covers, note or {})
        with self._turn():
            self._check_number(batch)
            self._check_removed(mine)
            decided = self._manifests.create(mine)
            if decided is not mine and decided.files != mine.files:
                self._discard(files)
            self._publish(decided)
        return decided

    def _check_number(self, batch: BatchId) -> None:
        """Check the order of batches, because tables record only the last batch of each write."""
        last = self._manifests.last_number(batch.write_id)
        if self.kind != "parquet" and batch.number < last and self._manifests.get(batch) is None:
            remedy = "Use another checkpoint, or another name for the write"
            raise PipelineError(f"batch {batch.number} of {batch.write_id}", f"one after {last}", "it", remedy)

    def _check_removed(self, mine: Manifest) -> None:
        """Check that no other batch has replaced these files, which would duplicate their rows."""
        if mine.removed and self._manifests.get(mine.batch) is None:
            self._check_tables()
            gone = sorted(set(mine.removed) - {file.path for file in self.files()})
            if gone:
                self._discard(mine.files)
                remedy = "Another compaction finished first: begin again with the current files of the lake"
                raise FilesReplaced(f"lake {self.root}", f"the file {gone[0]}", "another in its place", remedy)

    def abort(self, batch: BatchId, files: Iterable[DataFile]) -> None:
        """Delete staged files; if the batch is committed with them, publish it instead."""
        with self._turn():
            decided = self._manifests.get(batch)
            kept = set() if decided is None else {file.staged for file in decided.files}
            self._discard(file for file in files if file.staged not in kept)
            if decided is not None:
                self._publish(decided)

    def publish(self) -> None:
        """Publish batches that are decided but not completely published, after a crash of a driver."""
        with self._turn():
            self._publish_decided()

    def _publish_decided(self) -> None:
        for manifest in self._manifests.unpublished():
            self._publish(manifest)

    def check_tables(self) -> None:
        """Check that the table has exactly the files in the manifests.

        Raises:
            TableChanged: another program changed the table; maintenance must not touch this lake.
        """
        with self._turn():
            self._check_tables()

    def _check_tables(self) -> None:
        # A killed driver may have decided a batch that is not in the table yet.
        self._publish_decided()
        held = {file.path for file in self.files()}
        for table in self._tables or self._open_tables():
            found = table.paths()
            if differing := sorted(held ^ found):
                where = "only in the table" if differing[0] in found else "only in the manifests"
                remedy = (
                    "Compaction and vacuum work only on tables that no other program changes: use the other program's, "
                    "or archive the log into a new lake (docs/lakes.md)"
                )
                raise TableChanged(
                    f"lake {self.root}", f"a {self.kind} table of the {len(held)} files in the manifests",
                    f"{len(differing)} that differ, first of all {differing[0]}, {where}", remedy,
                )  # fmt: skip

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the commit lock.

        Raises:
            store.errors.DirectoryLocked: another driver has held the lock for a minute.
        """
        deadline = time.monotonic() + _TURN_S
        lock: DirectoryLock | None = None
        while lock is None:
            try:
                lock = self._files.lock(f"{self.root}/{_LOCK}")
            except DirectoryLocked:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_S)
        try:
            yield
        finally:
            lock.release()

    def _publish(self, manifest: Manifest) -> None:
        folders = set[str]()
        for file in manifest.files:
            staged, place = f"{self.root}/{file.staged}", f"{self.root}/{file.path}"
            if not self._files.exists(staged):
                self._check_published(manifest, file)
                continue
            folder = str(Path(place).parent)
            if folder not in folders:
                self._files.make_directory(folder)
                folders.add(folder)
            self._files.rename(staged, place)
        for folder in sorted(folders):
            self._files.sync_directory(folder)
        self._remove_folders(file.staged for file in manifest.files)
        for table in self._tables or self._open_tables():
            table.apply(manifest)
        if self.kind == "parquet":
            self.remove(manifest.removed)
        self._manifests.mark_published(manifest.batch)

    def _check_published(self, manifest: Manifest, file: DataFile) -> None:
        if self._files.exists(f"{self.root}/{file.path}"):
            return
        # Published and replaced since.
        if any(file.path in each.removed for each in self._manifests.all()):
            return
        where = f"neither there nor in {file.staged}"
        remedy = f"Archive the batch {manifest.batch} again from the log, or restore the file from a backup"
        raise DamagedLake(f"{self.root}/{file.path}", f"a file of {file.rows} rows", where, remedy)

    def _open_tables(self) -> list[Table]:
        if self.kind != "parquet":
            # Imported here, because each needs a library of an optional extra.
            from pipeline.lake.tables import open_table  # noqa: PLC0415

            self._tables = [open_table(self.root, self.kind, self.schema)]
        return self._tables

    def remove(self, paths: Iterable[str]) -> None:
        """Delete existing files; paths are relative to the root."""
        for path in paths:
            if self._files.exists(f"{self.root}/{path}"):
                self._files.remove(f"{self.root}/{path}")

    def sweep(self, paths: Iterable[str]) -> list[str]:
        """Delete files that are in no batch, and emptied folders, under the commit lock; return the deleted paths.

        Raises:
            TableChanged: another program changed the table, which may need these files; no file was deleted.
        """
        with self._turn():
            self._check_tables()
            held = {file.path for file in self.files()}
            unused = [path for path in paths if path not in held]
            self.remove(unused)
            # The folder of manifests, whose drafts begin with a dot, is kept.
            self._remove_folders(path for path in unused if not Path(path).name.startswith("."))
        return unused

    def _discard(self, files: Iterable[DataFile]) -> None:
        paths = [file.staged for file in files]
        self.remove(paths)
        self._remove_folders(paths)

    def _remove_folders(self, paths: Iterable[str]) -> None:
        """Remove the folders of files if they are empty."""
        for folder in sorted({str(Path(path).parent) for path in paths}):
            path = Path(f"{self.root}/{folder}")
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()

    # ------------------------------------------------------------------------------------------------------ reading

    def manifests(self) -> list[Manifest]:
        """Return all manifests; oldest first."""
        return sorted(self._manifests.all(), key=lambda each: (each.made_ms, each.batch))

    def manifest(self, batch: BatchId) -> Manifest | None:
        """Return the manifest of a batch; None: it is not committed."""
        return self._manifests.get(batch)

    def files(self) -> list[DataFile]:
        """Return the current files of the lake, by topic, date and path."""
        manifests = self.manifests()
        removed = {path for each in manifests for path in each.removed}
        held = [file for each in manifests for file in each.files if file.path not in removed]
        return sorted(held, key=lambda file: (file.topic, file.date, file.path))

    def files_by_log(self) -> list[tuple[str, DataFile]]:
        """Return the current files, each with the name of its log; empty: unknown."""
        held = {file.path for file in self.files()}
        return [
            (each.covers.log if each.covers is not None else each.note.get("log", ""), file)
            for each in self.manifests()
            for file in each.files
            if file.path in held
        ]

    def last_number(self, write_id: str) -> int:
        """Return the highest batch number of a write; -1: none."""
        return self._manifests.last_number(write_id)

    def covered(self, log: str) -> list[LogRange]:
        """Return the completely archived ranges of a log, joined, ascending."""
        ranges = sorted(each.covers for each in self.manifests() if each.covers is not None and each.covers.log == log)
        joined: list[LogRange] = []
        for each in ranges:
            last = joined[-1] if joined else None
            if last is None or each.begin > last.end:
                joined.append(each)
            elif each.end > last.end:
                joined[-1] = each._replace(begin=last.begin)
        return joined

    def read(self, file: DataFile, names: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of a file, with all columns or the named ones.

        Raises:
            pipeline.lake.files.UnfitRows: the file is missing or damaged.
        """
        wanted = self.schema.names if names is None else names
        return read_rows(self.root, file, pa.schema([self.schema.field(name) for name in wanted]))

    def writer(self, name: str, compression: str = "zstd") -> FileWriter:
        """Return the writer for the rows of one task; `name` is unique for batch and partition."""
        return lake_writer(self.root, self.kind, name, compression)


def lake_writer(root: str, kind: str, name: str, compression: str) -> FileWriter:
    """Return a writer for the rows of one task, without opening the lake."""
    return FileWriter(root, name, compression, is_topic_stored=kind == "iceberg")
