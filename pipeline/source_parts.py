"""What one task of the source reads, from files or from a broker, and how: the same Arrow batches from both.

A part is small and travels to its task; what is read of it depends on nothing else than the part and `HowToRead`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from commitlog.record_scan import Stop, walk
from pipeline.chunk_client import BrokerLog, Stretch
from pipeline.corrupt_policy import FAIL, CorruptPolicy
from pipeline.plain_bodies import plain_bodies
from pipeline.read_slice import decode_chunk, read_slice
from pipeline.selection import Selection
from pipeline.slice import Slice

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
            for chunk in log.read(stretch):
                if block.data and (chunk.header_size != block.header_size or len(block.data) >= _BLOCK_BYTES):
                    is_other = chunk.header_size != block.header_size
                    yield from self._decode(block.take_all() if is_other else block.take_whole(), stretch, selection)
                block.add(chunk.data, chunk.header_size, chunk.offset)
            yield from self._decode(block.take_all(), stretch, selection)
        finally:
            log.close()

    def _decode(self, block: _Block, stretch: Stretch, selection: Selection) -> Iterator[pa.RecordBatch]:
        return decode_chunk(
            bytes(block.data),
            block.offset,
            self.columns,
            header_size=block.header_size,
            source=f"broker {stretch.endpoints}",
            selection=selection,
            verify_crc=self.verify_crc,
            on_corrupt=self.on_corrupt,
        )


class _Block:
    """Bytes of a log that were received and not decoded yet; a chunk may be cut anywhere."""

    def __init__(self, data: bytearray | None = None, header_size: int = 0, offset: int = 0) -> None:
        self.data = bytearray() if data is None else data
        self.header_size = header_size
        self.offset = offset

    def add(self, data: bytes, header_size: int, offset: int) -> None:
        if not self.data:
            self.header_size, self.offset = header_size, offset
        self.data += data

    def take_all(self) -> _Block:
        """Return everything, and hold nothing."""
        taken = _Block(self.data, self.header_size, self.offset)
        self.data = bytearray()
        return taken

    def take_whole(self) -> _Block:
        """Return the whole records, and hold what is left of one that was cut.

        Where bytes hold no good record nothing tells where the next one begins: then all is held until more is here.
        """
        position, view = 0, memoryview(self.data)
        while position < len(view):
            found = walk(view, position, len(view), header_size=self.header_size)
            is_whole, position = found.stop is Stop.END, found.position
            if found.stop is Stop.BLANK:
                behind = position + _blank_size(view, position, self.header_size)
                is_whole, position = behind <= len(view), min(behind, len(view)) if behind <= len(view) else position
            if not is_whole:
                break
        taken = _Block(bytearray(view[:position]), self.header_size, self.offset)
        rest = bytearray(view[position:])
        view.release()
        self.offset += position
        self.data = rest
        return taken


def _blank_size(view: memoryview, position: int, header_size: int) -> int:
    """Return the size of a filler: it stands first in the plain log, and second in an entry."""
    at = position + (4 if header_size else 0)
    return max(int.from_bytes(view[at : at + 4], "big", signed=True), 1)
