"""Scans a file record by record.

`walk` follows the sizes only, `columns` (`commitlog.record.columns`) checks the records, `scan` does both and skips
invalid bytes (`commitlog.record.resync`). In the replicated log each record is the body of an entry
(`dledger.entries.format.entry`): a walk skips a leader's own entries (`commitlog.record.system_records`) by their
magic, channel and size.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from commitlog.record.columns import columns
from commitlog.record.record import (
    BLANK_MAGIC,
    HEAD,
    MAGICS,
    RECORD_SIZE_MIN,
    BadRecord,
    RecordFault,
    decode,
    find_fault,
)
from commitlog.record.resync import is_clients_record, is_entry_kind, resync
from dledger import native
from dledger.entries.format.entry import BLANK_MAGIC as ENTRY_BLANK_MAGIC
from dledger.entries.format.entry import CHANNEL_OFFSET, ENTRY_MAGICS, ENTRY_NORMAL, HEADER_SIZE
from store.model.dispatch_batch import DispatchBatch, Skipped
from store.model.topics import DELAY_LEVELS_MS, DLEDGER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

# Records in one walk: bounds the memory of their columns (about 200 bytes each).
WALK_COUNT_MAX: Final = 1 << 16
WALK_SIZE_MAX: Final = 1 << 62
# magic, size, channel of an entry; size, magic of the record in it
_HEADS: Final = struct.Struct(">ii24xi12xii")
# magic, size, channel of an entry
_KIND: Final = struct.Struct(">ii24xi")


class Stop(StrEnum):
    """The reason for the end of a walk.

    END: the end, or the number of records, was reached; or the next record was completed after the walk had read it:
    continue. BLANK: the rest of the file is a blank. ZEROS: nothing was written there. BAD: the bytes are not a record.
    """

    END = "end"
    BLANK = "blank"
    ZEROS = "zeros"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class RecordWalk:
    """The result of a walk.

    Attributes:
        starts: position of each record in the view (in the replicated log: after the entry's header).
        sizes: of each record.
        position: end of the walk in the view: after the last record, at a blank or at invalid bytes.
        stop: the reason.
        fault: the fault at the end, if it is BAD.
    """

    starts: list[int]
    sizes: list[int]
    position: int
    stop: Stop
    fault: RecordFault | None = None


def walk(
    view: memoryview,
    position: int,
    end: int,
    *,
    header_size: int = 0,
    size_bytes_max: int = WALK_SIZE_MAX,
    count_max: int = WALK_COUNT_MAX,
) -> RecordWalk:
    """Follow records by their sizes, as long as each has a magic and ends within the range.

    All other checks are in `commitlog.record.columns`.

    Args:
        view: of one file.
        position: of the first record (or its entry).
        end: of the range, within the view; a record does not extend beyond it.
        header_size: 48 in the replicated log, where each record follows an entry's header; else 0.
        size_bytes_max: stop after this number of bytes, but not before the first record.
        count_max: stop after this number of records.
    """
    starts: list[int] = []
    sizes: list[int] = []
    limit, left = min(position + size_bytes_max, end), count_max
    while left:
        run_of = native.kernels.walk_records if native.kernels is not None else walk_run_in_python
        run = run_of(view, position, end, limit, left, header_size)
        if run is None:
            run = walk_run_in_python(view, position, end, limit, left, header_size)
        run_starts, run_sizes, position = run
        starts += run_starts
        sizes += run_sizes
        left = count_max - len(starts)
        own_size = _system_entry_size(view, position, end, limit) if header_size else 0
        if not own_size:
            break
        position += own_size
    if position >= limit or len(starts) == count_max:
        return RecordWalk(starts, sizes, position, Stop.END)
    return RecordWalk(starts, sizes, position, *_why_stopped(view, position, end, header_size))


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
    """Return the columns of the records from `position` on, and the reason for their end.

    The batch ends at an invalid record: its `skipped` reports the skipped bytes, and its `next_offset` is the start of
    the next valid record, or `end` if there is none. Only then `Stop.BAD` is returned. A record that is completed
    during the check is not reported: the batch ends before it, with `Stop.END`.

    Args:
        view: of one file.
        position: begin of a record (or its entry).
        end: of the written part.
        base_offset: of the view's first byte in the log.
        path: of the file, for reports of skipped bytes.
        header_size: 48 in the replicated log, else 0.
        size_bytes_max: approximate size of the batch, at least one record.
        is_body_checked: whether bodies are compared with their CRC.
        is_property_crc_checked: the same for property CRCs.
        levels_ms: the delay of each delay level.
    """
    walked = walk(view, position, end, header_size=header_size, size_bytes_max=size_bytes_max)
    meaning_of = partial(
        columns,
        view,
        base_offset=base_offset,
        is_body_checked=is_body_checked,
        is_property_crc_checked=is_property_crc_checked,
        levels_ms=levels_ms,
    )
    batch = meaning_of(walked.starts, walked.sizes)
    begin_offset, next_offset = base_offset + position, base_offset + walked.position
    if len(batch) == len(walked.starts) and walked.stop != Stop.BAD:
        return replace(batch, begin_offset=begin_offset, next_offset=next_offset), walked.stop
    skipped = skipped_at(
        view,
        walked,
        len(batch),
        end,
        base_offset=base_offset,
        path=path,
        header_size=header_size,
        is_property_crc_checked=is_property_crc_checked,
    )
    if skipped is None:
        start, size = walked.starts[len(batch)], walked.sizes[len(batch)]
        assert len(meaning_of([start], [size])), (path, start)
        return replace(batch, begin_offset=begin_offset, next_offset=base_offset + start - header_size), Stop.END
    next_offset = skipped.offset + skipped.size
    return replace(batch, begin_offset=begin_offset, next_offset=next_offset, skipped=(skipped,)), Stop.BAD


def skipped_at(
    view: memoryview,
    walked: RecordWalk,
    good: int,
    end: int,
    *,
    base_offset: int,
    path: str,
    header_size: int = 0,
    is_property_crc_checked: bool = False,
) -> Skipped | None:
    """Return the fault of the first invalid record of a walk, and the position at which reading continues.

    None: the record has been completed since; read it again.

    Args:
        view: of one file.
        walked: the walk, which found an invalid record or ended at invalid bytes.
        good: number of its valid records.
        end: of the written part.
        base_offset: of the view's first byte in the log.
        path: of the file.
        header_size: 48 in the replicated log, else 0.
        is_property_crc_checked: compare property CRCs.
    """
    bad, fault = walked.position, walked.fault
    if good < len(walked.starts):
        start, size = walked.starts[good], walked.sizes[good]
        bad = start - header_size
        fault = find_fault(
            view,
            start,
            start + size,
            physical_offset=base_offset + start,
            is_property_crc_checked=is_property_crc_checked,
        )
    if fault is None:
        return None
    after = resync(view, bad, end, base_offset=base_offset, header_size=header_size)
    return Skipped(path, bad, base_offset + bad, after - bad, fault.expected, fault.found)


def blank_size(view: memoryview, position: int, header_size: int) -> int:
    """Return the size in the header of the blank at `position`: in the plain log (size, magic), else the reverse.

    A blank fills the rest of its file; only in the replicated log a shorter one may be at a file's start.
    """
    first, second = HEAD.unpack_from(view, position)
    size: int = second if header_size else first
    return size


def _why_stopped(view: memoryview, position: int, end: int, header_size: int) -> tuple[Stop, RecordFault | None]:
    space = end - position
    if space < HEAD.size:
        if any(view[position:end]):
            return Stop.BAD, RecordFault(position, f"zeros, for {space} bytes hold nothing", view[position:end].hex())
        return Stop.ZEROS, None
    first, second = HEAD.unpack_from(view, position)
    if first == 0 and second == 0:
        return Stop.ZEROS, None
    # A blank of the plain log is (size, magic), one of the replicated log (magic, size).
    size, magic = (second, first) if header_size else (first, second)
    if magic == (ENTRY_BLANK_MAGIC if header_size else BLANK_MAGIC) and size >= HEAD.size:
        return Stop.BLANK, None
    if not header_size:
        fault = _record_fault(view, position, end)
    elif _system_entry_size(view, position, end, end):
        fault = None  # completed since
    else:
        fault = _entry_fault(view, position, end)
    return (Stop.END, None) if fault is None else (Stop.BAD, fault)


def _record_fault(view: memoryview, position: int, end: int) -> RecordFault | None:
    """Return the fault at `position`; None if the record has been completed since it was read."""
    try:
        decode(view, position, end)
    except BadRecord as error:
        return error.fault
    return None


def walk_run_in_python(
    view: memoryview, position: int, end: int, limit: int, count_max: int, header_size: int
) -> tuple[list[int], list[int], int]:
    """Follow records up to the first that is none, or a leader's own: `walk_records` of `dledger.native`.

    Args:
        view: of one file.
        position: of the first record (or its entry).
        end: no record extends beyond it.
        limit: no record (or entry) begins there or after it.
        count_max: of records.
        header_size: 48 in the replicated log, else 0.

    Returns:
        Starts and sizes of the records, and the position after the last.
    """
    starts: list[int] = []
    sizes: list[int] = []
    add_start, add_size = starts.append, sizes.append
    last, left = min(limit - 1, end - header_size - RECORD_SIZE_MIN), count_max
    if header_size:
        unpack = _HEADS.unpack_from
        while position <= last and left:
            magic, size, channel, record_size, record_magic = unpack(view, position)
            if magic != ENTRY_NORMAL or channel or record_size != size - HEADER_SIZE or record_magic not in MAGICS:
                break
            if not RECORD_SIZE_MIN <= record_size <= end - position - HEADER_SIZE:
                break
            add_start(position + HEADER_SIZE)
            add_size(record_size)
            position += size
            left -= 1
        return starts, sizes, position
    unpack_head = HEAD.unpack_from
    while position <= last and left:
        size, magic = unpack_head(view, position)
        if magic not in MAGICS or not RECORD_SIZE_MIN <= size <= end - position:
            break
        add_start(position)
        add_size(size)
        position += size
        left -= 1
    return starts, sizes, position


def _system_entry_size(view: memoryview, position: int, end: int, limit: int) -> int:
    """Return the size of the leader's own entry at `position`; 0: no such entry is there within the range."""
    if position > min(limit - 1, end - HEADER_SIZE):
        return 0
    magic, size, channel = _KIND.unpack_from(view, position)
    if (magic == ENTRY_NORMAL and not channel) or not is_entry_kind(magic, channel):
        return 0
    is_within = HEADER_SIZE <= size <= end - position
    is_own = is_within and not is_clients_record(view[position + HEADER_SIZE : position + size])
    return size if is_own else 0


def _entry_fault(view: memoryview, position: int, end: int) -> RecordFault | None:
    """Return the fault at `position`; None if the entry has been completed since it was read."""
    magic, size, channel = _KIND.unpack_from(view[position:end].tobytes().ljust(_KIND.size, b"\0"))
    if magic not in ENTRY_MAGICS:
        return RecordFault(position, "an entry of magic 1, 2 or 3", f"magic {magic}")
    if not is_entry_kind(magic, channel):
        return RecordFault(position + CHANNEL_OFFSET, "channel 0", f"channel {channel}")
    if not HEADER_SIZE <= size <= end - position:
        return RecordFault(position + 4, f"an entry of {HEADER_SIZE} to {end - position} bytes", f"one of {size}")
    try:
        record = decode(view, position + HEADER_SIZE, position + size)
    except BadRecord as error:
        return error.fault
    if (magic != ENTRY_NORMAL or channel) and record.topic != DLEDGER_TOPIC:
        expected = f"magic {ENTRY_NORMAL} and channel 0, for a record of topic {record.topic}"
        return RecordFault(position, expected, f"magic {magic} and channel {channel}")
    expected = f"an entry of {HEADER_SIZE + record.size} bytes, as its record says"
    return None if size == HEADER_SIZE + record.size else RecordFault(position + 4, expected, f"{size}")
