"""Reads a slice of a log as Arrow batches: what a task does.

Only the range of the slice is read, and a file is opened only when it is read. Messages after the bounds of
the plan are not returned, even if they are in the same file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.columns.decoder import decode_rows
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
        verify_crc: compare each wanted message with its checksums.
        on_corrupt: what to do with bytes that hold no good message.
        fail_on_data_loss: raise when a file is gone since the plan was made, instead of leaving its messages out.
        batch_rows: of one batch at most; large bodies make batches smaller.

    Raises:
        pipeline.common.errors.UnknownColumn: a column is not there.
        pipeline.common.errors.CorruptRecord: the policy says so.
        pipeline.common.errors.DataLost: see `fail_on_data_loss`; it names what is lost.
        pipeline.common.errors.StoreUnreadable: a file is there and cannot be read.
    """
    reading = Reading(_decoding(columns), selection, verify_crc, on_corrupt, fail_on_data_loss, batch_rows)
    return read_with(reading, part)


def reading_of(
    columns: Sequence[str] = DEFAULT_NAMES,
    selection: Selection = EVERYTHING,
    *,
    verify_crc: bool = False,
    on_corrupt: CorruptPolicy = FAIL,
    batch_rows: int = BATCH_ROWS,
) -> Reading[pa.RecordBatch]:
    """Return a description of how to read bytes from another source; arguments and errors as of `read_slice`."""
    return Reading(_decoding(columns), selection, verify_crc, on_corrupt, True, batch_rows)


def read_with(reading: Reading[T], part: Slice) -> Iterator[T]:
    """Yield the results for the messages of a slice; raises as `read_slice`."""
    return QueueReading(reading, part).batches() if part.is_queue else LogReading(reading, part).batches()


def _decoding(columns: Sequence[str]) -> Callable[[memoryview, RecordRows, int, int], pa.RecordBatch]:
    chosen(columns)
    return lambda view, rows, _, header_size: decode_rows(view, rows, columns, header_size=header_size)
