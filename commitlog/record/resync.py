"""Finds the next valid record after damage, or after any position in a file.

The size field of an invalid record is only a hint. A position is accepted only if all checks of the record there
succeed: magic, consistent lengths, its own physical offset and its checksum. The physical offset excludes stale bytes
and bodies that look like records.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from commitlog.record.record import (
    BLANK_MAGIC,
    FIELDS,
    HEAD,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
    SYS_FLAG_POSITION,
    BadRecord,
    decode,
    find_fault,
)
from commitlog.record.system_records import SYSTEM_CHANNELS
from dledger.entries.format.entry import BLANK_MAGIC as ENTRY_BLANK_MAGIC
from dledger.entries.format.entry import ENTRY_MAGICS, ENTRY_NORMAL, HEADER, HEADER_SIZE
from store.model.sys_flag import HOST_MASK
from store.model.topics import DLEDGER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

# Bytes searched for a magic at a time.
_SEARCH_SIZE: Final = 1 << 20
# Limit of the bytes that a search may read without finding a record, so that damage that looks like records has a
# bounded cost.
_WASTE_SIZE_MAX: Final = 1 << 30
_INT: Final = struct.Struct(">i")
_MAGIC_HEAD: Final = b"\xda\xa3\x20"


def resync(view: memoryview, position: int, end: int, *, base_offset: int, header_size: int = 0) -> int:
    """Return the position of the next valid record (or its entry) after the invalid one at `position`; `end` if none.

    First the ends of the invalid record by its size field and by the sum of its lengths are tried; if both lead to a
    valid record, the nearer one is used. Otherwise the bytes after `position` are searched for a magic. The result
    passes all checks. A blank up to the end of the view counts as the end.

    The cost is one pass over the bytes, and the checksums of candidates; after 1 GiB of candidates without a valid
    record the search ends.

    Args:
        view: of one file.
        position: of the invalid record (or its entry).
        end: of the written part.
        base_offset: of the view's first byte in the log.
        header_size: 48 in the replicated log, else 0.
    """
    claims = _claimed_ends(view, position, end, header_size)
    if claims == {end}:
        return end
    start = position + header_size
    for claim in sorted(claims):
        if start < claim < end and (
            _is_good_place(view, claim, end, base_offset, header_size) or _is_tail(view, claim, end)
        ):
            return claim
    return find_good(view, position + 1, end, base_offset=base_offset, header_size=header_size)


def find_good(view: memoryview, position: int, end: int, *, base_offset: int, header_size: int = 0) -> int:
    """Return the position of the first valid record (or its entry) at or after any `position`; `end` if none.

    Arguments and cost are those of `resync`.
    """
    waste = 0
    for candidate in _magics(view, position + header_size, end):
        place = candidate - header_size
        if _is_good_place(view, place, end, base_offset, header_size):
            return place
        waste += _cost_of(view, candidate, end, base_offset)
        if waste > _WASTE_SIZE_MAX:
            break
    return end


def is_entry_kind(magic: int, channel: int) -> bool:
    """Return whether a log of messages has entries of this magic and channel."""
    return magic in ENTRY_MAGICS and (not channel or (magic == ENTRY_NORMAL and channel in SYSTEM_CHANNELS))


def is_clients_record(body: memoryview) -> bool:
    """Return whether the body of an entry is a client's record, although its header marks it as a leader's.

    No checksum covers the channel of an entry, and a scan does not check its magic: one changed bit must not hide a
    client's message.
    """
    try:
        return decode(body, 0).topic != DLEDGER_TOPIC
    except BadRecord:
        return False


def _claimed_ends(view: memoryview, position: int, end: int, header_size: int) -> set[int]:
    """Return the possible ends of an invalid record: by its size field, its lengths and its entry's size.

    It includes -1 for inconsistent lengths; if all agree, there is only one end.
    """
    start = position + header_size
    if end - start < HEAD.size:
        return set()
    claims = {start + HEAD.unpack_from(view, start)[0], _end_by_lengths(view, start, end)}
    if header_size:
        claims.add(position + HEAD.unpack_from(view, position)[1])
    return claims


def _end_by_lengths(view: memoryview, position: int, end: int) -> int:
    """Return the end of a record at `position` by the lengths of its parts, ignoring its size field; -1: impossible."""
    if end - position < RECORD_SIZE_MIN:
        return -1
    magic, sys_flag = HEAD.unpack_from(view, position)[1], _INT.unpack_from(view, position + SYS_FLAG_POSITION)[0]
    place = position + FIELDS[sys_flag & HOST_MASK].size
    for width in (4, 1 if magic == MAGIC_V1 else 2, 2):
        first = place - 4 if width == 4 else place
        size = int.from_bytes(view[first : first + width], "big", signed=True)
        place = first + width + size
        if size < 0 or place > end:
            return -1
    return place


def _is_good_place(view: memoryview, place: int, end: int, base_offset: int, header_size: int) -> bool:
    start = place + header_size
    if header_size:
        if place < 0 or end - place < HEADER_SIZE:
            return False
        magic, size, _, _, entry_position, channel, _, _, body_size = HEADER.unpack_from(view, place)
        if entry_position != base_offset + place or size != body_size + HEADER_SIZE or body_size < 0:
            return False
        if magic != ENTRY_NORMAL or channel:
            return is_entry_kind(magic, channel) and size <= end - place
        end = min(end, place + size)
    return find_fault(view, start, end, physical_offset=base_offset + start) is None


def _is_tail(view: memoryview, place: int, end: int) -> bool:
    """Return whether a blank at `place` extends to the end of the file."""
    if end - place < HEAD.size:
        return False
    return tuple(HEAD.unpack_from(view, place)) in {
        (len(view) - place, BLANK_MAGIC),
        (ENTRY_BLANK_MAGIC, len(view) - place),
    }


def _magics(view: memoryview, position: int, end: int) -> Iterator[int]:
    """Yield the candidate positions of records, ascending: four bytes before each magic."""
    data = np.frombuffer(view, np.uint8)
    # Chunks overlap by the length of the pattern minus one.
    for begin in range(position + 4, end, _SEARCH_SIZE):
        chunk = data[begin : min(begin + _SEARCH_SIZE + 3, end)]
        found = np.flatnonzero(chunk[:-3] == _MAGIC_HEAD[0]) if len(chunk) > 3 else np.empty(0, np.int64)
        for ahead, byte in enumerate(_MAGIC_HEAD):
            found = found[chunk[found + ahead] == byte]
        last_bytes = chunk[found + 3]
        found = found[(last_bytes == MAGIC_V1 & 0xFF) | (last_bytes == MAGIC_V2 & 0xFF)]
        for place in found.tolist():
            yield begin + place - 4


def _cost_of(view: memoryview, start: int, end: int, base_offset: int) -> int:
    """Return the number of bytes read to reject the candidate at `start`."""
    try:
        record = decode(view, start, end)
    except BadRecord:
        return 0
    return record.size if record.physical_offset == base_offset + start else 0
