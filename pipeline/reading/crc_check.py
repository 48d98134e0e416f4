"""Compares records with their checksums: the entry's checksum if it has one, else those of the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from crc32c import crc32c

from commitlog.record.record import find_fault
from commitlog.record.rows import RecordRows, bad_bodies, bad_property_crcs
from pipeline.columns.decoder import cut_out
from pipeline.reading.joined_checksum import joined_checksum

if TYPE_CHECKING:
    from collections.abc import Iterator


def bad_checksums(view: memoryview, rows: RecordRows, header_size: int) -> Iterator[tuple[int, str, str]]:
    """Yield (row, expected, found) of each record that does not match its checksums.

    Args:
        view: holds the records, and the entries' headers before them.
        rows: of the records.
        header_size: 48 if records are bodies of entries, else 0.
    """
    left = np.arange(len(rows))
    if header_size:
        # A checksum of the whole record, which Java does not write.
        given = rows.fields["entry_crc"].astype(np.int64)
        has_crc = given != 0
        if has_crc.all() and _checksum_of_all(view, rows) == joined_checksum(given, rows.ends - rows.begins):
            return
        places = zip(rows.begins.tolist(), rows.ends.tolist(), strict=True)
        checksums = np.array([crc32c(view[begin:end]) for begin, end in places], np.int64)
        for row in np.flatnonzero(has_crc & (checksums != given)).tolist():
            yield row, f"an entry of body checksum {given[row]:#010x}", f"{checksums[row]:#010x}"
        left = np.flatnonzero(~has_crc)
    if not len(left):
        return
    some = rows.select(left)
    is_bad = bad_bodies(view, some)
    if not header_size:
        # In other topics a client may have set a property of this name.
        is_bad[bad_property_crcs(view, some)] = True
    for at in np.flatnonzero(is_bad).tolist():
        begin, end = int(some.begins[at]), int(some.ends[at])
        fault = find_fault(view, begin, end, physical_offset=None, is_property_crc_checked=not header_size)
        assert fault is not None, at
        yield int(left[at]), fault.expected, fault.found


def _checksum_of_all(view: memoryview, rows: RecordRows) -> int:
    """Return the CRC-32C of the concatenated records, which is much faster than one checksum for each record."""
    if not len(rows):
        return 0
    _, _, content = cut_out(view, rows.begins, rows.ends).buffers()
    return int(crc32c(memoryview(content)[: int((rows.ends - rows.begins).sum())]))
