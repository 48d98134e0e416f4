"""Going from record to record through a file, and finding the next good one behind damage.

`walk` goes by sizes alone, `columns` (`commitlog.record_columns`) checks what it found, `scan` does both and steps over
what is bad. In the replicated log each record is the body of an entry (`dledger.entry`): a walk over entries passes
those that are a leader's own (`commitlog.system_records`) by their magic, channel and size.

How `resync` is not led astray: what a bad record says of its size is a hint, never a fact. A place counts only if a
record begins there that is good in every way that can be checked: magic, lengths that agree, its own physical offset
and its checksum. The physical offset ties a record to its place, so that neither stale bytes nor a body that
looks like a record are taken for one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np

from commitlog.record import (
    BLANK_MAGIC,
    FIELDS,
    HEAD,
    MAGIC_V1,
    MAGIC_V2,
    MAGICS,
    RECORD_SIZE_MIN,
    SYS_FLAG_POSITION,
    BadRecord,
    Fault,
    decode,
    find_fault,
)
from commitlog.record_columns import columns
from commitlog.system_records import SYSTEM_CHANNELS
from dledger.entry import BLANK_MAGIC as ENTRY_BLANK_MAGIC
from dledger.entry import CHANNEL_OFFSET, ENTRY_MAGICS, ENTRY_NORMAL, HEADER, HEADER_SIZE
from store.dispatch_batch import DispatchBatch, Skipped
from store.sys_flag import HOST_MASK
from store.topics import DELAY_LEVELS_MS

# Records in one walk: bounds the memory that their columns take (about 200 bytes each).
WALK_COUNT_MAX: Final = 1 << 16
WALK_SIZE_MAX: Final = 1 << 62
# Bytes that are searched for a magic at a time.
_SEARCH_SIZE: Final = 1 << 20
# Bytes of bodies that a search reads in vain at most: damage that looks like records must not cost without end.
_WASTE_SIZE_MAX: Final = 1 << 30
_INT: Final = struct.Struct(">i")
# magic, size, channel of an entry
_KIND: Final = struct.Struct(">ii24xi")
_MAGIC_HEAD: Final = b"\xda\xa3\x20"


class Stop(StrEnum):
    """Why a walk ended.

    END: the end, or the number of records, was reached. BLANK: the rest of the file is filler. ZEROS: nothing was ever
    written there. BAD: what stands there is no record.
    """

    END = "end"
    BLANK = "blank"
    ZEROS = "zeros"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Walk:
    """How far a walk came.

    Attributes:
        starts: where each record begins, in the view (in the replicated log: behind the entry's header).
        sizes: of each record.
        position: where it ended, in the view: behind the last record, at a blank or at what is bad.
        stop: why.
        fault: what is wrong there, if it is BAD.
    """

    starts: list[int]
    sizes: list[int]
    position: int
    stop: Stop
    fault: Fault | None = None


def walk(
    view: memoryview,
    position: int,
    end: int,
    *,
    header_size: int = 0,
    size_bytes_max: int = WALK_SIZE_MAX,
    count_max: int = WALK_COUNT_MAX,
) -> Walk:
    """Go from record to record by their sizes, as long as each has a magic and ends within the stretch.

    What `commitlog.record_columns` checks is not checked here.

    Args:
        view: of one file.
        position: where the first record (or its entry) begins.
        end: where the stretch ends, at most the view's; a record does not reach beyond it.
        header_size: 48 in the replicated log, where each record stands behind an entry's header; else 0.
        size_bytes_max: stop behind so many bytes; at least one record is taken.
        count_max: stop after so many records.
    """
    starts, sizes = list[int](), list[int]()
    limit = min(position + size_bytes_max, end)
    if header_size:
        position = _walk_entries(view, position, end, limit, count_max, (starts, sizes))
    else:
        add_start, add_size, unpack = starts.append, sizes.append, HEAD.unpack_from
        last = min(limit - 1, end - RECORD_SIZE_MIN)
        while position <= last and count_max:
            size, magic = unpack(view, position)
            if magic not in MAGICS or not RECORD_SIZE_MIN <= size <= end - position:
                break
            add_start(position)
            add_size(size)
            position += size
            count_max -= 1
    if position >= limit or not count_max:
        return Walk(starts, sizes, position, Stop.END)
    return Walk(starts, sizes, position, *_why_stopped(view, position, end, header_size))


def scan(
    view: memoryview,
    position: int,
    end: int,
    *,
    base_offset: int,
    path: str,
    header_size: int = 0,
    size_bytes_max: int = 4 << 20,
    is_body_checked: bool = False,
    is_property_crc_checked: bool = False,
    levels_ms: Sequence[int] = DELAY_LEVELS_MS,
) -> tuple[DispatchBatch, Stop]:
    """Return what the records from `position` on mean, and why they end there.

    At a bad record it stops looking for meaning: the batch then tells in `skipped` what is left out, and its
    `next_offset` is where the next good record begins, or `end` when there is none. `Stop.BAD` is returned only then.

    Args:
        view: of one file.
        position: where a record (or its entry) begins.
        end: of what was written.
        base_offset: of the view's first byte in the log.
        path: of the file, for what is told of skipped bytes.
        header_size: 48 in the replicated log, else 0.
        size_bytes_max: about so many bytes are taken, at least one record.
        is_body_checked: whether bodies are compared with their CRC.
        is_property_crc_checked: the same for property CRCs.
        levels_ms: how long a message of each delay level waits.
    """
    walked = walk(view, position, end, header_size=header_size, size_bytes_max=size_bytes_max)
    batch = columns(
        view,
        walked.starts,
        walked.sizes,
        base_offset=base_offset,
        is_body_checked=is_body_checked,
        is_property_crc_checked=is_property_crc_checked,
        levels_ms=levels_ms,
    )
    begin_offset, next_offset = base_offset + position, base_offset + walked.position
    if len(batch) == len(walked.starts) and walked.stop != Stop.BAD:
        return replace(batch, begin_offset=begin_offset, next_offset=next_offset), walked.stop
    bad, fault = walked.position, walked.fault
    if len(batch) < len(walked.starts):
        start, size = walked.starts[len(batch)], walked.sizes[len(batch)]
        bad = start - header_size
        fault = find_fault(
            view,
            start,
            start + size,
            physical_offset=base_offset + start,
            is_property_crc_checked=is_property_crc_checked,
        )
    assert fault is not None, (path, bad)
    behind = resync(view, bad, end, base_offset=base_offset, header_size=header_size)
    skipped = Skipped(path, bad, base_offset + bad, behind - bad, fault.expected, fault.found)
    next_offset = base_offset + behind
    return replace(batch, begin_offset=begin_offset, next_offset=next_offset, skipped=(skipped,)), Stop.BAD


def resync(view: memoryview, position: int, end: int, *, base_offset: int, header_size: int = 0) -> int:
    """Return where the next good record (or its entry) begins behind the bad one at `position`; `end` if there is none.

    Where the bad record says that it ends is tried first; so is what its lengths add up to, and if both lead to a good
    record, the nearer one is taken. Otherwise the bytes behind `position` are searched for a magic. What was found is
    good in every way that can be checked. A blank that reaches to the end of the view counts as the end.

    The cost is one pass over the bytes, and the checksums of what looks like a record in its place; when these took
    more than 1 GiB in vain, the search is given up.

    Args:
        view: of one file.
        position: of the bad record (or its entry).
        end: of what was written.
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
    waste = 0
    for candidate in _magics(view, start + 1, end):
        place = candidate - header_size
        if _is_good_place(view, place, end, base_offset, header_size):
            return place
        waste += _cost_of(view, candidate, end, base_offset)
        if waste > _WASTE_SIZE_MAX:
            break
    return end


def _why_stopped(view: memoryview, position: int, end: int, header_size: int) -> tuple[Stop, Fault | None]:
    room = end - position
    if room < HEAD.size:
        if any(view[position:end]):
            return Stop.BAD, Fault(position, f"zeros, for {room} bytes hold nothing", view[position:end].hex())
        return Stop.ZEROS, None
    first, second = HEAD.unpack_from(view, position)
    if first == 0 and second == 0:
        return Stop.ZEROS, None
    # A blank of the plain log is (size, magic), one of the replicated log (magic, size).
    size, magic = (second, first) if header_size else (first, second)
    if magic == (ENTRY_BLANK_MAGIC if header_size else BLANK_MAGIC) and size >= HEAD.size:
        return Stop.BLANK, None
    return Stop.BAD, _entry_fault(view, position, end) if header_size else _record_fault(view, position, end)


def _record_fault(view: memoryview, position: int, end: int) -> Fault:
    try:
        record = decode(view, position, end)
    except BadRecord as error:
        return error.fault
    raise AssertionError((position, record.size))


def _walk_entries(
    view: memoryview, position: int, end: int, limit: int, count_max: int, found: tuple[list[int], list[int]]
) -> int:
    starts, sizes = found
    last = min(limit - 1, end - HEADER_SIZE)
    while position <= last and len(starts) < count_max:
        magic, size, channel = _KIND.unpack_from(view, position)
        if not _is_kind(magic, channel) or not HEADER_SIZE <= size <= end - position:
            break
        if magic == ENTRY_NORMAL and not channel:
            start = position + HEADER_SIZE
            record_size, record_magic = (
                HEAD.unpack_from(view, start) if size >= HEADER_SIZE + RECORD_SIZE_MIN else (0, 0)
            )
            if record_size != size - HEADER_SIZE or record_magic not in MAGICS:
                break
            starts.append(start)
            sizes.append(record_size)
        position += size
    return position


def _is_kind(magic: int, channel: int) -> bool:
    return magic in ENTRY_MAGICS and (not channel or (magic == ENTRY_NORMAL and channel in SYSTEM_CHANNELS))


def _entry_fault(view: memoryview, position: int, end: int) -> Fault:
    magic, size, channel = _KIND.unpack_from(view[position:end].tobytes().ljust(_KIND.size, b"\0"))
    if magic not in ENTRY_MAGICS:
        return Fault(position, "an entry of magic 1, 2 or 3", f"magic {magic}")
    if not _is_kind(magic, channel):
        return Fault(position + CHANNEL_OFFSET, "channel 0", f"channel {channel}")
    if not HEADER_SIZE <= size <= end - position:
        return Fault(position + 4, f"an entry of {HEADER_SIZE} to {end - position} bytes", f"one of {size}")
    try:
        record = decode(view, position + HEADER_SIZE, position + size)
    except BadRecord as error:
        return error.fault
    return Fault(position + 4, f"an entry of {HEADER_SIZE + record.size} bytes, as its record says", f"{size}")


def _claimed_ends(view: memoryview, position: int, end: int, header_size: int) -> set[int]:
    """Return where a bad record may end: by its own size, its lengths and its entry's size.

    The -1 of lengths that end nowhere is among them, so that there is only one claim where all agree.
    """
    start = position + header_size
    if end - start < HEAD.size:
        return set()
    claims = {start + HEAD.unpack_from(view, start)[0], _end_by_lengths(view, start, end)}
    if header_size:
        claims.add(position + HEAD.unpack_from(view, position)[1])
    return claims


def _end_by_lengths(view: memoryview, position: int, end: int) -> int:
    """Return where a record at `position` ends by the lengths of its parts, whatever its size says; -1: nowhere."""
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
            return _is_kind(magic, channel) and size <= end - place
        end = min(end, place + size)
    return find_fault(view, start, end, physical_offset=base_offset + start) is None


def _is_tail(view: memoryview, place: int, end: int) -> bool:
    """Return whether a blank stands at `place` that reaches to the end of the file."""
    if end - place < HEAD.size:
        return False
    return tuple(HEAD.unpack_from(view, place)) in {
        (len(view) - place, BLANK_MAGIC),
        (ENTRY_BLANK_MAGIC, len(view) - place),
    }


def _magics(view: memoryview, position: int, end: int) -> Iterator[int]:
    """Give the places, ascending, where a record might begin: four bytes before a magic."""
    data = np.frombuffer(view, np.uint8)
    # Chunks overlap by the length of what is searched for, less one.
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
    """Return how many bytes were read to find out that no good record begins at `start`."""
    try:
        record = decode(view, start, end)
    except BadRecord:
        return 0
    return record.size if record.physical_offset == base_offset + start else 0
