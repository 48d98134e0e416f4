"""Reads a range of a log of entries at the positions in the index files, without scanning.

The position of each entry is known, so a damaged entry does not affect others. Positions are used only if the entries
are contiguous; otherwise the log is scanned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

import numpy as np

from commitlog.record.record import find_fault
from commitlog.record.resync import is_clients_record, is_entry_kind
from commitlog.record.rows import HEADER_TYPE, RecordRows, gather, good_rows
from dledger.entries.format.entry import BLANK, BLANK_MAGIC, BLANK_SIZE_MIN, ENTRY_NORMAL, HEADER, HEADER_SIZE
from pipeline.reading.log_reading import BATCH_SIZE_BYTES, Reading, T
from store.model.dispatch_batch import Int64s, Skipped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


def is_sound(begins: Int64s, sizes: Int64s, position: int, end: int) -> bool:
    """Return whether the entries at these positions of a file are contiguous from `position` to `end`."""
    if not len(begins) or begins[0] != position or begins[-1] + sizes[-1] > end or sizes.min() < HEADER_SIZE:
        return False
    return bool((begins[1:] == (begins + sizes)[:-1]).all())


def is_filler(view: memoryview, position: int, end: int) -> bool:
    """Return whether `[position, end)` of a file is empty or only the filler at its end."""
    if end - position < BLANK_SIZE_MIN:
        return True
    magic, size = BLANK.unpack_from(view, position)
    return bool(magic == BLANK_MAGIC and position + size >= end)


@dataclass(frozen=True, slots=True)
class IndexedReading(Generic[T]):
    """Reads entries of one file.

    Attributes:
        reading: settings.
        view: bytes of the file.
        base: offset of its first byte in the log.
        path: of the file.
    """

    reading: Reading[T]
    view: memoryview
    base: int
    path: str

    def batches(self, first_index: int, begins: Int64s, sizes: Int64s) -> Iterator[T]:
        """Yield the messages of consecutive entries.

        Args:
            first_index: of the first entry.
            begins: checked positions of the entries in the file.
            sizes: of the entries, in bytes.
        """
        first = 0
        while first < len(begins):
            after = int(np.searchsorted(begins, begins[first] + BATCH_SIZE_BYTES))
            last = max(first + 1, min(after, first + self.reading.batch_rows))
            yield from self._batch(first_index + first, begins[first:last], sizes[first:last])
            first = last

    def _batch(self, first_index: int, begins: Int64s, sizes: Int64s) -> Iterator[T]:
        position, end = int(begins[0]), int(begins[-1] + sizes[-1])
        window, base = self.view[position:end], self.base + position
        starts, ends = begins + (HEADER_SIZE - position), begins + sizes - position
        found = self.reading.decode_at_once(window, starts, ends, base, HEADER_SIZE, first_index)
        if found is not None:
            yield found
            return
        data: NDArray[np.uint8] = np.frombuffer(window, np.uint8)
        indexes = np.arange(first_index, first_index + len(begins))
        rows = good_rows(data, starts, ends, base, has_headers=True)
        if len(rows) < len(starts) or not (rows.fields["index"] == indexes).all():
            # Some are no-op entries of leaders, or bad entries.
            is_client = self._is_client(data, starts - HEADER_SIZE, sizes, indexes, base)
            rows = self._good(data, starts[is_client], ends[is_client], base)
        yield from self.reading.decode(window, rows, base, self.path, position, HEADER_SIZE)

    def _is_client(
        self, data: NDArray[np.uint8], begins: Int64s, sizes: Int64s, indexes: Int64s, base: int
    ) -> NDArray[np.bool_]:
        """Return a mask of the clients' entries; the policy handles bad entries."""
        heads = gather(data, begins, f"V{HEADER_SIZE}").view(HEADER_TYPE)
        is_good = (heads["index"] == indexes) & (heads["position"] == begins + base) & (heads["entry_size"] == sizes)
        is_good &= heads["entry_body_size"] == sizes - HEADER_SIZE
        is_client = (heads["entry_magic"] == ENTRY_NORMAL) & (heads["channel"] == 0)
        for row in np.flatnonzero(~is_good | ~is_client).tolist():
            kind = int(heads["entry_magic"][row]), int(heads["channel"][row])
            begin, end = int(begins[row]) + HEADER_SIZE, int(begins[row] + sizes[row])
            if is_good[row] and is_entry_kind(*kind) and not is_clients_record(data.data[begin:end]):
                continue
            is_client[row] = False
            expected = f"entry {indexes[row]} of {sizes[row]} bytes at {begins[row] + base}"
            found = HEADER.unpack(heads[row].tobytes())
            self._skip(base, int(begins[row]), int(sizes[row]), expected, f"a header {found}")
        return np.asarray(is_client & is_good, np.bool_)

    def _good(self, data: NDArray[np.uint8], starts: Int64s, ends: Int64s, base: int) -> RecordRows:
        """Return the good records; the policy handles bad records."""
        while True:
            rows = good_rows(data, starts, ends, base, has_headers=True)
            bad = len(rows)
            if bad == len(starts):
                return rows
            start, end = int(starts[bad]), int(ends[bad])
            fault = find_fault(data.data, start, end, physical_offset=base + start)
            expected, found = ("an entry and a record of one size", "two sizes") if fault is None else fault[1:]
            self._skip(base, start - HEADER_SIZE, end - start + HEADER_SIZE, expected, found)
            starts, ends = np.delete(starts, bad), np.delete(ends, bad)

    def _skip(self, base: int, begin: int, size: int, expected: str, found: str) -> None:
        offset = base + begin
        self.reading.skip(Skipped(self.path, offset - self.base, offset, size, expected, found), self.view)
