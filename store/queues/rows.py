"""The messages of a dispatch batch by queue, with their encoded units."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store.queues.unit import UNIT_SIZE, encode_units

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.model.dispatch_batch import DispatchBatch, Int32s, Int64s
    from store.model.message import QueueKey

_RADIX_QUEUES_MAX = 1 << 15


class Rows(NamedTuple):
    """Messages of one queue, in the order of the log.

    Attributes:
        queue_offsets: of the records.
        physical_offsets: ascending.
        ends: after each record.
        units: the bytes of their units.
    """

    queue_offsets: Int64s
    physical_offsets: Int64s
    ends: Int64s
    units: memoryview

    def slice(self, begin: int, end: int) -> Rows:
        """Return the rows `[begin, end)`."""
        return Rows(
            self.queue_offsets[begin:end],
            self.physical_offsets[begin:end],
            self.ends[begin:end],
            self.units[begin * UNIT_SIZE : end * UNIT_SIZE],
        )


def rows_by_queue(batch: DispatchBatch) -> Iterator[tuple[QueueKey, Rows, bool]]:
    """Yield (queue, its messages, whether their queue offsets are consecutive) for all messages that are in queues."""
    if len(batch.queues) == 1 and len(batch) and batch.is_queued.all():
        yield batch.queues[0], *_only_queue(batch)
        return
    rows = _in_order_of_queues(batch)
    if not len(rows):
        return
    offsets, sizes = batch.physical_offsets[rows], batch.sizes[rows]
    units = memoryview(encode_units(offsets, sizes, batch.tags_codes[rows]))
    ordered = Rows(batch.queue_offsets[rows], offsets, offsets + sizes, units)
    for number, begin, end, is_regular in _groups(batch.queue_numbers[rows], ordered.queue_offsets):
        yield batch.queues[number], ordered.slice(begin, end), is_regular


def _only_queue(batch: DispatchBatch) -> tuple[Rows, bool]:
    """Return the messages of a batch that has only one queue, and whether their queue offsets are consecutive."""
    offsets, sizes, queue_offsets = batch.physical_offsets, batch.sizes, batch.queue_offsets
    units = memoryview(encode_units(offsets, sizes, batch.tags_codes))
    is_regular = len(offsets) == 1 or bool((queue_offsets[1:] - queue_offsets[:-1] == 1).all())
    return Rows(queue_offsets, offsets, offsets + sizes, units), is_regular


def runs_of(queue_offsets: Int64s) -> list[tuple[int, int]]:
    """Split rows where queue offsets are not consecutive: [begin, end) of each run."""
    if not len(queue_offsets):
        return []
    breaks = (np.flatnonzero(np.diff(queue_offsets) != 1) + 1).tolist()
    return list(zip([0, *breaks], [*breaks, len(queue_offsets)], strict=True))


def _in_order_of_queues(batch: DispatchBatch) -> Int64s:
    """Return the rows that are in queues, grouped by queue, in log order within each."""
    rows: Int64s = np.flatnonzero(batch.is_queued)
    numbers = batch.queue_numbers[rows]
    # Numpy sorts 16-bit numbers by radix, ten times as fast.
    small = numbers.astype(np.int16) if len(batch.queues) <= _RADIX_QUEUES_MAX else numbers
    return rows[np.argsort(small, kind="stable")]


def _groups(numbers: Int32s, queue_offsets: Int64s) -> Iterator[tuple[int, int, int, bool]]:
    """Yield (queue number, begin, end, whether its queue offsets are consecutive) of each run of equal numbers."""
    borders = np.flatnonzero(np.diff(numbers)) + 1
    starts = np.concatenate(([0], borders))
    is_break = np.empty(len(numbers), np.bool_)
    is_break[0] = False
    is_break[1:] = np.diff(queue_offsets) != 1
    is_break[borders] = False
    breaks = np.add.reduceat(is_break, starts, dtype=np.int64)
    ends = [*borders.tolist(), len(numbers)]
    yield from zip(numbers[starts].tolist(), starts.tolist(), ends, (breaks == 0).tolist(), strict=True)
