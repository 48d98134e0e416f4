"""Scans a range of one file in the middle of a log: returns its records as columns, and the offset of the next range.

For open logs, whose end is known, so that zeros before it are damage, and a blank leads to the next file.
`commitlog.record.scan` reads the records.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from commitlog.record.resync import resync
from commitlog.record.scan import Stop, scan
from store.model.dispatch_batch import DispatchBatch, Skipped

if TYPE_CHECKING:
    from store.fs.mapped.mapped_file import MappedFile

# Default size of one scan in bytes.
SCAN_SIZE: Final = 4 << 20
_INT_SIZE: Final = 4


def scan_file(
    file: MappedFile,
    offset: int,
    end_offset: int,
    size_bytes_max: int,
    *,
    header_size: int = 0,
    is_body_checked: bool = False,
    is_property_crc_checked: bool = False,
) -> DispatchBatch:
    """Return the columns of the records from `offset` on; invalid bytes are reported in `skipped`.

    Args:
        file: a file of the log.
        offset: begin of a record (or its entry), in the file.
        end_offset: of the readable part; in the file, or its end.
        size_bytes_max: approximate size of the result, at least one record.
        header_size: 48 in the replicated log, else 0.
        is_body_checked: compare bodies with their checksums.
        is_property_crc_checked: the same for property CRCs.
    """
    view, begin_offset = file.view(), file.begin_offset
    end = end_offset - begin_offset
    batch, stop = scan(
        view,
        offset - begin_offset,
        end,
        base_offset=begin_offset,
        path=file.path,
        header_size=header_size,
        size_bytes_max=size_bytes_max,
        is_body_checked=is_body_checked,
        is_property_crc_checked=is_property_crc_checked,
    )
    position = batch.next_offset - begin_offset
    if stop is Stop.BLANK:
        return replace(batch, next_offset=begin_offset + _after_blank(view, position, header_size))
    if stop is Stop.ZEROS:
        # Damage, because the end of the log is later.
        after = resync(view, position, end, base_offset=begin_offset, header_size=header_size)
        expected = "an entry" if header_size else "a message record"
        skipped = Skipped(file.path, position, batch.next_offset, after - position, expected, "zeros")
        return replace(batch, next_offset=begin_offset + after, skipped=(*batch.skipped, skipped))
    return batch


def _after_blank(view: memoryview, position: int, header_size: int) -> int:
    """Return the end of a blank: that of its file, except for the blank that DLedger's deletion leaves at its start."""
    if position or not header_size:
        return len(view)
    size = int.from_bytes(view[position + _INT_SIZE : position + 2 * _INT_SIZE], "big")
    return min(position + size, len(view))
