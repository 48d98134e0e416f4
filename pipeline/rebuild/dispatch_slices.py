"""Computes the queue units and index items of a slice's messages, batch by batch, as the broker does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commitlog.record.columns import batch_of
from pipeline.log.selection import EVERYTHING
from pipeline.reading.corrupt_policy import FAIL
from pipeline.reading.log_reading import BATCH_ROWS, Reading
from pipeline.reading.read_slice import read_with

if TYPE_CHECKING:
    from collections.abc import Iterator

    from commitlog.record.rows import RecordRows
    from pipeline.log.slice import Slice
    from store.model.dispatch_batch import DispatchBatch


def dispatch_batches(part: Slice, *, has_keys: bool) -> Iterator[DispatchBatch]:
    """Yield the columns of the messages of a slice of the log, in log order.

    Args:
        part: of `pipeline.log.slices.plan`, with all messages selected.
        has_keys: whether to extract keys; consume queues do not need them.

    Raises:
        pipeline.common.errors.PipelineError: as `pipeline.reading.read_slice.read_slice`.
    """

    def make(view: memoryview, rows: RecordRows, base: int, _header_size: int) -> DispatchBatch:
        return batch_of(view, rows, base, int(rows.begins[0]), has_keys=has_keys)

    assert not part.is_queue, part
    return read_with(Reading(make, EVERYTHING, False, FAIL, True, BATCH_ROWS), part)
