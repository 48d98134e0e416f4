"""Reads a slice of a log as Arrow batches, in a task.

Only the range of the slice is read, and each file is opened when it is read. Messages after the bounds of the plan are
not returned, even if they are in the same file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.columns.decoder import decode_places, decode_rows
from pipeline.columns.schema import DEFAULT_NAMES, chosen
from pipeline.log.selection import EVERYTHING, Selection
from pipeline.reading.corrupt_policy import FAIL, CorruptPolicy
from pipeline.reading.log_reading import BATCH_ROWS, Reading, T
from pipeline.reading.queue_reading import QueueReading
from pipeline.reading.slice_reading import LogReading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from commitlog.record.rows import RecordRows
    from pipeline.columns.native_columns import RecordPlaces
    from pipeline.log.slice import Slice

__all__ = ["BATCH_ROWS", "read_slice", "read_with"]


def read_slice(
    part: Slice,
    columns: Sequence[str] = DEFAULT_NAMES,
    *,
    selection: Selection = EVERYTHING,
    verify_crc: bool = False,
    on_corrupt: CorruptPolicy = FAIL,
    fail_on_data_loss: bool = True,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a slice, in the order of the log or of the queue; no batch is empty.

    Args:
        part: of `pipeline.log.slices.plan`.
        columns: of the batches, in order (`pipeline.columns.schema`).
        selection: that of the plan.
        verify_crc: compare each selected message with its checksums.
        on_corrupt: policy for bytes that hold no good message.
        fail_on_data_loss: raise if a file was deleted after planning; false: skip its messages.
        batch_rows: most rows of a batch; large bodies make batches smaller.

    Raises: pipeline.common.errors.UnknownColumn: a column does not exist. pipeline.common.errors.CorruptRecord: a
    record is damaged and the policy is to fail. pipeline.common.errors.DataLost: see `fail_on_data_loss`; names the
    lost range. pipeline.common.errors.StoreUnreadable: a file exists and cannot be read.
    """
    reading = Reading(
        _decoding(columns), selection, verify_crc, on_corrupt, fail_on_data_loss, batch_rows, _at_once(columns)
    )
    return read_with(reading, part)


def reading_of(
    columns: Sequence[str] = DEFAULT_NAMES,
    selection: Selection = EVERYTHING,
    *,
    verify_crc: bool = False,
    on_corrupt: CorruptPolicy = FAIL,
    batch_rows: int = BATCH_ROWS,
) -> Reading[pa.RecordBatch]:
    """Return the settings for reading bytes from another source; arguments and errors as in `read_slice`."""
    return Reading(_decoding(columns), selection, verify_crc, on_corrupt, True, batch_rows, _at_once(columns))


def read_with(reading: Reading[T], part: Slice) -> Iterator[T]:
    """Yield the results for the messages of a slice. Raises the same errors as `read_slice`."""
    return QueueReading(reading, part).batches() if part.is_queue else LogReading(reading, part).batches()


def _decoding(columns: Sequence[str]) -> Callable[[memoryview, RecordRows, int, int], pa.RecordBatch]:
    chosen(columns)
    return lambda view, rows, _, header_size: decode_rows(view, rows, columns, header_size=header_size)


def _at_once(columns: Sequence[str]) -> Callable[[RecordPlaces], pa.RecordBatch | None]:
    return lambda places: decode_places(places, columns)
