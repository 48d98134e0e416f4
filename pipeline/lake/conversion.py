"""Converts a lake of an older version, whose batches are described by manifests, to a Delta table; in place.

| file of the older version | content |
| --- | --- |
| `_lake.json` | format, kind (parquet, delta, iceberg), columns |
| `_manifests/<id>.json` | data files that a batch added and removed, its log and range |
| `_manifests/<id>.done` | the files of the batch are in their places, and in the table |
| `_staging/` | files of batches that were decided, but not published |
| `_delta_log/`, `metadata/`, `_catalog.db` | the table of the kinds delta and iceberg |

Data files are not written again. Those of a table are the truth if another program may have changed it (kind delta),
else those of the manifests. The steps are repeatable until `_lake.json` has its new place, which ends the conversion:

1. The log of an older table moves to `_converted/`.
2. Files move to their places: from `_staging`, and in an archive into the folder of their log.
3. A table is created, and all files are added in one commit with the numbers of all queries and archives.
4. Manifests and `_lake.json` move to `_converted/`.

Nothing else may write to the lake meanwhile.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.common.errors import PipelineError
from pipeline.lake.delta_table import LOG_FOLDER, delta, files_of
from pipeline.lake.files import FAULTS, SPANNED, DataFile, folder_of
from pipeline.lake.lake import OLD_DESCRIPTION, DamagedLake, Lake, LogRange
from store.fs.linux.files import OsFiles
from store.fs.sealed_json import unseal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from store.fs.ports import Files

CONVERTED: Final = "_converted"
_MANIFESTS: Final = "_manifests"
_JSON: Final = ".json"
_DONE: Final = ".done"
_FORMAT: Final = 1
_COMPACT: Final = "compact"
_UNKNOWN_LOG: Final = "unknown"
# The applications of transactions of older Delta tables.
_OLD_APPLICATION: Final = "dledger-lake/"
# The description is the last one: without it the conversion has ended.
_SET_ASIDE: Final = (_MANIFESTS, "_staging", "_lock", "_catalog.db", "metadata", OLD_DESCRIPTION)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)
_TYPES: Final = {
    str(kind): kind
    for kind in (
        pa.string(), pa.binary(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(),
        pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.list_(pa.string()),
        pa.map_(pa.string(), pa.string()),
    )
}  # fmt: skip


class NoOldLake(PipelineError):
    """There is no lake of an older version in a directory."""


class Converted(NamedTuple):
    """The result: the number of files and rows, and the size of the files."""

    files: int
    rows: int
    size_bytes: int


class _OldFile(NamedTuple):
    """A file in the manifests.

    Attributes:
        path: of the published file.
        staged: of the file before it was published.
        topic, date, rows: what it holds.
        log: name of the log of its rows, or unknown.
        unfinished: write and number of its batch, if it may not be in the table yet.
    """

    path: str
    staged: str
    topic: str
    date: str
    rows: int
    log: str
    unfinished: tuple[str, int] | None = None


class _OldLake(NamedTuple):
    """What the manifests say.

    Attributes:
        kind: parquet, delta or iceberg.
        schema: of the rows.
        files: the current files.
        replaced: files that a compaction removed.
        numbers: the last batch of each query.
        covered: the last range without a gap of each log.
    """

    kind: str
    schema: pa.Schema
    files: Sequence[_OldFile]
    replaced: Sequence[_OldFile]
    numbers: Mapping[str, int]
    covered: Mapping[str, LogRange]


def convert(root: str, files: Files | None = None) -> Converted:
    """Convert the lake in a directory, or complete a conversion that was interrupted.

    Raises:
        NoOldLake: it is none of an older version.
        DamagedLake: a file of it is missing or damaged; what was done so far does no harm, and the conversion may be
            repeated.
        store.errors.StoreError: a file could not be moved; likewise.
    """
    system: Files = OsFiles() if files is None else files
    if not system.exists(f"{root}/{OLD_DESCRIPTION}"):
        remedy = "Name the directory of a lake; one that is a Delta table already needs no conversion"
        raise NoOldLake(f"{root}/{OLD_DESCRIPTION}", "the description of a lake of an older version", "none", remedy)
    old = _read(root, system)
    system.make_directory(f"{root}/{CONVERTED}")
    has_logs = bool(old.covered)
    if old.kind == "delta":
        old = old._replace(files=_files_of_table(root, old, system))
    placed = [_placed(root, each, system, has_logs=has_logs) for each in old.files]
    lake = Lake.create_table(root, old.schema, has_logs=has_logs, files=system)
    lake.adopt(placed, old.numbers, tuple(old.covered.values()))
    current = lake.files()
    for name in _SET_ASIDE:
        if system.exists(f"{root}/{name}"):
            system.rename(f"{root}/{name}", f"{root}/{CONVERTED}/{name}")
    system.sync_directory(f"{root}/{CONVERTED}")
    system.sync_directory(root)
    return Converted(len(current), sum(file.rows for file in current), sum(file.size_bytes for file in current))


def _place(root: str, old: _OldFile, path: str, system: Files) -> None:
    """Move a file to its new place, unless an earlier attempt has.

    Raises:
        DamagedLake: it is in none of the places where it may be.
    """
    if system.exists(f"{root}/{path}"):
        return
    source = next((each for each in (old.path, old.staged) if system.exists(f"{root}/{each}")), None)
    if source is None:
        remedy = "Restore the file from a backup, then repeat the conversion"
        raise DamagedLake(f"{root}/{path}", "a file of the lake", f"neither there nor in {old.staged}", remedy)
    folder = f"{root}/{path}".rpartition("/")[0]
    system.make_directory(folder)
    system.rename(f"{root}/{source}", f"{root}/{path}")
    system.sync_directory(folder)


def _files_of_table(root: str, old: _OldLake, system: Files) -> list[_OldFile]:
    """Return the files of the Delta table of the lake, whose log is set aside: another program may have changed it.

    Batches that were decided, but are not in the table yet, are added; a compaction is not, because other files of the
    table have its rows.
    """
    aside = f"{root}/{CONVERTED}"
    if system.exists(f"{root}/{LOG_FOLDER}") and not system.exists(f"{aside}/{LOG_FOLDER}"):
        system.rename(f"{root}/{LOG_FOLDER}", f"{aside}/{LOG_FOLDER}")
        system.sync_directory(aside)
    table = delta().DeltaTable(aside)
    known = {each.path: each for each in (*old.files, *old.replaced)}
    logs = {each.log for each in known.values()}
    log = logs.pop() if len(logs) == 1 else _UNKNOWN_LOG
    found = [
        known.get(each.path) or _OldFile(each.path, each.path, each.topic, each.date, each.rows, log)
        for each in files_of(table, root)
    ]
    return found + [each for each in old.files if each.unfinished and not _is_in(table, *each.unfinished)]


def _is_in(table: Any, write_id: str, number: int) -> bool:
    """Return whether a batch is in a table, or is a compaction."""
    last = table.transaction_version(f"{_OLD_APPLICATION}{write_id}")
    return write_id == _COMPACT or (last is not None and last >= number)


def _placed(root: str, old: _OldFile, system: Files, *, has_logs: bool) -> DataFile:
    """Move a file to its place, in the folder of its log if the lake has logs; describe it by its footer."""
    path = old.path
    if has_logs:
        path = f"{folder_of(old.topic, old.date, old.log)}/{old.path.rpartition('/')[2]}"
    _place(root, old, path, system)
    try:
        footer = pq.read_metadata(f"{root}/{path}")
    except FAULTS as error:
        remedy = "Restore the file from a backup, then repeat the conversion"
        raise DamagedLake(f"{root}/{path}", f"a Parquet file of {old.rows} rows", str(error), remedy) from error
    if footer.num_rows != old.rows:
        remedy = "Restore the file from a backup, then repeat the conversion"
        raise DamagedLake(f"{root}/{path}", f"a file of {old.rows} rows", f"{footer.num_rows} rows", remedy)
    size_bytes = (Path(root) / path).stat().st_size
    return DataFile(path, old.topic, old.date, old.rows, size_bytes, old.log if has_logs else None, _spans_of(footer))


def _spans_of(footer: pq.FileMetaData) -> dict[str, tuple[int, int]]:
    """Return first and last value of columns, by the statistics of all row groups."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    spans = {}
    for number, name in enumerate(footer.schema.names):
        found = [group.column(number).statistics for group in groups] if name in SPANNED else []
        if found and all(each is not None and each.has_min_max and not each.null_count for each in found):
            values = [_whole(end) for each in found for end in (each.min, each.max)]
            spans[name] = min(values), max(values)
    return spans


def _whole(value: Any) -> int:
    return (value - _EPOCH) // _US if isinstance(value, datetime) else int(value)


# ---------------------------------------------------------------------------------------------------------- manifests


def _read(root: str, system: Files) -> _OldLake:
    described = _sealed(f"{root}/{OLD_DESCRIPTION}", system)
    folder = (
        f"{root}/{_MANIFESTS}" if system.is_directory(f"{root}/{_MANIFESTS}") else f"{root}/{CONVERTED}/{_MANIFESTS}"
    )
    names = system.list_directory(folder) if system.is_directory(folder) else []
    manifests = {
        name.removesuffix(_JSON): _sealed(f"{folder}/{name}", system) for name in names if name.endswith(_JSON)
    }
    removed = {path for each in manifests.values() for path in each["removed"]}
    files, numbers, ranges = list[_OldFile](), dict[str, int](), dict[str, list[tuple[int, int]]]()
    for name, each in manifests.items():
        covers, write_id = each["covers"], each["writeId"]
        log = covers["log"] if covers else each["note"].get("log") or _UNKNOWN_LOG
        if covers:
            ranges.setdefault(log, []).append((covers["begin"], covers["end"]))
        elif write_id != _COMPACT:
            numbers[write_id] = max(each["batch"], numbers.get(write_id, -1))
        unfinished = None if f"{name}{_DONE}" in names else (write_id, each["batch"])
        files += [
            _OldFile(file["path"], file["staged"], file["topic"], file["date"], file["rows"], log, unfinished)
            for file in each["files"]
        ]
    try:
        schema = pa.schema([pa.field(name, _TYPES[text]) for name, text in described["columns"]])
    except KeyError as error:
        remedy = "Restore the file from a backup; nothing was changed"
        raise DamagedLake(f"{root}/{OLD_DESCRIPTION}", "known types", str(error), remedy) from None
    covered = {log: LogRange(log, *_last_joined(sorted(found))) for log, found in ranges.items()}
    current, replaced = ([each for each in files if (each.path in removed) is is_old] for is_old in (False, True))
    return _OldLake(described["kind"], schema, current, replaced, numbers, covered)


def _last_joined(ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
    begin, end = ranges[0]
    for each in ranges[1:]:
        begin, end = (begin, max(end, each[1])) if each[0] <= end else each
    return begin, end


def _sealed(path: str, system: Files) -> dict[str, Any]:
    """Return the value in a sealed file (`store.fs.sealed_json`).

    Raises:
        DamagedLake: the content is missing or damaged.
    """
    raw = system.read_bytes(path)
    remedy = "Restore the file from a backup; nothing was changed"
    if raw is None:
        raise DamagedLake(path, "JSON with its checksum after it", "no file", remedy)
    try:
        content = unseal(raw)
    except ValueError as error:
        found = f"{len(raw)} bytes that differ"
        raise DamagedLake(path, "JSON with its checksum after it", found, remedy) from error
    if content.get("format") != _FORMAT:
        remedy = "Read it with the version that wrote it"
        raise DamagedLake(path, f"format {_FORMAT}", f"format {content.get('format')}", remedy)
    return content
