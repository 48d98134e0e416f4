"""The offset table of a restore: the old and the new place of each message. A Parquet file.

It allows converting consumer offsets (`translate`) and other references to old offsets. A restarted restore writes
another table, of the messages that it restored itself; all tables together are complete.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster.client.outcomes import MessageAppended
from pipeline.common.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA: Final = pa.schema(
    [
        ("oldTopic", pa.string()),
        ("oldQueueId", pa.int32()),
        ("oldQueueOffset", pa.int64()),
        ("oldPhysicalOffset", pa.int64()),
        ("topic", pa.string()),
        ("broker", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("physicalOffset", pa.int64()),
        ("storeTimestamp", pa.timestamp("ms", "UTC")),
        ("messageId", pa.string()),
    ]
)
_ROWS_MAX: Final = 100_000

Row = tuple[str, int, int, int, MessageAppended]


class OffsetTable:
    """Writes the table; readable once it is closed.

    Args:
        path: of the file, which must not exist; an empty table is overwritten.

    Raises:
        BadOption: the file exists: it may be the table of an earlier run that this one continues.
    """

    def __init__(self, path: str) -> None:
        if Path(path).exists() and not _is_empty(path):
            remedy = "Name another one: what an earlier run has restored is in its table alone"
            raise BadOption("table", "a new file", f"{path}, which exists", remedy)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(path, SCHEMA, compression="zstd")
        self._rows: list[tuple[Any, ...]] = []

    def add(self, rows: Sequence[Row]) -> None:
        """Record old places (topic, queue, queue offset, physical offset) and new places of messages."""
        self._rows += [
            (
                *row[:4],
                place.topic,
                place.broker,
                place.queue_id,
                place.queue_offset,
                place.physical_offset,
                place.store_timestamp,
                place.message_id,
            )
            for row in rows
            for place in row[4:]
        ]
        if len(self._rows) >= _ROWS_MAX:
            self._write()

    def close(self) -> None:
        """Write the rest; repeated calls are allowed."""
        self._write()
        self._writer.close()

    def _write(self) -> None:
        if self._rows:
            columns = [
                pa.array(column, field.type)
                for column, field in zip(zip(*self._rows, strict=True), SCHEMA, strict=True)
            ]
            self._writer.write_batch(pa.record_batch(columns, schema=SCHEMA))
            self._rows.clear()


def _is_empty(path: str) -> bool:
    """Return whether a file is a table without rows."""
    try:
        found = pq.read_metadata(path)
    except pa.ArrowInvalid:
        return False
    return bool(found.num_rows == 0 and found.schema.to_arrow_schema().names == SCHEMA.names)


def translate(table: pa.Table, offsets: Mapping[tuple[str, int], int]) -> dict[tuple[str, str, int], int]:
    """Convert consumer offsets of the old queues to offsets of the new queues.

    Args:
        table: written by `OffsetTable`; the tables of several runs joined.
        offsets: next offset to read, by old (topic, queue).

    Returns:
        Next offset to read, by (broker, topic, queue): after the last restored message below the old offset; queues
        without one are omitted, and must be read from their start.
    """
    found: dict[tuple[str, str, int], int] = {}
    for (topic, queue_id), offset in offsets.items():
        is_done = pc.and_(
            pc.and_(pc.equal(table["oldTopic"], topic), pc.equal(table["oldQueueId"], queue_id)),
            pc.less(table["oldQueueOffset"], offset),
        )
        ends = table.filter(is_done).group_by(["broker", "topic", "queueId"]).aggregate([("queueOffset", "max")])
        for row in ends.to_pylist():
            key = (row["broker"], row["topic"], row["queueId"])
            found[key] = max(found.get(key, 0), row["queueOffset_max"] + 1)
    return found
