"""The layout of a file of the key index, which maps the hash of a key to messages.

| offset | size | type | field | meaning |
| ---: | ---: | --- | --- | --- |
| 0 | 8 | i64 | begin_timestamp | store time of the first message; of a new file: the end of the file before |
| 8 | 8 | i64 | end_timestamp | store time of the last message |
| 16 | 8 | i64 | begin_physical_offset | of the first message; of a new file: the end of the file before |
| 24 | 8 | i64 | end_physical_offset | of the last message's record |
| 32 | 4 | i32 | used_slots | slots that are not 0 |
| 36 | 4 | i32 | next_item | number of the next item; 1 in an empty file |
| 40 | 4 * slots | i32 | slots | of each slot: its newest item, 0: none |
| then | 20 * items | | items | item 0 is never used |

| offset | size | type | field | meaning |
| ---: | ---: | --- | --- | --- |
| 0 | 4 | i32 | key_hash | `store.model.java_hash.key_hash`; its slot is key_hash % slots |
| 4 | 8 | i64 | physical_offset | of the message |
| 12 | 4 | i32 | time_difference | whole seconds since begin_timestamp; of item 1: since the end of the file before |
| 16 | 4 | i32 | previous | next older item of the same slot, 0: none |

Source: RocketMQ `IndexFile`, `IndexHeader`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from store.fs.struct_type import numpy_type

HEADER_SIZE = 40
SLOT_SIZE = 4
ITEM_SIZE = 20
HEADER = struct.Struct(
    ">"
    "q"  # begin_timestamp
    "q"  # end_timestamp
    "q"  # begin_physical_offset
    "q"  # end_physical_offset
    "i"  # used_slots
    "i"  # next_item
)
ITEM = struct.Struct(
    ">"
    "i"  # key_hash
    "q"  # physical_offset
    "i"  # time_difference
    "i"  # previous
)
SLOT = struct.Struct(">i")
ITEM_TYPE = numpy_type(ITEM, ("key_hash", "physical_offset", "time_difference", "previous"))
SLOT_TYPE = np.dtype(">i4")

assert HEADER.size == HEADER_SIZE
assert ITEM.size == ITEM_SIZE


class IndexLayout(NamedTuple):
    """The number of slots and items of each file of an index (RocketMQ `maxHashSlotNum`, `maxIndexNum`)."""

    slots: int = 5_000_000
    items: int = 20_000_000

    @property
    def items_begin(self) -> int:
        """Position of item 0."""
        return HEADER_SIZE + SLOT_SIZE * self.slots

    @property
    def file_size(self) -> int:
        """Size of a file in bytes."""
        return self.items_begin + ITEM_SIZE * self.items


class Header(NamedTuple):
    """The first 40 bytes."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    used_slots: int = 0
    next_item: int = 1
