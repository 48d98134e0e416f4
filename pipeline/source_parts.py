"""What one task of the source reads, from files or from a broker, and how: the same Arrow batches from both.

A part is small and travels to its task; what is read of it depends on nothing else than the part and `HowToRead`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from commitlog.record_scan import Stop, walk
from pipeline.chunk_client import BrokerLog, Chunk, Stretch
from pipeline.corrupt_policy import FAIL, CorruptPolicy
from pipeline.errors import DataLost
from pipeline.log_reading import Reading
from pipeline.plain_bodies import plain_bodies
from pipeline.queue_chunks import gathered
from pipeline.read_slice import read_slice, reading_of
from pipeline.selection import Selection
from pipeline.slice import Slice
from store.message import QueueKey

_log = logging.getLogger(__name__)

# So many bytes that came over the network are decoded at once.
_BLOCK_BYTES = 8 << 20


class Part(NamedTuple):
    """What one task reads.

    Attributes:
        place: a slice of files, or a stretch of a broker's log.
        selection: what is wanted of it.
    """

    place: Slice | Stretch
    selection: Selection


@dataclass(frozen=True, slots=True)
class HowToRead:
    """What all tasks of a query have in common.

    Attributes:
        columns: of the native schema.
        verify_crc, on_corrupt, fail_on_data_loss: as of `pipeline.read_slice.read_slice`.
        is_decompressing: give bodies that clients compressed as they were before.
    """

    columns: tuple[str, ...]
    verify_crc: bool = False
    on_corrupt: CorruptPolicy = FAIL
    fail_on_data_loss: bool = True
    is_decompressing: bool = False

    def read(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a part, in the order of the log or of the queue.

        Raises:
            pipeline.errors.PipelineError: see `read_slice`, and `BrokerLog.read`.
        """
        if self.is_decompressing and "body" in self.columns:
            plain = replace(self, columns=tuple(dict.fromkeys((*self.columns, "sysFlag"))), is_decompressing=False)
            return (plain_bodies(batch).select(self.columns) for batch in plain.read(part))
        if isinstance(part.place, Stretch):
            return self._of_broker(part.place, part.selection)
        return read_slice(
            part.place,
            self.columns,
            selection=part.selection,
            verify_crc=self.verify_crc,
            on_corrupt=self.on_corrupt,
            fail_on_data_loss=self.fail_on_data_loss,
        )

    def _of_broker(self, stretch: Stretch, selection: Selection) -> Iterator[pa.RecordBatch]:
        log = BrokerLog(stretch.endpoints)
        block = _Block()
        try:
            if stretch.topic:
                for chunk in self._chunks(log, stretch):
                    yield from gathered(chunk, stretch, self._reading(selection))
                return
            for chunk in self._chunks(log, stretch):
                if block.size and chunk.header_size != block.header_size:
                    yield from self._decode(block.take_all(), stretch, selection)
                elif block.size and chunk.offset != block.end_offset:
                    # What lay between was deleted: what is left of a record that was cut goes with it.
                    yield from self._decode(block.take_whole(), stretch, selection)
                    block.take_all()
                block.add(chunk)
                if block.size >= _BLOCK_BYTES:
                    yield from self._decode(block.take_whole(), stretch, selection)
            yield from self._decode(block.take_all(), stretch, selection)
        finally:
            log.close()

    def _chunks(self, log: BrokerLog, stretch: Stretch) -> Iterator[Chunk]:
        """Yield a stretch; without what was deleted meanwhile, if that is allowed."""
        begin = stretch.begin
        while begin < stretch.end:
            try:
                for chunk in log.read(stretch._replace(begin=begin)):
                    yield chunk
                    begin = chunk.next_offset
            except DataLost as lost:
                if self.fail_on_data_loss:
                    raise
                _log.warning("left out, for failOnDataLoss is false: %s", lost)
                begin = max(begin + 1, _first_kept(log, stretch))

    def _decode(self, block: _Taken, stretch: Stretch, selection: Selection) -> Iterator[pa.RecordBatch]:
        reading = self._reading(selection)
        return reading.walk(block.data, block.offset, f"broker {stretch.endpoints}", block.header_size)

    def _reading(self, selection: Selection) -> Reading[pa.RecordBatch]:
        return reading_of(self.columns, selection, verify_crc=self.verify_crc, on_corrupt=self.on_corrupt)


def _first_kept(log: BrokerLog, stretch: Stretch) -> int:
    """Return where the first message is that is still there; the stretch's end when none is."""
    found = log.describe((stretch.topic,) if stretch.topic else ())
    if not stretch.topic:
        return found.begin_offset
    return found.spans.get(QueueKey(stretch.topic, stretch.queue_id), (stretch.end, 0))[0]


class _Taken(NamedTuple):
    """Bytes of a log, whole records, and where they stand."""

    data: memoryview
    offset: int
    header_size: int


class _Block:
    """Bytes of a log that were received and not decoded yet; a chunk may be cut anywhere."""

    def __init__(self) -> None:
        self.size = 0
        self.header_size = 0
        self._offset = 0
        self._pieces: list[bytes | memoryview] = []

    @property
    def end_offset(self) -> int:
        """Behind the last byte."""
        return self._offset + self.size

    def add(self, chunk: Chunk) -> None:
        if not self.size:
            self.header_size, self._offset = chunk.header_size, chunk.offset
        self._pieces.append(chunk.data)
        self.size += len(chunk.data)

    def take_all(self) -> _Taken:
        """Return everything, and hold nothing."""
        taken = _Taken(memoryview(b"".join(self._pieces)), self._offset, self.header_size)
        self._pieces, self.size = [], 0
        return taken

    def take_whole(self) -> _Taken:
        """Return the whole records, and hold what is left of one that was cut.

        Where bytes hold no good record nothing tells where the next one begins: then all is held until more is here.
        """
        view, offset, header_size = self.take_all()
        position = 0
        while position < len(view):
            found = walk(view, position, len(view), header_size=header_size)
            position = found.position
            if found.stop is Stop.BLANK:
                behind = position + _blank_size(view, position, header_size)
                if behind > len(view):
                    break
                position = behind
            elif found.stop is not Stop.END:
                break
        if position < len(view):
            self._pieces, self.size, self._offset = [view[position:]], len(view) - position, offset + position
        return _Taken(view[:position], offset, header_size)


def _blank_size(view: memoryview, position: int, header_size: int) -> int:
    """Return the size of a filler: it stands first in the plain log, and second in an entry."""
    at = position + (4 if header_size else 0)
    return max(int.from_bytes(view[at : at + 4], "big", signed=True), 1)
