"""Batch consume queues, for reading: RocketMQ keeps them for topics whose messages travel in batches.

`batchconsumequeue/<topic>/<queue id>/`, 300,000 units a file by default. A unit of 46 bytes, big-endian:

| offset | size | type | field | meaning |
| ---: | ---: | --- | --- | --- |
| 0 | 8 | i64 | physical_offset | of the record, which holds the whole batch |
| 8 | 4 | i32 | size | of the record |
| 12 | 8 | i64 | tags_code | |
| 20 | 8 | i64 | store_timestamp | milliseconds since 1970 |
| 28 | 8 | i64 | base_offset | queue offset of the first message |
| 36 | 2 | i16 | batch_size | messages in the batch |
| 38 | 4 | i32 | compacted_offset | -1 |
| 42 | 4 | i32 | | 0 |

Source: RocketMQ `BatchConsumeQueue`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from store.errors import CorruptData
from store.fs.mapped_file_queue import MappedFileQueue

DIRECTORY = "batchconsumequeue"
UNIT_SIZE = 46
FILE_SIZE_BYTES = 300_000 * UNIT_SIZE
_UNIT = struct.Struct(
    ">"
    "q"  # physical_offset
    "i"  # size
    "q"  # tags_code
    "q"  # store_timestamp
    "q"  # base_offset
    "h"  # batch_size
    "i"  # compacted_offset
    "4x"
)

assert _UNIT.size == UNIT_SIZE


class BatchUnit(NamedTuple):
    """One batch of messages, which is one record of the log."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base_offset: int
    batch_size: int
    compacted_offset: int

    @property
    def is_sound(self) -> bool:
        """Whether it can be right (RocketMQ `isValid`)."""
        return self.physical_offset >= 0 and self.size > 0 and self.base_offset >= 0 and self.batch_size > 0

    @property
    def end_offset(self) -> int:
        """The queue offset behind its last message."""
        return self.base_offset + self.batch_size


class BatchConsumeQueue:
    """The units of one queue, to be read.

    Args:
        queue: its files, loaded; their size is a multiple of 46.
    """

    __slots__ = ("_count", "_queue")

    def __init__(self, queue: MappedFileQueue) -> None:
        assert queue.file_size % UNIT_SIZE == 0, queue.file_size
        self._queue = queue
        self._count = self._used_count()

    def __len__(self) -> int:
        """Return the number of batches."""
        return self._count

    @property
    def min_offset(self) -> int:
        """Queue offset of the first message; 0 without any."""
        return self.unit(0).base_offset if self._count else 0

    @property
    def max_offset(self) -> int:
        """Queue offset behind the last message; 0 without any."""
        return self.unit(self._count - 1).end_offset if self._count else 0

    def unit(self, number: int) -> BatchUnit:
        """Return a batch by its place, counted from the first that is kept."""
        offset = self._queue.begin_offset + number * UNIT_SIZE
        file = self._queue.find(offset)
        assert file is not None, (self._queue.directory, number)
        return BatchUnit._make(_UNIT.unpack_from(file.view(), offset - file.begin_offset))

    def __iter__(self) -> Iterator[BatchUnit]:
        """Iterate over all batches in order."""
        return (self.unit(number) for number in range(self._count))

    def find(self, queue_offset: int) -> BatchUnit | None:
        """Return the batch that holds a message; None: no batch does."""
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            if self.unit(middle).end_offset <= queue_offset:
                low = middle + 1
            else:
                high = middle
        unit = self.unit(low) if low < self._count else None
        return unit if unit is not None and unit.base_offset <= queue_offset else None

    def check(self) -> Iterator[CorruptData]:
        """Yield what cannot be right: units that are unsound, and batches that do not follow one another."""
        end = None
        for number, unit in enumerate(self):
            if not unit.is_sound or (end is not None and unit.base_offset < end):
                expected = "a batch" if end is None else f"a batch from queue offset {end} on"
                offset = self._queue.begin_offset + number * UNIT_SIZE
                file = self._queue.find(offset)
                assert file is not None, offset
                yield CorruptData(file.path, offset - file.begin_offset, expected, str(unit))
            end = unit.end_offset

    def _used_count(self) -> int:
        """Return how many units there are up to the last that is not zero."""
        for file in reversed(self._queue.mapped_files):
            size = file.find_data_end(file.begin_offset) - file.begin_offset
            if size:
                return (file.begin_offset - self._queue.begin_offset + size + UNIT_SIZE - 1) // UNIT_SIZE
        return 0
