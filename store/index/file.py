"""One file of the key index: reading, appending, flushing and cutting.

The slots of the last file are kept in memory and written when the file is flushed; the slots on disk may be older or
newer than the header. Items are only appended, so slots can be rebuilt from them.

Not here: the layout of the file (`store.index.layout`).

Source: RocketMQ `IndexFile`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store.errors import CorruptData
from store.index.chains import link, time_difference, time_differences
from store.index.layout import (
    HEADER,
    HEADER_SIZE,
    ITEM,
    ITEM_SIZE,
    ITEM_TYPE,
    SLOT,
    SLOT_SIZE,
    SLOT_TYPE,
    Header,
    IndexLayout,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from store.fs.ports import File
    from store.model.dispatch_batch import Bools, Int32s, Int64s
    from store.steps import Steps

_PAGE_SIZE_BYTES = 4096
_ALLOCATE_AHEAD_BYTES = 1 << 20
# Up to this number items are appended one by one.
FEW_ITEMS_MAX = 32
# Items processed together: bounds the memory of checks and of rebuilding slots.
CHUNK_ITEMS = 1 << 16
# Items of one step of a query: about a millisecond.
STEP_ITEMS: Final = 2048
# One changed bit of a header's time is not detected if it moves all items by less than a second.
_UNDETECTED_MS_MAX = 999


class IndexItems(NamedTuple):
    """Consecutive items as columns of equal length."""

    key_hashes: Int32s
    physical_offsets: Int64s
    time_differences: Int32s
    previous: Int32s


class Hits(NamedTuple):
    """The result of a query in one file.

    Attributes:
        physical_offsets: newest first.
        fault: position and reason of the end of a broken chain; None: it was followed to its end.
        items: number of items that were read.
    """

    physical_offsets: list[int]
    fault: CorruptData | None
    items: int


class IndexFile:
    """An index file, for reading and appending.

    Attributes:
        file: the open file.
        header: to be written at the next flush.
        are_times_certain: the header's times are proven, so that they may exclude items from a query.
    """

    __slots__ = ("_allocated_end", "_dirty_pages", "_layout", "_slots", "are_times_certain", "file", "header")

    def __init__(self, file: File, layout: IndexLayout, header: Header | None = None) -> None:
        """Use an open file.

        Args:
            file: of the layout's size.
            layout: the number of its slots and items.
            header: of a new file; None: read it from the file.

        Raises:
            store.errors.CorruptData: the header has more items than fit into the file.
        """
        assert file.size == layout.file_size, (file.path, file.size, layout)
        self.file = file
        self._layout = layout
        # Items below this position have disk blocks; 0: nothing was allocated by this process.
        self._allocated_end = 0
        # Each is 0 or the number of an item of this file. None: not loaded; the page cache is current.
        self._slots: Int32s | None = None
        # By page of header and slots: whether a slot in it differs from the page cache.
        self._dirty_pages: Bools = np.zeros(0, np.bool_)
        if header is None:
            header = Header._make(HEADER.unpack_from(file.view()))
            header = header._replace(next_item=max(1, header.next_item))
            if header.next_item > layout.items:
                raise CorruptData(file.path, 36, f"at most item {layout.items}", f"{header.next_item}")
        # `1 <= next_item <= layout.items`: items are numbered from 1.
        self.header = header
        self.are_times_certain = self.is_empty or (
            header.begin_timestamp <= header.end_timestamp and self._are_times_proven(header)
        )

    @property
    def is_full(self) -> bool:
        """Whether no further item fits."""
        return self.header.next_item >= self._layout.items

    @property
    def is_empty(self) -> bool:
        """Whether it has no items."""
        return self.header.next_item <= 1

    def items(self, begin: int, end: int) -> IndexItems:
        """Return copies of the items `[begin, end)` by number, as columns."""
        position = self._layout.items_begin + ITEM_SIZE * begin
        items = np.frombuffer(self.file.view(), ITEM_TYPE, max(0, end - begin), position)
        return IndexItems(
            items["key_hash"].astype(np.int32),
            items["physical_offset"].astype(np.int64),
            items["time_difference"].astype(np.int32),
            items["previous"].astype(np.int32),
        )

    def chunks(self) -> Iterator[tuple[int, IndexItems]]:
        """Yield all items in order, with the number of the first of each chunk."""
        for begin in range(1, self.header.next_item, CHUNK_ITEMS):
            yield begin, self.items(begin, min(begin + CHUNK_ITEMS, self.header.next_item))

    def item_position(self, number: int) -> int:
        """Return the position of an item in the file."""
        return self._layout.items_begin + ITEM_SIZE * number

    def first_physical_offset(self) -> int:
        """Return the physical offset of the message of item 1, which must exist."""
        return self._physical_offset_of(1)

    def last_physical_offset(self) -> int:
        """Return the physical offset of the message of the last item, which must exist."""
        return self._physical_offset_of(self.header.next_item - 1)

    def _physical_offset_of(self, number: int) -> int:
        offset: int = ITEM.unpack_from(self.file.view(), self.item_position(number))[1]
        return offset

    # ------------------------------------------------------------------------------------------------------ times

    def prove_times(self, store_timestamp_of: Callable[[int], int]) -> bool:
        """Prove the header's times by the log, or correct them; return whether they were corrected.

        No checksum covers them: one changed bit would exclude messages from queries, or give later items wrong times.

        Args:
            store_timestamp_of: called with the physical offsets of the first and the last message; 0: not in the log.
        """
        begin = store_timestamp_of(self.first_physical_offset())
        end = store_timestamp_of(self.last_physical_offset())
        header = self.header
        proven = header._replace(
            begin_timestamp=begin or header.begin_timestamp, end_timestamp=end or header.end_timestamp
        )
        is_ordered = proven.begin_timestamp <= proven.end_timestamp
        # The clock of a Java store may have been set back.
        self.are_times_certain = self._are_times_proven(proven) and (is_ordered or (begin > 0 and end > 0))
        if not self.are_times_certain or proven == header:
            return False
        self.header = proven
        self.write_header(proven)
        self.file.sync()
        return True

    def is_newer_than(self, timestamp: int) -> bool:
        """Return whether all messages were certainly stored after a time."""
        return self.are_times_certain and timestamp + _UNDETECTED_MS_MAX < self.header.begin_timestamp

    def is_older_than(self, timestamp: int) -> bool:
        """Return whether all messages were certainly stored before a time."""
        return self.are_times_certain and self.header.end_timestamp + _UNDETECTED_MS_MAX < timestamp

    def begins_before(self, timestamp: int) -> bool:
        """Return whether the first message was certainly stored before a time."""
        return self.are_times_certain and self.header.begin_timestamp + _UNDETECTED_MS_MAX < timestamp

    def _are_times_proven(self, header: Header) -> bool:
        """Return whether the times of the header of a file with items agree according to the last item."""
        number = header.next_item - 1
        if number == 1:
            return header.begin_timestamp == header.end_timestamp
        return self._time_difference_of(number) == time_difference(header.end_timestamp, header.begin_timestamp)

    def _time_difference_of(self, number: int) -> int:
        difference: int = ITEM.unpack_from(self.file.view(), self.item_position(number))[2]
        return difference

    def _is_in_order(self, number: int) -> bool:
        """Return whether an item's time is between those of its neighbours: then one changed bit is not its reason.

        Item 1 counts from the file before, so it is no neighbour; its own time is the header's.
        """
        if number == 1:
            return True
        neighbours = range(max(2, number - 1), min(number + 2, self.header.next_item))
        differences = [0, *(self._time_difference_of(neighbour) for neighbour in neighbours)]
        return differences == sorted(differences)

    # -------------------------------------------------------------------------------------------------- appending

    def append(self, key_hashes: Int32s, physical_offsets: Int64s, timestamps: Int64s) -> int:
        """Append items for keys, in the order of the log, into the page cache; return the number of those that fit.

        Raises:
            store.errors.DiskFull: nothing was appended.
            store.errors.StorageFailed: the node must stop.
        """
        first = self.header.next_item
        count = min(len(key_hashes), self._layout.items - first)
        if count <= 0:
            return 0
        key_hashes, physical_offsets, timestamps = key_hashes[:count], physical_offsets[:count], timestamps[:count]
        position, size = self.item_position(first), ITEM_SIZE * count
        self._allocate(position, position + size)
        slots = self._loaded_slots()
        encode = self._encode_few if count <= FEW_ITEMS_MAX else self._encode
        items, fresh_count = encode(slots, key_hashes, physical_offsets, timestamps)
        header = self.header
        if first <= 1:
            header = header._replace(begin_timestamp=int(timestamps[0]), begin_physical_offset=int(physical_offsets[0]))
        self.header = header._replace(
            end_timestamp=int(timestamps[-1]),
            end_physical_offset=int(physical_offsets[-1]),
            used_slots=header.used_slots + fresh_count,
            next_item=first + count,
        )
        self.file.write(items, position)
        return count

    def _encode(
        self, slots: Int32s, key_hashes: Int32s, physical_offsets: Int64s, timestamps: Int64s
    ) -> tuple[bytes, int]:
        """Return the bytes of items to append, and the number of slots that were empty before; updates the slots."""
        count = len(key_hashes)
        previous, changed, fresh_count = link(slots, key_hashes, self.header.next_item)
        items: NDArray[np.void] = np.empty(count, ITEM_TYPE)
        items["key_hash"] = key_hashes
        items["physical_offset"] = physical_offsets
        # In RocketMQ the first item's time is relative to the end of the previous file.
        begins = np.full(count, timestamps[0] if self.is_empty else self.header.begin_timestamp)
        begins[0] = self.header.begin_timestamp
        items["time_difference"] = time_differences(timestamps, begins)
        items["previous"] = previous
        self._dirty_pages[(changed * SLOT_SIZE + HEADER_SIZE) // _PAGE_SIZE_BYTES] = True
        return items.tobytes(), fresh_count

    def _encode_few(
        self, slots: Int32s, key_hashes: Int32s, physical_offsets: Int64s, timestamps: Int64s
    ) -> tuple[bytes, int]:
        """Return the same as `_encode`, computed item by item, which is faster than NumPy for a few items."""
        items, fresh_count, count = [], 0, len(slots)
        begin = self.header.begin_timestamp
        rows = zip(key_hashes.tolist(), physical_offsets.tolist(), timestamps.tolist(), strict=True)
        for number, (key_hash, physical_offset, timestamp) in enumerate(rows, self.header.next_item):
            slot = key_hash % count
            previous = int(slots[slot])
            slots[slot] = number
            fresh_count += not previous
            items.append(ITEM.pack(key_hash, physical_offset, time_difference(timestamp, begin), previous))
            begin = timestamp if number == 1 else begin
            self._dirty_pages[(slot * SLOT_SIZE + HEADER_SIZE) // _PAGE_SIZE_BYTES] = True
        return b"".join(items), fresh_count

    def _allocate(self, begin: int, end: int) -> None:
        """Ensure that items have disk blocks, and at the first call also header and slots."""
        if not self._allocated_end:
            self.file.allocate(0, self._layout.items_begin)
        if end > self._allocated_end:
            ahead_end = min(self.file.size, end + _ALLOCATE_AHEAD_BYTES)
            self.file.allocate(begin, ahead_end - begin)
            self._allocated_end = ahead_end

    def _loaded_slots(self) -> Int32s:
        """Return the slots in memory; invalid ones are 0, as in RocketMQ."""
        if self._slots is None:
            slots = self.slots_on_disk()
            slots[(slots < 0) | (slots >= self.header.next_item)] = 0
            self._keep_slots(slots)
        assert self._slots is not None
        return self._slots

    def _keep_slots(self, slots: Int32s, *, is_dirty: bool = False) -> None:
        self._slots = slots
        self._dirty_pages = np.full(self._layout.items_begin // _PAGE_SIZE_BYTES + 1, is_dirty)

    def slots_on_disk(self) -> Int32s:
        """Return a copy of the slots in the file."""
        return np.frombuffer(self.file.view(), SLOT_TYPE, self._layout.slots, HEADER_SIZE).astype(np.int32)

    # --------------------------------------------------------------------------------------------------- flushing

    def write_slots(self) -> None:
        """Write the slots that changed, into the page cache; a full file then releases them from memory."""
        if self._slots is None:
            return
        pages = np.flatnonzero(self._dirty_pages)
        for run in np.split(pages, np.flatnonzero(np.diff(pages) != 1) + 1) if len(pages) else ():
            begin = max(int(run[0]) * _PAGE_SIZE_BYTES, HEADER_SIZE)
            end = min((int(run[-1]) + 1) * _PAGE_SIZE_BYTES, self._layout.items_begin)
            changed = self._slots[(begin - HEADER_SIZE) // SLOT_SIZE : (end - HEADER_SIZE) // SLOT_SIZE]
            self.file.write(changed.astype(SLOT_TYPE).tobytes(), begin)
        self._dirty_pages[:] = False
        if self.is_full:
            self._slots = None

    def write_header(self, header: Header) -> None:
        """Write a header to the page cache; its items and slots must be durable."""
        self.file.write(HEADER.pack(*header), 0)

    # ---------------------------------------------------------------------------------------------------- cutting

    def truncate(self, physical_offset: int, store_timestamp_of: Callable[[int], int]) -> bool:
        """Keep the items of messages that begin below `physical_offset`, and rebuild the slots.

        If no item is kept, only `is_empty` changes: the caller removes the file.

        Args:
            physical_offset: items below it must be durable.
            store_timestamp_of: called with the physical offset of the last kept message.

        Returns:
            False: the header or an item is damaged, so that items below `physical_offset` may be missing, or the
            time from which further items would count is not certain. Then nothing was changed.
        """
        count, last, slots = 1, 0, np.zeros(self._layout.slots, np.int32)
        for begin, items in self.chunks():
            sound = _sound_count(items, begin, last, physical_offset)
            if sound:
                count, last = begin + sound, int(items.physical_offsets[sound - 1])
                # If a slot occurs twice, the later assignment wins.
                slots[items.key_hashes[:sound] % self._layout.slots] = np.arange(begin, count, dtype=np.int32)
            if sound < len(items.key_hashes):
                break
        if not (self.are_times_certain and self._is_end_legitimate(count, last, physical_offset)):
            return False
        if count == 1:
            self.header = self.header._replace(next_item=1)
            return True
        self._keep_slots(slots, is_dirty=True)
        if count < self.header.next_item:
            # If the log does not have the last message any more, its time is known to the second.
            elapsed_ms = self._time_difference_of(count - 1) * 1000 if count > 2 else 0
            end_timestamp = store_timestamp_of(last) or self.header.begin_timestamp + elapsed_ms
            self.header = self.header._replace(next_item=count, end_physical_offset=last, end_timestamp=end_timestamp)
        self.header = self.header._replace(used_slots=int(np.count_nonzero(slots)))
        self._clear_items(count)
        self.write_slots()
        self.write_header(self.header)
        self.file.sync()
        return True

    def _is_end_legitimate(self, number: int, last: int, physical_offset: int) -> bool:
        """Return whether item `number` is the first of a message at or after `physical_offset`, by later items.

        Args:
            number: of the first item to remove; `next_item`: there is none.
            last: the message of the item before it.
            physical_offset: items of messages before it are kept.
        """
        end = self.header.end_physical_offset
        if number == self.header.next_item:
            return last == end
        offset = self._physical_offset_of(number)
        following = self._physical_offset_of(number + 1) if number + 1 < self.header.next_item else end
        return physical_offset <= offset <= following

    def _clear_items(self, first: int) -> None:
        """Overwrite all items from one on with zeros, so that no stale item can be read."""
        begin = self.item_position(first)
        view = self.file.view()
        for data_begin, data_end in self.file.data_ranges(begin):
            for position in range(max(begin, data_begin), data_end, 1 << 16):
                size = min(1 << 16, data_end - position)
                if any(view[position : position + size]):
                    self.file.write(bytes(size), position)

    # --------------------------------------------------------------------------------------------------- querying

    def query_steps(
        self, key_hash: int, begin: int, end: int, count_max: int, items_max: int, is_cut: Callable[[], bool]
    ) -> Steps[Hits]:
        """Return messages with a key of this hash, newest first; yields after each `STEP_ITEMS` items.

        Items have whole seconds only, so messages stored up to two seconds outside of the range may be among them. So
        may messages of items whose time is not between those of their neighbours, as after one changed bit; if the
        header's times are not certain, all messages are.

        Args:
            key_hash: from 0.
            begin: milliseconds since 1970.
            end: inclusive.
            count_max: largest number of messages.
            items_max: largest number of items that are read.
            is_cut: returns whether the file was truncated, removed or closed since; the query then ends.
        """
        view, unpack, items_begin = self.file.view(), ITEM.unpack_from, self._layout.items_begin
        header, is_timed = self.header, self.are_times_certain
        oldest, newest = begin - 999 - _UNDETECTED_MS_MAX, end + _UNDETECTED_MS_MAX
        slot = key_hash % self._layout.slots
        position = HEADER_SIZE + SLOT_SIZE * slot
        number: int = SLOT.unpack_from(view, position)[0] if self._slots is None else int(self._slots[slot])
        found: list[int] = []
        # Item numbers must decrease along a chain, so even a damaged chain ends.
        newer, items = header.next_item, 0
        while number and len(found) < count_max:
            if items >= items_max:
                break
            if not 0 < number < newer:
                what = f"an item number below {newer}"
                return Hits(found, CorruptData(self.file.path, position, what, f"{number}"), items)
            items += 1
            if not items % STEP_ITEMS:
                yield
                if is_cut():
                    break
            item_position = items_begin + ITEM_SIZE * number
            item_hash, physical_offset, difference, previous = unpack(view, item_position)
            # The time of item 1 is relative to the previous file; its message's time is the file's start.
            time = header.begin_timestamp + (difference * 1000 if number > 1 else 0)
            if is_timed and time < oldest and self._is_in_order(number):
                break
            if item_hash == key_hash and (not is_timed or time <= newest or not self._is_in_order(number)):
                found.append(physical_offset)
            newer, number, position = number, previous, item_position + ITEM_SIZE - SLOT_SIZE
        return Hits(found, None, items)


def _sound_count(items: IndexItems, begin: int, last: int, physical_offset: int) -> int:
    """Return the number of leading items that are plausible and belong to messages below `physical_offset`."""
    offsets = items.physical_offsets
    before = np.concatenate(([last], offsets[:-1]))
    numbers = np.arange(begin, begin + len(offsets))
    is_sound = (offsets >= before) & (offsets < physical_offset) & (items.key_hashes >= 0)
    is_sound &= (items.previous >= 0) & (items.previous < numbers)
    return len(is_sound) if is_sound.all() else int(is_sound.argmin())
