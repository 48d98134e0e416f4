"""Read-only views of key-index files: without repairs, for files of any content.

A file is a header of 40 bytes, `S` slots of 4 bytes and `N` items of 20 bytes (item 0 is never used). Neither `S` nor
`N` is stored; `find_slot_count` derives them from the file's size and content.

Source: RocketMQ `IndexHeader`, `IndexFile`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store.index.layout import HEADER, HEADER_SIZE, ITEM, ITEM_SIZE, ITEM_TYPE, SLOT, SLOT_SIZE, SLOT_TYPE

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAME_DIGITS = 17

_OFFSET = struct.Struct(">q")

# RocketMQ's default, also of most test stores: four items per slot.
_USUAL_ITEMS_PER_SLOT = 4
_LOOKS_MAX = 10_000
_SAMPLE_COUNT = 100


class IndexHeader(NamedTuple):
    """The first 40 bytes.

    Attributes:
        begin_timestamp, end_timestamp: store timestamps of the first and the last message, in milliseconds.
        begin_offset, end_offset: physical offsets of the two.
        slot_count: used slots.
        index_count: number of the next item, which is the number of items plus one.
    """

    begin_timestamp: int
    end_timestamp: int
    begin_offset: int
    end_offset: int
    slot_count: int
    index_count: int


class IndexItem(NamedTuple):
    """One stored item.

    Attributes:
        key_hash: of `topic#key`.
        offset: of the message.
        seconds: its store timestamp minus the file's begin timestamp.
        previous: number of the previous item in its slot; 0: none.
    """

    key_hash: int
    offset: int
    seconds: int
    previous: int


class IndexView:
    """One index file.

    Args:
        view: the whole file.
        path: for reports.
        slot_count: number of its slots.

    Attributes:
        item_count_max: capacity in items.
    """

    __slots__ = ("item_count_max", "path", "slot_count", "view")

    def __init__(self, view: memoryview, path: str, slot_count: int) -> None:
        self.view = view
        self.path = path
        self.slot_count = slot_count
        self.item_count_max = (len(view) - HEADER_SIZE - slot_count * SLOT_SIZE) // ITEM_SIZE - 1

    @property
    def header(self) -> IndexHeader:
        """The stored header."""
        return header_of(self.view)

    @property
    def stated_item_count(self) -> int:
        """The number of items in the header, at most `item_count_max`."""
        return min(max(self.header.index_count - 1, 0), self.item_count_max)

    def item_position(self, number: int) -> int:
        """Return the position of an item in the file."""
        return HEADER_SIZE + self.slot_count * SLOT_SIZE + number * ITEM_SIZE

    def item(self, number: int) -> IndexItem:
        """Return one item."""
        return IndexItem(*ITEM.unpack_from(self.view, self.item_position(number)))

    def items(self, begin: int, end: int) -> NDArray[np.void]:
        """Return the items `[begin, end)`, live, as columns (`store.index.layout.ITEM_TYPE`)."""
        return np.frombuffer(self.view, ITEM_TYPE, end - begin, self.item_position(begin))

    def slots(self) -> NDArray[np.int32]:
        """Return all slots: the number of the newest item of each; 0: none."""
        return np.frombuffer(self.view, SLOT_TYPE, self.slot_count, HEADER_SIZE)

    def slot(self, number: int) -> int:
        """Return the content of one slot."""
        found: int = SLOT.unpack_from(self.view, HEADER_SIZE + number * SLOT_SIZE)[0]
        return found


def header_of(view: memoryview) -> IndexHeader:
    """Return the header of a file."""
    return IndexHeader(*HEADER.unpack_from(view, 0))


def find_slot_count(view: memoryview) -> int | None:
    """Return the number of slots of a file, derived from its size and content; None if no number fits."""
    space = len(view) - HEADER_SIZE
    usual = space // (SLOT_SIZE + _USUAL_ITEMS_PER_SLOT * ITEM_SIZE)
    is_usual_size = space > 0 and space % (SLOT_SIZE + _USUAL_ITEMS_PER_SLOT * ITEM_SIZE) == 0
    header = header_of(view) if space >= SLOT_SIZE + 2 * ITEM_SIZE else None
    if is_usual_size and (header is None or header.index_count <= 1 or _fits(view, usual)):
        return usual
    if header is None:
        return None
    # The first item has the header's begin offset, the last one its end offset.
    for number, offset in ((header.index_count - 1, header.end_offset), (1, header.begin_offset)):
        found = _search(view, number, offset)
        if found is not None:
            return found
    return usual if is_usual_size else None


def _search(view: memoryview, number: int, offset: int) -> int | None:
    content: Any = view.obj if hasattr(view.obj, "find") else bytes(view)
    wanted, at = _OFFSET.pack(offset), HEADER_SIZE
    for _ in range(_LOOKS_MAX):
        at = int(content.find(wanted, at + 1))
        if at < 0:
            return None
        slots, rest = divmod(at - SLOT_SIZE - number * ITEM_SIZE - HEADER_SIZE, SLOT_SIZE)
        if slots > 0 and not rest and _fits(view, slots):
            return slots
    return None


def _fits(view: memoryview, slot_count: int) -> bool:
    """Return whether this number of slots is consistent with the last item's position and with most chains."""
    if slot_count <= 0 or (len(view) - HEADER_SIZE - slot_count * SLOT_SIZE) % ITEM_SIZE:
        return False
    file = IndexView(view, "", slot_count)
    header, last = file.header, file.header.index_count - 1
    if not 1 <= last <= file.item_count_max or file.item(last).offset != header.end_offset:
        return False
    if last < file.item_count_max and any(file.item(last + 1)):
        return False
    numbers = range(max(1, last - _SAMPLE_COUNT + 1), last + 1)
    right = 0
    for number in numbers:
        item = file.item(number)
        newest = file.slot(item.key_hash % slot_count)
        right += 0 <= item.previous < number <= newest <= last and item.offset <= header.end_offset
    return right * 10 > len(numbers) * 8
