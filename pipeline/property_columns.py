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
from commitlog.property_parts import PADDING, PropertyParts
from commitlog.record_rows import Bytes, gather
from store.dispatch_batch import Int64s

_MAP: Final = pa.map_(pa.string(), pa.string())
_NAME_END: Final = 1
_END: Final = 2
_HEAD_SIZE: Final = 8
# Messages with more properties than this are compared for names that come twice one by one.
_COMPARED_MAX: Final = 16


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
        separators = np.flatnonzero((content == _NAME_END) | (content == _END))
        self._name_ends, self._ends = separators[::2], separators[1::2]
        self._begins = np.concatenate((_ZERO, self._ends[:-1] + 1)) if len(self._ends) else self._ends
        self._is_regular = self._has_pairs(content) and self._is_utf8(size) and not self._may_repeat_names()

    def maps(self) -> pa.Array:
        """Return names and values of each message, as a map."""
        if not self._is_regular:
            return pa.array([list(row.items()) for row in self._decoded], _MAP)
        count = len(self._ends)
        firsts = np.searchsorted(self._begins, self._offsets).astype(np.int32)
        borders = np.empty((count, 4), np.int32)
        for place, column in enumerate((self._begins, self._name_ends, self._name_ends + 1, self._ends)):
            borders[:, place] = column
        names, values = _cut(borders, self._data, 0), _cut(borders, self._data, 2)
        return pa.MapArray.from_arrays(pa.array(firsts), names, values)

    def values(self, name: str) -> pa.Array:
        """Return the value of one property of each message; null where it has none."""
        if not self._is_regular:
            return pa.array([row.get(name) for row in self._decoded], pa.string())
        if not len(self._ends):
            return pa.nulls(len(self._raw), pa.string())
        rows, begins, ends = PropertyParts(self._data, self._offsets[:-1], self._begins, self._ends).find(name)
        borders = np.empty((len(rows), 2), np.int32)
        borders[:, 0], borders[:, 1] = begins, ends
        found = _cut(borders, self._data, 0)
        places = np.zeros(len(self._raw), np.int32)
        is_missing = np.ones(len(self._raw), np.bool_)
        places[rows], is_missing[rows] = np.arange(len(rows), dtype=np.int32), False
        return pc.take(found, pa.array(places, mask=is_missing))

    @cached_property
    def _decoded(self) -> list[dict[str, str]]:
        return [decode_properties(raw) for raw in self._raw.to_pylist()]

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
        rows = np.searchsorted(self._offsets, self._begins, "right")
        counts = np.bincount(rows) if len(rows) else np.zeros(1, np.int64)
        if counts.max() > _COMPARED_MAX:
            return True
        lengths = self._name_ends - self._begins
        heads = gather(self._data, self._begins, "<u8") & _MASKS[np.minimum(lengths, _HEAD_SIZE)]
        tails = gather(self._data, np.maximum(self._name_ends - _HEAD_SIZE, self._begins), "<u8")
        tails &= _MASKS[np.minimum(lengths, _HEAD_SIZE)]
        for apart in range(1, int(counts.max())):
            is_like = (rows[apart:] == rows[:-apart]) & (lengths[apart:] == lengths[:-apart])
            is_like &= (heads[apart:] == heads[:-apart]) & (tails[apart:] == tails[:-apart])
            if is_like.any():
                return True
        return False


_ZERO: Final = np.zeros(1, np.int64)
# Of the first n bytes of eight, little-endian.
_MASKS: Final[NDArray[np.uint64]] = np.array([(1 << 8 * size) - 1 for size in range(_HEAD_SIZE + 1)], np.uint64)


def _cut(borders: NDArray[np.int32], data: Bytes, part: int) -> pa.Array:
    """Return the texts between `borders[:, part]` and the next border; all borders ascend."""
    count, parts = borders.shape
    if not count:
        return pa.array([], pa.string())
    buffers: list[Any] = [None, pa.py_buffer(np.ascontiguousarray(borders)), pa.py_buffer(data)]
    texts = pa.Array.from_buffers(pa.string(), borders.size - 1, buffers)
    return pc.take(texts, pa.array(np.arange(part, parts * count, parts, dtype=np.int32)), boundscheck=False)
