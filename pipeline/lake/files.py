"""The data files of a lake: Parquet, of one topic and one day each, rows by queue and offset.

A task collects rows, sorts them, and writes one file per topic and day of the store time (UTC), to its own folder below
`_staging`, which readers cannot see before the driver publishes it (`pipeline.lake.lake`). The checksum of a file is
computed before it is written, and the file is synced before the task ends.

For a lossless frame (`pipeline.columns.record_builder`) the records are rebuilt from the file's rows, and their
checksum is stored, so that a restore can verify that they equal those in the log.
"""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple
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
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from store.fs.ports import Files

STAGING: Final = "_staging"
KEY_COLUMNS: Final = ("topic", "queueId", "queueOffset", "storeTimestamp")
# The size in columns of 128 MiB of log, the input of one archive task: one file per topic and day.
_ROLL_SIZE_BYTES: Final = 192 << 20
_ROW_GROUP_ROWS: Final = 256_000
_US_A_DAY: Final = 86_400_000_000
_WRITERS: Final = 4
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WORDS: Final = ("topic", "tags", "bornHost", "storeHost")
_RISING: Final = ("queueOffset", "physicalOffset", "index", "storeTimestamp", "bornTimestamp", "bornTimestampMs")
_COMPRESSIONS: Final = {"zstd": 1, "snappy": None, "none": None}
COMPRESSIONS: Final = tuple(_COMPRESSIONS)


class UnfitRows(PipelineError):
    """Rows that cannot be stored in a lake."""


class QueueSpan(NamedTuple):
    """The part of one queue in a file: `rows` messages at offsets in [begin, end)."""

    queue_id: int
    begin: int
    end: int
    rows: int


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a lake; all paths are below the lake's root.

    Attributes:
        path: after its publication.
        staged: path written by the task.
        topic, date: of all its rows; the date is YYYY-MM-DD.
        rows: number of rows.
        size_bytes, crc32c: of the whole file.
        queues: its part of each queue.
        physical: range [begin, end) of log offsets of its records; None: not in the frame.
        index: first and last index of their entries; None in a log without entries.
        term: first and last term.
        stored_ms: first and last store timestamp.
        records_crc32c: of all records, concatenated in the order of rows; None if the frame is not lossless.
    """

    path: str
    staged: str
    topic: str
    date: str
    rows: int
    size_bytes: int
    crc32c: int
    queues: tuple[QueueSpan, ...]
    physical: tuple[int, int] | None
    index: tuple[int, int] | None
    term: tuple[int, int] | None
    stored_ms: tuple[int, int]
    records_crc32c: int | None

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object for a manifest."""
        return asdict(self) | {"queues": [list(span) for span in self.queues]}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> DataFile:
        """Return the file from the result of `as_json`."""
        known = {field.name: found[field.name] for field in fields(cls)}
        for name in ("physical", "index", "term", "stored_ms"):
            known[name] = None if known[name] is None else tuple(known[name])
        return cls(**known | {"queues": tuple(QueueSpan(*span) for span in found["queues"])})


class FileWriter:
    """Writes the files of one task.

    Args:
        root: of the lake: a directory that all tasks and the driver share.
        name: unique for the batch and the partition; part of the names of its files.
        compression: zstd, snappy or none.
        is_topic_stored: False: the topic is in the path only, as readers of partitioned Parquet expect it.
        roll_size_bytes: rows are collected in memory up to this size, then sorted and written.
        files: the file system.
    """

    def __init__(
        self,
        root: str,
        name: str,
        compression: str = "zstd",
        *,
        is_topic_stored: bool = False,
        roll_size_bytes: int = _ROLL_SIZE_BYTES,
        files: Files | None = None,
    ) -> None:
        self._root = root
        self._is_topic_stored = is_topic_stored
        # Each attempt has unique file names, so that attempts cannot interfere.
        self._name = f"{name}-{uuid.uuid4().hex[:12]}"
        self._compression = compression
        self._roll_size_bytes = roll_size_bytes
        self._files: Files = OsFiles() if files is None else files
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self._written: list[DataFile] = []
        self._has_folder = False

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
        if not self._has_folder:
            self._files.make_directory(f"{self._root}/{STAGING}/{self._name}")
            self._has_folder = True
        # Tasks run in parallel, so threads are used only for waiting on the disk.
        with ThreadPoolExecutor(_WRITERS) as writers:
            waiting = []
            for number, (date, part) in enumerate(split_sorted(batch), len(self._written)):
                file, content = self._encode(number, date, part)
                self._written.append(file)
                waiting.append(writers.submit(self._files.create_from, f"{self._root}/{file.staged}", [content]))
            for each in waiting:
                each.result()
        self._files.sync_directory(f"{self._root}/{STAGING}/{self._name}")

    def _encode(self, number: int, date: str, part: pa.RecordBatch) -> tuple[DataFile, bytes]:
        name = f"part-{self._name}-{number:05d}.parquet"
        content = encode_parquet(part if self._is_topic_stored else part.drop_columns(["topic"]), self._compression)
        staged = f"{STAGING}/{self._name}/{name}"
        described = describe(part, date, name)
        return replace(described, staged=staged, size_bytes=len(content), crc32c=crc32c(content)), content


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


def describe(part: pa.RecordBatch, date: str, name: str) -> DataFile:
    """Return the description of one file for a manifest, without size, checksum and staging path."""
    topic = part.column("topic")[0].as_py()
    queues = np.asarray(part.column("queueId").to_numpy())
    offsets = np.asarray(part.column("queueOffset").to_numpy())
    begins = np.flatnonzero(np.diff(queues, prepend=queues[0] - 1))
    ends = np.append(begins[1:], len(queues))
    spans = tuple(
        QueueSpan(int(queues[begin]), int(offsets[begin]), int(offsets[end - 1]) + 1, int(end - begin))
        for begin, end in zip(begins, ends, strict=True)
    )
    stored = _range(part, "storeTimestamp")
    assert stored is not None
    physical = _range(part, "physicalOffset")
    records_crc: int | None = None
    if not missing_columns(part.schema):
        records = build_records(part)
        records_crc = checksum_of(records)
        if physical is not None:
            last = pc.index(part.column("physicalOffset"), physical[1]).as_py()
            physical = physical[0], physical[1] + len(records[last].as_buffer())
    return DataFile(
        path=f"topic={quote(topic, safe='')}/date={date}/{name}",
        staged="",
        topic=topic,
        date=date,
        rows=part.num_rows,
        size_bytes=0,
        crc32c=0,
        queues=spans,
        physical=physical if records_crc is not None else None,
        index=_range(part, "index"),
        term=_range(part, "term"),
        stored_ms=(stored[0] // US_A_MS, stored[1] // US_A_MS),
        records_crc32c=records_crc,
    )


def checksum_of(records: pa.Array, checksum: int = 0) -> int:
    """Return the checksum of concatenated records, continuing from `checksum`."""
    if not len(records):
        return checksum
    _, offsets, data = records.buffers()
    borders = np.frombuffer(offsets, np.int32, len(records) + 1, records.offset * 4)
    return int(crc32c(memoryview(data)[int(borders[0]) : int(borders[-1])], checksum))


def encode_parquet(part: pa.RecordBatch | pa.Table, compression: str) -> bytes:
    """Return rows as a Parquet file."""
    names = part.schema.names
    stream = pa.BufferOutputStream()
    flat = {name for name in names if not pa.types.is_nested(part.schema.field(name).type)}
    pq.write_table(
        part if isinstance(part, pa.Table) else pa.Table.from_batches([part]),
        stream,
        row_group_size=_ROW_GROUP_ROWS,
        compression=compression,
        compression_level=_COMPRESSIONS[compression],
        use_dictionary=[name for name in _WORDS if name in names],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in _RISING if name in names},
        # Statistics of bodies are omitted, because no query filters by them.
        write_statistics=sorted(flat - {"body", "propertiesRaw"}),
        coerce_timestamps="us",
    )
    return bytes(stream.getvalue())


def _range(part: pa.RecordBatch, name: str) -> tuple[int, int] | None:
    if name not in part.schema.names or part.column(name).null_count == part.num_rows:
        return None
    column = part.column(name)
    found = pc.min_max(pa.array(microseconds(column)) if pa.types.is_timestamp(column.type) else column)
    return found["min"].as_py(), found["max"].as_py()


def read_rows(root: str, file: DataFile, schema: pa.Schema) -> pa.Table:
    """Return the rows of a published file.

    Args:
        root: of the lake.
        file: of the lake.
        schema: the columns to return, in order.

    Raises:
        UnfitRows: the file is missing or damaged.
    """
    path = f"{root}/{file.path}"
    try:
        with pa.memory_map(path) as content:
            table = pq.read_table(content, columns=[name for name in schema.names if name != "topic"])
    except FileNotFoundError as error:
        remedy = "Repeat it if the lake was compacted meanwhile; otherwise restore the file, or archive its range again"
        raise UnfitRows(path, f"a Parquet file of {file.rows} rows", str(error), remedy) from None
    except (OSError, pa.ArrowInvalid) as error:
        remedy = "`verify` finds all such files; restore them from a backup, or archive their range of the log again"
        raise UnfitRows(path, f"a Parquet file of {file.rows} rows", str(error), remedy) from None
    if "topic" in schema.names:
        topics = pa.repeat(pa.scalar(file.topic), len(table))
        table = table.add_column(schema.get_field_index("topic"), "topic", topics)
    return table.cast(schema)
