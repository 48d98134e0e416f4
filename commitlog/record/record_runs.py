"""Decodes and checks the records of one read together, in a broker or in a client: much cheaper than one by one.

Not here: the fault of the first invalid record; its reader decodes it again, alone (`record.decode`, `Record.check`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from commitlog.record.record import BadRecord, Record, decode
from dledger import native
from dledger.entries.format.entry import ENTRY_NORMAL, HEADER, HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class ReadableBytes(NamedTuple):
    """The part of a log's file in which records may be read.

    Attributes:
        view: the file; records are valid as long as it is.
        base_offset: of its first byte in the log.
        begin: of the readable part, in the log.
        end: of the readable part, in the log.
        has_headers: each record is the body of a client's entry, whose header is before it.
    """

    view: memoryview
    base_offset: int
    begin: int
    end: int
    has_headers: bool = False


def good_records(
    part: ReadableBytes, places: Sequence[int], sizes: Sequence[int], *, is_property_crc_checked: bool = False
) -> list[Record]:
    """Return the records up to the first that is invalid, out of order, or not in the readable part.

    Structure, physical offset and body of each are checked, and the header of its entry.

    Args:
        part: of the log.
        places: offset of each record in the log.
        sizes: in bytes, of each record.
        is_property_crc_checked: check property CRCs, too.
    """
    rows = None
    if native.kernels is not None:
        rows = native.kernels.locate_records(
            part.view, places, sizes, part.base_offset, part.begin, part.end, int(part.has_headers)
        )
    if rows is None:
        located = list(located_in_python(part, places, sizes))
    else:
        located = [Record(part.view, row) for row in rows]
        if not is_property_crc_checked:
            return located
    for number, record in enumerate(located):
        if record.check(is_body_checked=rows is None, is_property_crc_checked=is_property_crc_checked) is not None:
            return located[:number]
    return located


def located_in_python(part: ReadableBytes, places: Sequence[int], sizes: Sequence[int]) -> Iterator[Record]:
    """Yield the records that the native `locate_records` finds, without a check of their bodies; its reference."""
    at = part.begin
    for place, size in zip(places, sizes, strict=True):
        position = place - part.base_offset
        if place < at or size <= 0 or place + size > part.end:
            return
        try:
            record = decode(part.view, position, position + size)
        except BadRecord:
            return
        if record.size != size or record.physical_offset != place:
            return
        if part.has_headers and not _has_header(part.view, position - HEADER_SIZE, place, size):
            return
        yield record
        at = place + size


def split_records(view: memoryview) -> list[Record]:
    """Return the records that are back to back in a buffer, up to the first that is invalid; bodies are checked.

    Args:
        view: whole records from its first byte on, if they are valid.
    """
    rows = None if native.kernels is None else native.kernels.split_records(view)
    records = [Record(view, row) for row in rows or ()]
    # The native module stops at records of hosts with IPv6, too.
    records += split_in_python(view, records[-1].end if records else 0)
    return records


def split_in_python(view: memoryview, position: int) -> Iterator[Record]:
    """Yield the records from a position on, up to the first that is invalid; the reference of `split_records`."""
    while position < len(view):
        try:
            record = decode(view, position)
        except BadRecord:
            return
        if record.check() is not None:
            return
        yield record
        position = record.end


def _has_header(view: memoryview, position: int, place: int, size: int) -> bool:
    """Return whether the header at `position` is that of a client's entry with a record."""
    if position < 0:
        return False
    magic, entry_size, _, _, entry_position, channel, _, _, body_size = HEADER.unpack_from(view, position)
    expected = (ENTRY_NORMAL, size + HEADER_SIZE, place - HEADER_SIZE, 0, size)
    return (magic, entry_size, entry_position, channel, body_size) == expected
