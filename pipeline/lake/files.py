"""The data files of a lake: Parquet, of one topic and one day each, rows by queue and offset.

    <root>/topic=<topic>/date=<YYYY-MM-DD>/part-<task>-<random>-<number>.parquet              a lake of a query
    <root>/topic=<topic>/date=<YYYY-MM-DD>/log=<log>/part-<task>-<random>-<number>.parquet    an archive

A task collects rows, sorts them, and writes one file per topic and day of the store time (UTC), durably, before it
ends. Names are unique for each attempt, and readers do not see a file before the driver commits it
(`pipeline.lake.lake`); what is never committed is deleted by `pipeline.lake.maintenance.vacuum`.

Each page of a file has a checksum (the Parquet format's CRC-32). For a lossless frame
(`pipeline.columns.record_builder`) the records are rebuilt from the file's rows, and the CRC-32C of all of them is in
the file's key-value metadata, so that `verify` and a restore can prove that they equal those in the log.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from crc32c import crc32c

from pipeline.columns.record_builder import build_records, missing_columns
from pipeline.columns.times import US_A_MS, microseconds
from pipeline.common.errors import PipelineError
from store.fs.linux.files import OsFiles

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from numpy.typing import NDArray

    from store.fs.ports import Files

RECORDS_CRC: Final = b"dledger.records.crc32c"
KEY_COLUMNS: Final = ("topic", "queueId", "queueOffset", "storeTimestamp")
# The size in columns of 128 MiB of log, the input of one archive task: one file per topic and day.
_ROLL_SIZE_BYTES: Final = 192 << 20
_ROW_GROUP_ROWS: Final = 256_000
_US_A_DAY: Final = 86_400_000_000
_WRITERS: Final = 4
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WORDS: Final = ("topic", "tags", "bornHost", "storeHost")
_RISING: Final = ("queueOffset", "physicalOffset", "index", "storeTimestamp", "bornTimestamp", "bornTimestampMs")
_COMPRESSIONS: Final = {"zstd": 1, "snappy": None, "none": None}
COMPRESSIONS: Final = tuple(_COMPRESSIONS)


# Of reading a damaged file. A footer has no checksum, so its damage appears as names, types and numbers of any kind.
FAULTS: Final = (OSError, ValueError, pa.ArrowException)


class UnfitRows(PipelineError):
    """Rows that cannot be stored in a lake."""


# Columns whose first and last values the Delta log has, for readers that choose files.
SPANNED: Final = ("queueId", *_RISING)


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a lake.

    Attributes:
        path: below the lake's root.
        topic, date: of all its rows; the date is YYYY-MM-DD.
        rows: number of rows.
        size_bytes: of the file.
        log: name of the log of all its rows; None: not known.
        spans: first and last value of columns (`SPANNED`), times in microseconds since 1970. A column that is absent,
            has nulls, or whose values are not known, is left out.
    """

    path: str
    topic: str
    date: str
    rows: int
    size_bytes: int
    log: str | None
    spans: Mapping[str, tuple[int, int]]

    @property
    def physical(self) -> tuple[int, int] | None:
        """The log offsets of its first and last record; None: not known."""
        return self.spans.get("physicalOffset")

    @property
    def stored_ms(self) -> tuple[int, int] | None:
        """The first and last store timestamp, milliseconds; None: not known."""
        found = self.spans.get("storeTimestamp")
        return None if found is None else (found[0] // US_A_MS, found[1] // US_A_MS)

    def may_hold(self, topics: Collection[str] | None, begin_ms: int | None, end_ms: int | None) -> bool:
        """Return whether it may have rows of these topics (None: all) stored in [begin, end) (None: at any time)."""
        if topics is not None and self.topic not in topics:
            return False
        stored_ms = self.stored_ms
        if stored_ms is None:
            return True
        return (begin_ms is None or stored_ms[1] >= begin_ms) and (end_ms is None or stored_ms[0] < end_ms)


class FileWriter:
    """Writes the files of one task.

    Args:
        root: of the lake: a directory that all tasks and the driver share.
        name: unique for the batch and the partition; part of the names of its files.
        compression: zstd, snappy or none.
        log: name of the log of all rows, in a lake that has logs; else None.
        roll_size_bytes: rows are collected in memory up to this size, then sorted and written.
        files: the file system.
    """

    def __init__(
        self,
        root: str,
        name: str,
        compression: str = "zstd",
        *,
        log: str | None = None,
        roll_size_bytes: int = _ROLL_SIZE_BYTES,
        files: Files | None = None,
    ) -> None:
        self._root = root
        self._log = log
        # Each attempt has unique file names, so that attempts cannot interfere.
        self._name = f"{name}-{uuid.uuid4().hex[:12]}"
        self._compression = compression
        self._roll_size_bytes = roll_size_bytes
        self._files: Files = OsFiles() if files is None else files
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self._written: list[DataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows.

        Raises:
            UnfitRows: a column is missing, or a key is null.
            store.errors.StoreError: a file could not be written.
        """
        check_lake_schema(batch.schema)
        if not batch.num_rows:
            return
        for name in KEY_COLUMNS:
            if batch.column(name).null_count:
                raise UnfitRows(f"column {name!r}", "a value in each row", "null", "Filter such rows out")
        self._gathered.append(batch)
        self._gathered_bytes += batch.nbytes
        if self._gathered_bytes >= self._roll_size_bytes:
            self._roll()

    def finish(self) -> list[DataFile]:
        """Write the rest; return all files, which are durable."""
        self._roll()
        return self._written

    def _roll(self) -> None:
        if not self._gathered:
            return
        (batch,) = pa.Table.from_batches(self._gathered).combine_chunks().to_batches()
        self._gathered, self._gathered_bytes = [], 0
        # Tasks run in parallel, so threads are used only for waiting on the disk.
        with ThreadPoolExecutor(_WRITERS) as writers:
            waiting = []
            folders = set[str]()
            for number, (date, part) in enumerate(split_sorted(batch), len(self._written)):
                file, content = self._encode(number, date, part)
                self._written.append(file)
                path = f"{self._root}/{file.path}"
                folder = str(Path(path).parent)
                if folder not in folders:
                    self._files.make_directory(folder)
                    folders.add(folder)
                waiting.append(writers.submit(self._files.create_from, path, [content]))
            for each in waiting:
                each.result()
        for folder in sorted(folders):
            self._files.sync_directory(folder)

    def _encode(self, number: int, date: str, part: pa.RecordBatch) -> tuple[DataFile, bytes]:
        described = describe(part, date, f"part-{self._name}-{number:05d}.parquet", self._log)
        content = encode_parquet(part.drop_columns(["topic"]), self._compression, _records_crc(part))
        return replace(described, size_bytes=len(content)), content


def plain_name(text: str) -> str:
    """Return a name for files of a write: its id if that has only plain characters, else a hash of it."""
    return text if _PLAIN.fullmatch(text) else hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def check_lake_schema(schema: pa.Schema) -> None:
    """Check that a frame has the columns by which a lake is sorted.

    Raises:
        UnfitRows: a column is missing.
    """
    for name in KEY_COLUMNS:
        if name not in schema.names:
            remedy = f"A lake needs {', '.join(KEY_COLUMNS)}, and all columns of the source to be lossless"
            raise UnfitRows(f"column {name!r}", "a column of this name", f"only {schema.names}", remedy)


def split_sorted(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield (date, rows) for each topic and day, in order; rows are sorted by queue and offset."""
    known = pc.dictionary_encode(batch.column("topic").cast(pa.string()))
    topics = np.asarray(known.indices.to_numpy(), np.int64)
    days = microseconds(batch.column("storeTimestamp")) // _US_A_DAY
    day_names, day_codes = np.unique(days, return_inverse=True)
    parts = topics * len(day_names) + day_codes
    offsets = batch.column("queueOffset").to_numpy()
    queues = np.asarray(batch.column("queueId").to_numpy(), np.int64)
    order = _order(parts, queues, np.asarray(offsets, np.int64))
    if order is not None:
        batch, parts = batch.take(pa.array(order)), parts[order]
    begins = np.flatnonzero(np.diff(parts, prepend=-1))
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(parts)], strict=True):
        day = int(day_names[parts[begin] % len(day_names)])
        yield f"{_EPOCH + timedelta(days=day):%Y-%m-%d}", batch.slice(begin, end - begin)


def _order(parts: NDArray[Any], queues: NDArray[Any], offsets: NDArray[Any]) -> NDArray[Any] | None:
    """Return the sorted order of rows; None: they are already sorted."""
    queue_codes = np.unique(queues, return_inverse=True)[1]
    keys = parts * (int(queue_codes.max()) + 1) + queue_codes
    # A radix sort of small integers; rows from one log are already in queue order.
    order = np.argsort(keys.astype(np.uint16) if keys.max() < 1 << 16 else keys, kind="stable")
    sorted_keys, sorted_offsets = keys[order], offsets[order]
    is_back = (np.diff(sorted_keys) == 0) & (np.diff(sorted_offsets) < 0)
    if is_back.any():
        order = np.lexsort((offsets, keys))
    return None if (np.diff(order) == 1).all() else order


def describe(part: pa.RecordBatch, date: str, name: str, log: str | None) -> DataFile:
    """Describe one file of these rows, without its size."""
    topic = part.column("topic")[0].as_py()
    return DataFile(
        path=f"{folder_of(topic, date, log)}/{name}",
        topic=topic,
        date=date,
        rows=part.num_rows,
        size_bytes=0,
        log=log,
        spans={name: span for name in SPANNED if (span := _span(part, name)) is not None},
    )


def folder_of(topic: str, date: str, log: str | None) -> str:
    """The folder of files, below the root: Hive's layout of partitions, which Spark and Arrow know."""
    folder = f"topic={quote(topic, safe='')}/date={date}"
    return folder if log is None else f"{folder}/log={quote(log, safe='')}"


def _records_crc(part: pa.RecordBatch) -> int | None:
    """The checksum of all records, concatenated in the order of rows; None if the frame is not lossless."""
    return None if missing_columns(part.schema) else checksum_of(build_records(part))


def checksum_of(records: pa.Array, checksum: int = 0) -> int:
    """Return the checksum of concatenated records, continuing from `checksum`."""
    if not len(records):
        return checksum
    _, offsets, data = records.buffers()
    borders = np.frombuffer(offsets, np.int32, len(records) + 1, records.offset * 4)
    return int(crc32c(memoryview(data)[int(borders[0]) : int(borders[-1])], checksum))


def encode_parquet(part: pa.RecordBatch | pa.Table, compression: str, records_crc: int | None = None) -> bytes:
    """Return rows as a Parquet file, with the checksum of their records if it is given."""
    names = part.schema.names
    table = part if isinstance(part, pa.Table) else pa.Table.from_batches([part])
    if records_crc is not None:
        table = table.replace_schema_metadata({RECORDS_CRC: b"%d" % records_crc})
    stream = pa.BufferOutputStream()
    flat = {name for name in names if not pa.types.is_nested(part.schema.field(name).type)}
    pq.write_table(
        table,
        stream,
        row_group_size=_ROW_GROUP_ROWS,
        compression=compression,
        compression_level=_COMPRESSIONS[compression],
        use_dictionary=[name for name in _WORDS if name in names],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in _RISING if name in names},
        # Statistics of bodies are omitted, because no query filters by them.
        write_statistics=sorted(flat - {"body", "propertiesRaw"}),
        coerce_timestamps="us",
        write_page_checksum=True,
    )
    return bytes(stream.getvalue())


def _span(part: pa.RecordBatch, name: str) -> tuple[int, int] | None:
    if name not in part.schema.names or part.column(name).null_count:
        return None
    column = part.column(name)
    found = pc.min_max(pa.array(microseconds(column)) if pa.types.is_timestamp(column.type) else column)
    return found["min"].as_py(), found["max"].as_py()


def read_rows(root: str, file: DataFile, schema: pa.Schema) -> pa.Table:
    """Return the rows of a committed file; the checksum of each page that has one is compared.

    Args:
        root: of the lake.
        file: of the lake.
        schema: the columns to return, in order.

    Raises:
        UnfitRows: the file is missing or damaged.
    """
    path, expected = f"{root}/{file.path}", f"a Parquet file of {file.rows} rows"
    try:
        with pa.memory_map(path) as content:
            names = [name for name in schema.names if name != "topic"]
            table = pq.ParquetFile(content, page_checksum_verification=True).read(names)
            if "topic" in schema.names:
                topics = pa.repeat(pa.scalar(file.topic), len(table))
                table = table.add_column(schema.get_field_index("topic"), "topic", topics)
            if missing := [name for name in names if name not in table.schema.names]:
                raise UnfitRows(path, expected, f"no column {missing[0]!r}", _RESTORE)
            rows = table.cast(schema)
    except FileNotFoundError as error:
        remedy = (
            "Repeat it if small files were joined and deleted meanwhile; else restore it, or archive its range again"
        )
        raise UnfitRows(path, expected, str(error), remedy) from None
    except FAULTS as error:
        raise UnfitRows(path, expected, str(error), _RESTORE) from None
    if len(rows) != file.rows:
        raise UnfitRows(path, expected, f"{len(rows)} rows", _RESTORE)
    return rows


def records_crc_of(root: str, file: DataFile) -> int | None:
    """The checksum of all records that the file's metadata has; None: it has none.

    Raises:
        UnfitRows: the file is missing, or its footer is damaged.
    """
    path = f"{root}/{file.path}"
    try:
        found = (pq.read_metadata(path).metadata or {}).get(RECORDS_CRC)
        return None if found is None else int(found)
    except FAULTS as error:
        raise UnfitRows(path, f"a Parquet file of {file.rows} rows", str(error), _RESTORE) from None


_RESTORE: Final = (
    "`dledger spark lake verify` finds all such files; restore them, or archive their range of the log again"
)
