"""The unit of a consume queue: 20 bytes, big-endian, with the position of one message in the log.

| offset | size | type | field | meaning |
| ---: | ---: | --- | --- | --- |
| 0 | 8 | i64 | physical_offset | of the record in the log |
| 8 | 4 | i32 | size | bytes of the record |
| 12 | 8 | i64 | tags_code | hash of TAGS, a delivery time, or an address in the queue's extension file |

A *blank* {0, 0x7FFFFFFF, 0} is a unit without a message: before the first one of a queue that begins within a file, and
in a gap. Zeros follow the last unit.

Source: RocketMQ `ConsumeQueue` (`putMessagePositionInfo`, `fillPreBlank`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store.fs.struct_type import numpy_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from store.model.dispatch_batch import Bools, Int32s, Int64s

UNIT = struct.Struct(
    ">"
    "q"  # physical_offset
    "i"  # size
    "q"  # tags_code
)
UNIT_SIZE = 20
BLANK_SIZE = 0x7FFFFFFF
BLANK = UNIT.pack(0, BLANK_SIZE, 0)
UNIT_TYPE = numpy_type(UNIT, ("physical_offset", "size", "tags_code"))

assert UNIT.size == UNIT_SIZE


class Units(NamedTuple):
    """Consecutive units of a queue as columns of equal length; blanks have the size `BLANK_SIZE`."""

    physical_offsets: Int64s
    sizes: Int32s
    tags_codes: Int64s

    @property
    def is_blank(self) -> Bools:
        """Return a mask of the blank units."""
        is_blank: Bools = (self.sizes == BLANK_SIZE) & (self.physical_offsets == 0)
        return is_blank

    def part(self, begin: int, end: int) -> Units:
        """Return some of the units, which are not copied."""
        return Units(self.physical_offsets[begin:end], self.sizes[begin:end], self.tags_codes[begin:end])

    def sound_count(self) -> int:
        """Return the number of leading units that are plausible.

        Each must have a size, and begin at or after the end of the previous message: except for blanks, physical
        offsets of a queue ascend.
        """
        is_sound = (self.physical_offsets >= 0) & (self.sizes > 0)
        real = np.flatnonzero(is_sound & ~self.is_blank)
        ends = self.physical_offsets[real] + self.sizes[real]
        is_sound[real[1:][self.physical_offsets[real[1:]] < ends[:-1]]] = False
        return len(is_sound) if is_sound.all() else int(is_sound.argmin())


def encode_units(physical_offsets: Int64s, sizes: Int32s, tags_codes: Int64s) -> bytes:
    """Return the bytes of consecutive units."""
    units: NDArray[np.void] = np.empty(len(sizes), UNIT_TYPE)
    units["physical_offset"] = physical_offsets
    units["size"] = sizes
    units["tags_code"] = tags_codes
    return units.tobytes()


def decode_units(buffer: memoryview, position: int, count: int) -> Units:
    """Return copies of `count` units from `position` of `buffer` on, as columns."""
    return units_of(np.frombuffer(buffer, UNIT_TYPE, count, position))


def units_of(units: NDArray[np.void]) -> Units:
    """Return copies of stored units (`UNIT_TYPE`) as columns."""
    return Units(
        units["physical_offset"].astype(np.int64),
        units["size"].astype(np.int32),
        units["tags_code"].astype(np.int64),
    )
