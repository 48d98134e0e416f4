"""Determines the entries of a log at its opening, and makes the files consistent.

1. Begin: the one in `loghead`; without the file, the first entry, after the blank that a deletion of the log's head may
   have left (DLedger `resetOffset`).
2. Start: the data file of the checkpoint's end index, else the third last (DLedger's rule). Entries before it were
   durable with their index units when the next file was created, so only the consistency of the units is checked; if
   they are inconsistent, all entries are checked and the index is rebuilt.
3. Scan: each entry from there on is checked; index units that disagree are rewritten.
4. Tail: at the position where the scan stops, `dledger.entries.tail` distinguishes end, torn tail, damaged tail and
   corruption; a tail that is cut is overwritten with zeros, durably, before any other write.
5. Sync: entries that a killed process had written but not synced are made durable, so that they may be acknowledged.

Source: DLedger `MmapFileStore.recover`; unlike DLedger, this checks the content, and cuts no durable entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dledger.entries.damaged_tail import KEPT_SIZE_BYTES_MAX, DamagedTail, GiveUp
from dledger.entries.format.entry import BLANK, BLANK_MAGIC, BLANK_SIZE_MIN, HEADER, HEADER_SIZE, INDEX_UNIT, NO_CHAIN
from dledger.entries.format.walk import UNKNOWN, WALK_COUNT_MAX, WalkState, chain_before, describe_fault, walk
from dledger.entries.index import IndexUnit
from dledger.entries.tail import BadEntryPlace, find_good_after, holds_data, is_lost_write, is_ours, is_unfinished_step
from dledger.types import NO_INDEX, NO_TERM, decoded_term
from store.errors import CorruptData

if TYPE_CHECKING:
    from dledger.entries.format.codec import EntryCodec
    from dledger.entries.index import EntryIndex
    from dledger.entries.log_head import LogHead
    from dledger.storage.checkpoint import Checkpoint
    from store.fs.mapped.mapped_file_queue import MappedFileQueue

# Without a checkpoint, all entries of this number of last data files are checked (DLedger's number).
_SCAN_FILE_COUNT = 3
_ANY = WalkState(UNKNOWN, 0, UNKNOWN)


def recover(
    data: MappedFileQueue,
    index: EntryIndex,
    checkpoint: Checkpoint,
    head: LogHead | None,
    codec: EntryCodec,
    notes: list[str],
    damage: DamagePolicy,
) -> RecoveredEntries:
    """Recover the log and make data files and index files consistent.

    Args:
        data: the loaded data files.
        index: the loaded index files.
        checkpoint: the entries that were durable.
        head: the start of the log, in the first data file; None: not known.
        codec: of the log.
        notes: receives one sentence for each repair or cut.
        damage: the policy for a damaged tail.

    Raises:
        store.errors.CorruptData: entries that were durable are missing or invalid. No data file was changed.
        store.errors.DiskFull: no space for an index file that must be rebuilt.
        store.errors.StorageFailed: a file cannot be written or synced.
    """
    begin = _find_begin(data, head, codec)
    if begin.number == len(data.mapped_files):
        if checkpoint.end_index != NO_INDEX:
            raise CorruptData(data.directory, 0, f"entries up to {checkpoint.end_index}, durable here", "no entries")
        data.remove_cut_short()
        index.queue.remove_all()
        return RecoveredEntries(
            0, begin.end_position, NO_TERM, NO_CHAIN, NO_INDEX, NO_TERM, begin.end_position, NO_CHAIN
        )
    first = _entry_at(data, begin, codec)
    begin_index = max(begin.state.index, 0) if first is None else first.index
    if not index.queue.begin_offset <= begin_index * INDEX_UNIT.size <= index.queue.end_offset:
        index.queue.remove_all()
    start = begin if first is None else _choose_start(data, index, checkpoint, begin, begin_index, codec)
    end = _scan(data, index, start, codec, notes)
    place = _bad_place(data, index, begin_index, end, codec, damage)
    _decide_tail(data, index, place, end.end_position, checkpoint, notes, damage)
    data.sync_all()
    index.queue.sync_all()
    last_index = max(end.state.index, begin_index) - 1
    is_head_right = head is not None and head.begin_index == begin_index
    begin_chain_crc = head.chain_crc if head is not None and is_head_right else chain_before(begin_index)
    return RecoveredEntries(
        begin_index=begin_index,
        begin_position=begin.end_position,
        begin_prev_term=head.prev_term
        if head is not None and is_head_right
        else decoded_term(begin_index - 1, NO_TERM),
        begin_chain_crc=begin_chain_crc,
        last_index=last_index,
        last_term=end.state.term if last_index >= begin_index else NO_TERM,
        end_position=end.end_position,
        chain_crc=begin_chain_crc if last_index < begin_index else end.state.chain_crc,
    )


@dataclass(frozen=True, slots=True)
class RecoveredEntries:
    """The recovered log.

    Attributes:
        begin_index: the first entry, or the one with which an empty log will begin.
        begin_position: the position of that entry, also of one not yet written.
        begin_prev_term: term of the entry before; `NO_TERM` or `UNKNOWN_TERM` without one.
        begin_chain_crc: chain checksum of the entry before; UNKNOWN (-1) if it is not known.
        last_index: the last entry; `begin_index - 1` when there is none.
        last_term: its term; -1 when there is none.
        end_position: after it.
        chain_crc: its chain checksum, which the next entry continues; UNKNOWN (-1) in an empty log whose begin is
            deleted.
    """

    begin_index: int
    begin_position: int
    begin_prev_term: int
    begin_chain_crc: int
    last_index: int
    last_term: int
    end_position: int
    chain_crc: int


@dataclass(frozen=True, slots=True)
class DamagePolicy:
    """How recovery treats a damaged tail.

    Attributes:
        is_ours: no other program wrote to this log, so the bytes after its end are zeros.
        give_up: called before a damaged tail is cut; it gives up the node's vote, because the entry is lost, or raises.
    """

    is_ours: bool
    give_up: GiveUp


@dataclass(frozen=True, slots=True)
class _Cursor:
    """A position between two entries.

    Attributes:
        number: of the data file.
        offset: in that file.
        state: the constraints on the next entry.
        end_position: end of the last entry before it: the position of the cut, if no valid entry follows.
    """

    number: int
    offset: int
    state: WalkState
    end_position: int


def _find_begin(data: MappedFileQueue, head: LogHead | None, codec: EntryCodec) -> _Cursor:
    """Return the cursor of the first entry, or of the next write; file number = count of files: after all files."""
    begin = _skip_blanks(data)
    if head is None:
        return begin
    first_file = data.mapped_files[0]
    offset = head.begin_position - first_file.begin_offset
    if begin.end_position < head.begin_position:
        raise CorruptData(first_file.path, begin.offset, f"blanks up to byte {offset}", "something else")
    if begin.end_position > head.begin_position and begin.number < len(data.mapped_files):
        # The first entry did not fit at the start and is in the next file, or another program deleted more files.
        first = _entry_at(data, begin, codec)
        if first is not None and first.index != head.begin_index:
            return begin
    state = WalkState(head.begin_index, max(head.prev_term, 0), head.chain_crc)
    return _Cursor(0, offset, state, head.begin_position)


def _skip_blanks(data: MappedFileQueue) -> _Cursor:
    for number, file in enumerate(data.mapped_files):
        offset = 0
        while offset <= data.file_size - BLANK_SIZE_MIN:
            magic, size = BLANK.unpack_from(file.view(), offset)
            if magic != BLANK_MAGIC or not BLANK_SIZE_MIN <= size <= data.file_size - offset:
                position = file.begin_offset + offset
                # Only at position 0 the index is known without a header: it is 0.
                state = _ANY if position else WalkState(0, 0, NO_CHAIN)
                return _Cursor(number, offset, state, position)
            offset += size
    return _Cursor(len(data.mapped_files), 0, WalkState(0, 0, NO_CHAIN), data.end_offset)


def _choose_start(
    data: MappedFileQueue,
    index: EntryIndex,
    checkpoint: Checkpoint,
    begin: _Cursor,
    begin_index: int,
    codec: EntryCodec,
) -> _Cursor:
    """Return the start of the first file to scan; `begin` if there is no later one."""
    is_bounded = checkpoint.end_index != NO_INDEX
    newest = len(data.mapped_files) - (1 if is_bounded else _SCAN_FILE_COUNT)
    for number in range(newest, begin.number, -1):
        position = data.mapped_files[number].begin_offset
        head = _entry_at(data, _Cursor(number, 0, _ANY, position), codec)
        if head is not None and begin_index < head.index and not (is_bounded and head.index > checkpoint.end_index):
            is_sound = index.is_sound(begin_index, head.index, begin.end_position, data.file_size)
            is_sound = is_sound and _are_terms_right(data, index, begin_index, head.index - 1)
            return (_head_cursor(data, index, number, head.index, codec) if is_sound else None) or begin
    return begin


def _are_terms_right(data: MappedFileQueue, index: EntryIndex, first_index: int, last_index: int) -> bool:
    """Return whether the first and last index unit of each term agree with the entries; terms never decrease.

    The core relies on these terms: one wrong unit at the end of a run could lead to a wrong vote.
    """
    while first_index <= last_index:
        term = index.term_at(first_index)
        end_index = index.last_of_term(first_index, last_index, term)
        if not all(_is_unit_right(data, index.unit(at)) for at in (first_index, end_index)):
            return False
        first_index = end_index + 1
    return True


def _is_unit_right(data: MappedFileQueue, unit: IndexUnit) -> bool:
    """Return whether the header of an entry agrees with its index unit."""
    file = data.find(unit.position)
    if file is None or unit.position + HEADER_SIZE > file.end_offset:
        return False
    _, size, index, term, *_ = HEADER.unpack_from(file.view(), unit.position - file.begin_offset)
    return (size, index, term) == (unit.size, unit.index, unit.term)


def _head_cursor(
    data: MappedFileQueue, index: EntryIndex, number: int, head_index: int, codec: EntryCodec
) -> _Cursor | None:
    """Return the cursor at the start of a file, if index and data agree on the entry before it.

    The chain checksum in the header of that entry, which is not scanned, is verified by that of the entry at the head,
    which is computed from it. None: one of the two is damaged; a scan of the whole log shows which one.
    """
    before = index.unit(head_index - 1)
    file = data.mapped_files[number - 1]
    if not file.begin_offset <= before.position < before.position + before.size <= file.end_offset:
        return None
    fields = HEADER.unpack_from(file.view(), before.position - file.begin_offset)
    if fields[1:4] != (before.size, before.index, before.term):
        return None
    state = WalkState(head_index, before.term, fields[6])
    cursor = _Cursor(number, 0, state, before.position + before.size)
    return None if _entry_at(data, cursor, codec) is None else cursor


def _scan(data: MappedFileQueue, index: EntryIndex, start: _Cursor, codec: EntryCodec, notes: list[str]) -> _Cursor:
    """Check all entries from `start` on, and write their index units; return the cursor after the last valid one."""
    at = start
    rewritten: list[int] = []
    while True:
        file = data.mapped_files[at.number]
        end, position = data.file_size - BLANK_SIZE_MIN, file.begin_offset + at.offset
        done = walk(file.view(), at.offset, end, position, at.state, codec=codec)
        if done.units:
            first_index = done.state.index - done.count
            if _rewrite_units(index, first_index, done.units):
                rewritten.append(first_index)
            at = _Cursor(at.number, done.offset, done.state, file.begin_offset + done.offset)
        if done.count == WALK_COUNT_MAX:
            continue
        blank = BLANK.unpack_from(file.view(), at.offset)
        if blank != (BLANK_MAGIC, data.file_size - at.offset) or at.number + 1 == len(data.mapped_files):
            break
        at = _Cursor(at.number + 1, 0, at.state, at.end_position)
    if rewritten:
        notes.append(f"{index.queue.directory}: rewritten where it disagreed, from about entry {rewritten[0]}")
    return at


def _rewrite_units(index: EntryIndex, first_index: int, units: bytes) -> bool:
    if index.holds(first_index, units):
        return False
    index.reserve(first_index, first_index + len(units) // INDEX_UNIT.size - 1)
    index.write(first_index, units)
    return True


def _decide_tail(
    data: MappedFileQueue,
    index: EntryIndex,
    place: BadEntryPlace,
    end_position: int,
    checkpoint: Checkpoint,
    notes: list[str],
    damage: DamagePolicy,
) -> None:
    """Cut a torn or damaged tail at `place`, where the scan stopped; refuse corruption; zero the bytes after it."""
    has_data, next_index = holds_data(place), place.state.index
    if max(next_index, 0) <= checkpoint.end_index:
        raise _corrupt(place, f"; entries up to {checkpoint.end_index} were durable here")
    expected, found = _describe(place)
    cause = f"torn tail cut at position {end_position}: expected {expected}, found {found}"
    if not has_data:
        cause = f"torn tail cut at position {end_position}: the next file was begun without an entry"
    elif (good := find_good_after(place)) is not None:
        # If old entries were deleted and the start is not recorded, at least one entry of the log was durable, so the
        # first one cannot be a lost write.
        if next_index == UNKNOWN or not is_lost_write(place):
            raise _corrupt(place, f"; a good entry follows at position {good}")
    elif is_ours(place) and not (is_lost_write(place) or is_unfinished_step(place)):
        begin, end = place.position, place.file.find_data_end(place.position)
        kept = bytes(place.file.view()[place.offset : place.offset + min(end - begin, KEPT_SIZE_BYTES_MAX)])
        outcome = damage.give_up(
            DamagedTail(max(next_index, 0), begin, place.file.path, place.offset, expected, found, kept)
        )
        cause = f"damaged tail cut at position {end_position}: expected {expected}, found {found}; {outcome}"
    data.remove_cut_short()
    if has_data or end_position != place.position:
        file = data.find(end_position)
        assert file is not None, end_position
        data.truncate(end_position, file.find_data_end(end_position), is_durable=True)
        notes.append(f"{place.file.path}: {cause}")
    index.clear_after(max(next_index, 0) - 1)


def _bad_place(
    data: MappedFileQueue, index: EntryIndex, begin_index: int, end: _Cursor, codec: EntryCodec, damage: DamagePolicy
) -> BadEntryPlace:
    """Return the place at which the scan stopped, and whether this program wrote the last valid entry."""
    files = data.mapped_files[end.number :]
    if end.state.index <= begin_index:
        return BadEntryPlace(files, end.offset, end.state, 0, codec, damage.is_ours)
    unit = index.unit(end.state.index - 1)
    file = data.find(unit.position)
    assert file is not None, unit
    _, _, _, _, position, _, chain_crc, body_crc, _ = HEADER.unpack_from(file.view(), unit.position - file.begin_offset)
    is_after_ours = bool(chain_crc or body_crc)
    return BadEntryPlace(files, end.offset, end.state, position - unit.position, codec, is_after_ours)


def _entry_at(data: MappedFileQueue, at: _Cursor, codec: EntryCodec) -> IndexUnit | None:
    file = data.mapped_files[at.number]
    end = data.file_size - BLANK_SIZE_MIN
    units = walk(file.view(), at.offset, end, file.begin_offset + at.offset, at.state, 1, codec).units
    return IndexUnit(*INDEX_UNIT.unpack(units)) if units else None


def _describe(place: BadEntryPlace) -> tuple[str, str]:
    end = place.file.file.size - BLANK_SIZE_MIN
    return describe_fault(place.file.view(), place.offset, end, place.position, place.state, place.codec)


def _corrupt(place: BadEntryPlace, because: str) -> CorruptData:
    expected, found = _describe(place)
    return CorruptData(place.file.path, place.offset, expected, found + because)
