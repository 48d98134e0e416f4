"""Finds names and values in the properties of many records, vectorized.

The properties are joined in one buffer and split at each 0x02; names are compared with the eight bytes after each
split. The result equals that of `commitlog.record.properties.decode_properties`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from commitlog.record.properties import NAME_VALUE_SEPARATOR
from commitlog.record.rows import Bytes, gather
from store.model.java_hashes import TEXTS_SIZE_MAX
from store.model.message import KEYS, UNIQUE_KEY

if TYPE_CHECKING:
    from store.model.dispatch_batch import Int64s

# Bytes after the joined properties, so that eight bytes can be compared at any position.
PADDING: Final = bytes(16)
SEPARATOR: Final = b"\x02"
_NAME_SIZE: Final = 8
_SPACE: Final = ord(" ")


class BatchProperties:
    """The properties of many records, split into parts of name, 0x01, value.

    Args:
        data: all properties, and at least `PADDING` bytes after them.
        row_begins: begin of the properties of each record.
        part_begins: begin of each part, ascending.
        part_ends: end of each part.
    """

    __slots__ = ("_heads", "data", "part_begins", "part_ends", "row_begins")

    def __init__(self, data: Bytes, row_begins: Int64s, part_begins: Int64s, part_ends: Int64s) -> None:
        self.data = data
        self.row_begins = row_begins
        self.part_begins, self.part_ends = part_begins, part_ends
        self._heads = gather(self.data, self.part_begins, "<u8")

    @classmethod
    def of(cls, view: memoryview, begins: Int64s, ends: Int64s) -> BatchProperties:
        """Join the properties at these ranges of `view`; a byte precedes each of them."""
        size_max = int((ends - begins).max()) if len(begins) else 0
        width = size_max + 2
        space = width * len(begins)
        is_even = space <= 2 * int((ends - begins).sum() + len(begins)) and space + len(PADDING) <= TEXTS_SIZE_MAX
        if len(begins) and is_even and begins[-1] - 1 + width <= len(view):
            return cls._in_rows(np.frombuffer(view, np.uint8), begins, ends, width)
        return cls._joined(view, begins, ends)

    @classmethod
    def _in_rows(cls, source: Bytes, begins: Int64s, ends: Int64s, width: int) -> BatchProperties:
        """Copy pieces of equal width in one step; bytes that are not part of the properties become zero."""
        count = len(begins)
        rows = gather(source, begins - 1, f"V{width}").view(np.uint8).reshape(count, width)
        lengths = (ends - begins).astype(np.int32)
        rows *= np.arange(width, dtype=np.int32) <= lengths[:, None]
        rows[:, 0] = SEPARATOR[0]
        rows[np.arange(count), lengths + 1] = SEPARATOR[0]
        data: Bytes = np.concatenate((rows.reshape(-1), np.frombuffer(PADDING, np.uint8)))
        separators = np.flatnonzero(data == SEPARATOR[0])
        return cls(data, 1 + width * np.arange(count), separators[:-1] + 1, separators[1:])

    @classmethod
    def _joined(cls, view: memoryview, begins: Int64s, ends: Int64s) -> BatchProperties:
        """Join the properties, copied one by one."""
        pieces = [view[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        joined = b"".join((SEPARATOR, SEPARATOR.join(pieces), SEPARATOR, PADDING))
        data: Bytes = np.frombuffer(joined, np.uint8)
        row_begins = np.concatenate(([1], 1 + np.cumsum(ends - begins + 1)[:-1]))
        separators = np.flatnonzero(data == SEPARATOR[0])
        return cls(data, row_begins, separators[:-1] + 1, separators[1:])

    def find(self, name: str) -> tuple[Int64s, Int64s, Int64s]:
        """Return row, begin and end of the value for each row with a non-empty property `name`.

        In each row the last occurrence counts.
        """
        wanted = f"{name}{NAME_VALUE_SEPARATOR}".encode()
        head = wanted[:_NAME_SIZE]
        mask = (1 << 8 * len(head)) - 1
        is_found = self._heads & np.uint64(mask) == np.uint64(int.from_bytes(head, "little"))
        found = np.flatnonzero(is_found)
        for at in range(_NAME_SIZE, len(wanted)):
            found = found[self.data[self.part_begins[found] + at] == wanted[at]]
        begins, ends = self.part_begins[found] + len(wanted), self.part_ends[found]
        # The padding cannot be part of a value; an empty value does not count.
        begins, ends = begins[begins < ends], ends[begins < ends]
        rows = np.searchsorted(self.row_begins, begins, "right") - 1
        is_last = np.ones(len(rows), np.bool_)
        is_last[:-1] = rows[:-1] != rows[1:]
        return rows[is_last], begins[is_last], ends[is_last]

    def keys(self) -> tuple[Int64s, Int64s, Int64s]:
        """Return rows, begins and ends of all keys: UNIQ_KEY, then KEYS split at each space."""
        unique_rows, unique_begins, unique_ends = self.find(UNIQUE_KEY)
        rows, begins, ends = self.find(KEYS)
        if len(rows):
            spaces = np.flatnonzero(self.data == _SPACE)
            places = np.searchsorted(begins, spaces, "right") - 1
            spaces = spaces[(places >= 0) & (spaces < ends[places])]
            if len(spaces):
                # The n-th begin belongs to the n-th end, because the values do not overlap.
                values, value_rows = begins, rows
                begins = np.sort(np.concatenate((begins, spaces + 1)))
                ends = np.sort(np.concatenate((ends, spaces)))
                begins, ends = begins[begins < ends], ends[begins < ends]
                rows = value_rows[np.searchsorted(values, begins, "right") - 1]
        rows = np.concatenate((unique_rows, rows))
        order = np.argsort(rows, kind="stable")
        begins, ends = np.concatenate((unique_begins, begins)), np.concatenate((unique_ends, ends))
        return rows[order], begins[order], ends[order]
