"""Reads one range of a broker's log: joins chunks and decodes them in large blocks.

The broker sends the begins of the entries with each chunk, from its index. A plain log has no index, so its records are
found by a scan. The begins are used if the entries are contiguous according to their sizes.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from commitlog.record.rows import gather, good_rows
from commitlog.record.scan import Stop, blank_size, walk
from dledger.entries.format.entry import HEADER_SIZE
from pipeline.common.errors import DataLost
from pipeline.reading.log_reading import BATCH_ROWS, Reading
from pipeline.source.chunk_client import BrokerLog
from pipeline.source.queue_chunks import gathered
from store.model.message import QueueKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pipeline.source.broker_range import BrokerRange, Chunk
    from store.model.dispatch_batch import Int64s

_log = logging.getLogger(__name__)

# Bytes that are decoded at once.
_BLOCK_BYTES = 8 << 20
# Position of the size in an entry's header.
_SIZE_AT: Final = 4
_NONE: Final[Int64s] = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class BrokerReading:
    """Reads a range of a log.

    Attributes:
        broker_range: of the log, or of a queue.
        reading: settings.
        fail_on_data_loss: raise if messages were deleted after planning; false: skip them.
        patience_s: seconds for which calls are retried.
    """

    broker_range: BrokerRange
    reading: Reading[pa.RecordBatch]
    fail_on_data_loss: bool
    patience_s: float

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield its messages.

        Raises:
            pipeline.common.errors.PipelineError: see `BrokerLog.read` and `pipeline.reading.read_slice.read_slice`.
        """
        log = BrokerLog(self.broker_range.endpoints, self.patience_s)
        try:
            if self.broker_range.topic:
                for chunk in self._chunks(log):
                    yield from gathered(chunk, self.broker_range, self.reading)
            else:
                yield from self._of_log(log)
        finally:
            log.close()

    def _of_log(self, log: BrokerLog) -> Iterator[pa.RecordBatch]:
        block = _Block()
        for chunk in self._chunks(log):
            if block.size and chunk.header_size != block.header_size:
                yield from self._decode(block.take_all())
            elif block.size and chunk.offset != block.end_offset:
                # The bytes between were deleted; the rest of a cut record is dropped with them.
                yield from self._decode(block.take_whole())
                block.take_all()
            block.add(chunk)
            if block.size >= _BLOCK_BYTES:
                yield from self._decode(block.take_whole())
        yield from self._decode(block.take_all())

    def _chunks(self, log: BrokerLog) -> Iterator[Chunk]:
        """Yield the chunks of the range; without deleted messages if `fail_on_data_loss` is false."""
        broker_range = self.broker_range
        begin = broker_range.begin
        while begin < broker_range.end:
            try:
                for chunk in log.read(broker_range._replace(begin=begin)):
                    yield chunk
                    begin = chunk.next_offset
            except DataLost as lost:
                if self.fail_on_data_loss:
                    raise
                _log.warning("skipped, because failOnDataLoss is false: %s", lost)
                begin = max(begin + 1, _first_kept(log, broker_range))

    def _decode(self, taken: _Taken) -> Iterator[pa.RecordBatch]:
        data, offset, header_size, begins = taken
        name = f"broker {self.broker_range.endpoints}"
        ends: Int64s = np.append(begins[1:], len(data))
        first = position = 0
        while first < len(begins):
            last = min(first + BATCH_ROWS, len(begins))
            position = int(begins[first])
            window = data[position : int(ends[last - 1])]
            starts, stops = begins[first:last] + (header_size - position), ends[first:last] - position
            found = self.reading.decode_at_once(window, starts, stops, offset + position, header_size)
            if found is not None:
                yield found
                first, position = last, int(ends[last - 1])
                continue
            rows = good_rows(
                np.frombuffer(window, np.uint8), starts, stops, offset + position, has_headers=header_size > 0
            )
            yield from self.reading.decode(window, rows, offset + position, name, position, header_size)
            if len(rows) < last - first:
                # A filler, a no-op entry of a leader, or bad bytes: the scan handles all three.
                position = int(begins[first + len(rows)])
                break
            first, position = last, int(ends[last - 1])
        yield from self.reading.walk(data, offset, name, header_size, position=position)


def _first_kept(log: BrokerLog, broker_range: BrokerRange) -> int:
    """Return the offset of the first message that is not deleted; the end of the range if there is none."""
    found = log.describe((broker_range.topic,) if broker_range.topic else ())
    if not broker_range.topic:
        return found.begin_offset
    return found.spans.get(QueueKey(broker_range.topic, broker_range.queue_id), (broker_range.end, 0))[0]


class _Taken(NamedTuple):
    """Complete records of a log, and their positions.

    Attributes:
        data: the bytes.
        offset: of the first byte in the log.
        header_size: bytes before each record.
        begins: known begins of records in `data`, including the bytes before them.
    """

    data: memoryview
    offset: int
    header_size: int
    begins: Int64s


class _Block:
    """Received bytes of a log that are not decoded yet; a chunk may be cut anywhere."""

    def __init__(self) -> None:
        self.size = 0
        self.header_size = 0
        self._offset = 0
        self._pieces: list[bytes | memoryview] = []
        # Begins of records for each piece; None: the broker did not send them.
        self._begins: list[Int64s] = []

    @property
    def end_offset(self) -> int:
        """Offset after the last byte."""
        return self._offset + self.size

    def add(self, chunk: Chunk) -> None:
        if not self.size:
            self.header_size, self._offset = chunk.header_size, chunk.offset
        self._add(chunk.data, np.frombuffer(chunk.begins, "<i4"))

    def take_all(self) -> _Taken:
        """Remove and return all bytes."""
        data = memoryview(b"".join(self._pieces))
        begins = np.concatenate(self._begins) if self._begins else _NONE
        begins = begins if _are_contiguous(data, begins) else _NONE
        taken = _Taken(data, self._offset, self.header_size, begins)
        self._pieces, self._begins, self.size = [], [], 0
        return taken

    def take_whole(self) -> _Taken:
        """Remove and return the complete records; keep the bytes of a cut record.

        After bytes without a good record the next begin is unknown: they are kept until more bytes arrive.
        """
        all_of_it = self.take_all()
        begins, position = all_of_it.begins, 0
        if len(begins):
            # The last record is known to be complete when the next one begins.
            begins, position = begins[:-1], int(begins[-1])
        else:
            begins, position = _walked(all_of_it)
        data = all_of_it.data
        if position < len(data):
            self._offset = all_of_it.offset + position
            # A record begins there, according to its header.
            self._add(data[position:], np.zeros(1, np.int64))
        return all_of_it._replace(data=data[:position], begins=begins)

    def _add(self, data: bytes | memoryview, begins: Int64s) -> None:
        self._begins.append(begins.astype(np.int64) + self.size)
        self._pieces.append(data)
        self.size += len(data)


def _are_contiguous(data: memoryview, begins: Int64s) -> bool:
    """Return whether entries with these begins are contiguous from the first byte on, according to their sizes."""
    if not len(begins) or begins[0]:
        return False
    sizes = np.diff(begins)
    if not len(sizes):
        return True
    if begins[-1] > len(data) or sizes.min() < HEADER_SIZE:
        return False
    return bool((gather(np.frombuffer(data, np.uint8), begins[:-1] + _SIZE_AT, ">i4") == sizes).all())


def _walked(taken: _Taken) -> tuple[Int64s, int]:
    """Scan for records; return their positions and the position after the last complete record."""
    data, header_size, position = taken.data, taken.header_size, 0
    starts: list[int] = []
    while position < len(data):
        found = walk(data, position, len(data), header_size=header_size)
        starts += found.starts
        position = found.position
        if found.stop is Stop.BLANK:
            after = position + blank_size(data, position, header_size)
            if after > len(data):
                break
            position = after
        elif found.stop is not Stop.END:
            break
    return np.array(starts, np.int64) - header_size, position
