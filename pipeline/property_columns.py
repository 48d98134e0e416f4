"""Properties of many messages as Arrow columns: all of them as a map, or the value of one.

What every client writes is cut apart by numpy and Arrow: each property has a name and a value that are not empty, one
0x01 between them and 0x02 behind, it is UTF-8, and no name comes twice. A batch with anything else is read message by
message, as `commitlog.properties.decode_properties` says.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from commitlog.properties import decode_properties
from commitlog.property_parts import PADDING
from commitlog.record_rows import Bytes, gather
from store.dispatch_batch import Bools, Int64s

_MAP: Final = pa.map_(pa.string(), pa.string())
_NAME_END: Final = 1
_END: Final = 2
_HEAD_SIZE: Final = 8
# Messages with more properties than this are compared for names that come twice one by one.
_COMPARED_MAX: Final = 16
# Names in a batch that can each have a bit, so that sums of them do not overflow.
_BITS_MAX: Final = 48
_ODD: Final = 0x9E3779B97F4A7C15


class PropertyColumns:
    """The properties of a batch of messages.

    Args:
        raw: as they are stored: a binary array without nulls that begins at its buffer's first byte.
    """

    def __init__(self, raw: pa.Array) -> None:
        self._raw = raw
        _, offsets, data = raw.buffers()
        self._offsets: Int64s = np.frombuffer(offsets, np.int32, len(raw) + 1).astype(np.int64) if len(raw) else _ZERO
        size = int(self._offsets[-1])
        content: Bytes = np.frombuffer(data, np.uint8, size) if size else np.empty(0, np.uint8)
        self._data: Bytes = np.concatenate((content, np.frombuffer(PADDING, np.uint8)))
        # Less one, both separators are below 2, and zero wraps around.
        separators = np.flatnonzero(content - np.uint8(_NAME_END) < _END)
        self._name_ends, self._ends = separators[::2], separators[1::2]
        self._begins = np.concatenate((_ZERO, self._ends[:-1] + 1)) if len(self._ends) else self._ends
        self._is_regular = self._has_pairs(content) and self._is_utf8(size) and not self._may_repeat_names()

    def maps(self) -> pa.Array:
        """Return names and values of each message, as a map."""
        if not self._is_regular:
            return pa.array([list(row.items()) for row in self._decoded], _MAP)
        count = len(self._ends)
        borders = np.empty((count, 4), np.int32)
        for place, column in enumerate((self._begins, self._name_ends, self._name_ends + 1, self._ends)):
            borders[:, place] = column
        names, values = _cut(borders, self._data, 0), _cut(borders, self._data, 2)
        return pa.MapArray.from_arrays(pa.array(self._firsts.astype(np.int32)), names, values)

    def values(self, name: str) -> pa.Array:
        """Return the value of one property of each message; null where it has none."""
        if not self._is_regular:
            return pa.array([row.get(name) for row in self._decoded], pa.string())
        places = self._parts_of(name.encode())
        if len(places) == len(self._raw):
            return self._cut_values(self._name_ends[places] + 1, self._ends[places])
        if not len(places):
            return pa.nulls(len(self._raw), pa.string())
        rows = self._rows[places]
        begins, ends = np.zeros((2, len(self._raw)), np.int64)
        begins[rows], ends[rows] = self._name_ends[places] + 1, self._ends[places]
        # The value of a message that has none is empty, behind the one before it.
        ends = np.maximum.accumulate(ends)
        is_missing = np.ones(len(self._raw), np.bool_)
        is_missing[rows] = False
        return self._cut_values(np.where(is_missing, ends, begins), ends, is_missing)

    def _cut_values(self, begins: Int64s, ends: Int64s, is_missing: Bools | None = None) -> pa.Array:
        borders = np.empty((len(begins), 2), np.int32)
        borders[:, 0], borders[:, 1] = begins, ends
        return _cut(borders, self._data, 0, is_missing)

    def _parts_of(self, name: bytes) -> Int64s:
        """Return which parts have a name, ascending; at most one of each message."""
        head = np.uint64(int.from_bytes(name[:_HEAD_SIZE], "little"))
        places: Int64s = np.flatnonzero(self._heads == head)
        places = places[self._name_ends[places] - self._begins[places] == len(name)]
        for behind in range(_HEAD_SIZE, len(name)):
            places = places[self._data[self._begins[places] + behind] == name[behind]]
        return places

    @cached_property
    def _decoded(self) -> list[dict[str, str]]:
        return [decode_properties(raw) for raw in self._raw.to_pylist()]

    @cached_property
    def _firsts(self) -> Int64s:
        """The first part of each message, and behind the last one."""
        firsts: Int64s = np.searchsorted(self._begins, self._offsets)
        return firsts

    @cached_property
    def _rows(self) -> Int64s:
        """The message of each part."""
        rows: Int64s = np.repeat(np.arange(len(self._raw)), np.diff(self._firsts))
        return rows

    @cached_property
    def _heads(self) -> NDArray[np.uint64]:
        """The first eight bytes of each name; of a shorter one, zeros behind it."""
        heads = gather(self._data, self._begins, "<u8")
        masked: NDArray[np.uint64] = heads & _MASKS[np.minimum(self._name_ends - self._begins, _HEAD_SIZE)]
        return masked

    def _has_pairs(self, content: Bytes) -> bool:
        if len(self._name_ends) != len(self._ends):
            return False
        is_whole = (content[self._name_ends] == _NAME_END) & (content[self._ends] == _END)
        is_full = (self._name_ends > self._begins) & (self._ends > self._name_ends + 1)
        has_end = content[self._offsets[1:][np.diff(self._offsets) > 0] - 1] == _END
        return bool(is_whole.all() and is_full.all() and has_end.all())

    def _is_utf8(self, size: int) -> bool:
        if not size or self._data.max() < 0x80:
            return True
        try:
            # Message by message is property by property: a separator is never inside of a character.
            self._raw.cast(pa.string())
        except pa.ArrowInvalid:
            return False
        return True

    def _may_repeat_names(self) -> bool:
        """Return whether two names of one message are as long as each other and begin and end alike."""
        counts = np.diff(self._firsts)
        if not len(self._ends) or counts.max() > _COMPARED_MAX:
            return bool(len(self._ends))
        lengths = self._name_ends - self._begins
        marks = self._heads
        if lengths.max() > _HEAD_SIZE:
            tails = gather(self._data, np.maximum(self._name_ends - _HEAD_SIZE, self._begins), "<u8")
            # Names that differ may get one mark; that costs time only.
            marks = marks ^ tails * np.uint64(_ODD) ^ lengths.astype(np.uint64)
        known = pc.dictionary_encode(pa.array(marks))
        if len(known.dictionary) > _BITS_MAX:
            return any(
                ((self._rows[apart:] == self._rows[:-apart]) & (marks[apart:] == marks[:-apart])).any()
                for apart in range(1, int(counts.max()))
            )
        bits = np.int64(1) << known.indices.to_numpy().astype(np.int64)
        firsts = self._firsts[:-1][counts > 0]
        # A bit that comes twice makes the sum larger.
        return bool((np.add.reduceat(bits, firsts) != np.bitwise_or.reduceat(bits, firsts)).any())


_ZERO: Final = np.zeros(1, np.int64)
# Of the first n bytes of eight, little-endian.
_MASKS: Final[NDArray[np.uint64]] = np.array([(1 << 8 * size) - 1 for size in range(_HEAD_SIZE + 1)], np.uint64)


def _cut(borders: NDArray[np.int32], data: Bytes, part: int, is_missing: Bools | None = None) -> pa.Array:
    """Return the texts between `borders[:, part]` and the next border; all borders ascend. What is missing is null."""
    count, parts = borders.shape
    if not count:
        return pa.array([], pa.string())
    buffers: list[Any] = [None, pa.py_buffer(np.ascontiguousarray(borders)), pa.py_buffer(data)]
    texts = pa.Array.from_buffers(pa.string(), borders.size - 1, buffers)
    places = pa.array(np.arange(part, parts * count, parts, dtype=np.int32), mask=is_missing)
    return pc.take(texts, places, boundscheck=False)
