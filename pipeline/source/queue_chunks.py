"""Decodes chunks of one queue from a broker: concatenated messages with their positions in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from commitlog.record.record import find_fault
from commitlog.record.rows import good_rows
from store.model.dispatch_batch import Int64s, Skipped

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pipeline.reading.log_reading import Reading
    from pipeline.source.broker_range import BrokerRange, Chunk


def gathered(chunk: Chunk, broker_range: BrokerRange, reading: Reading[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a chunk of a queue.

    Raises: pipeline.common.errors.CorruptRecord: a message does not match the broker's metadata, and the policy is to
    fail.
    """
    view = memoryview(chunk.data)
    sizes: Int64s = np.array(chunk.sizes, np.int64)
    ends: Int64s = np.cumsum(sizes + chunk.header_size)
    begins = ends - sizes
    # Difference between the position in the log and the position in the chunk.
    bases: Int64s = np.array(chunk.physical_offsets, np.int64) - begins
    path = f"broker {broker_range.endpoints}, topic {broker_range.topic}, queue {broker_range.queue_id}"
    first = 0
    while first < len(sizes):
        # Errors contain log positions, so each contiguous run is read separately.
        last = _end_of_run(bases, first) if reading.verify_crc else len(sizes)
        begin, end = int(begins[first]) - chunk.header_size, int(ends[last - 1])
        window = view[begin:end]
        rows = good_rows(
            np.frombuffer(window, np.uint8),
            begins[first:last] - begin,
            ends[first:last] - begin,
            bases[first:last] + begin,
            has_headers=chunk.header_size > 0,
        )
        base = int(bases[first]) + begin
        yield from reading.decode(window, rows, base, path, begin, chunk.header_size, is_topic_known=True)
        first += len(rows)
        if first < last:
            at, after, offset = int(begins[first]), int(ends[first]), int(bases[first] + begins[first])
            fault = find_fault(view, at, after, physical_offset=offset)
            expected, found = ("a message of this queue", "another one") if fault is None else fault[1:]
            reading.on_corrupt.handle(Skipped(path, at, offset, after - at, expected, found), view[at:after])
            first += 1


def _end_of_run(bases: Int64s, first: int) -> int:
    """Return the end of the run of messages that are contiguous in the log."""
    others = np.flatnonzero(bases[first:] != bases[first])
    return first + int(others[0]) if len(others) else len(bases)
