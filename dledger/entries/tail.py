"""Distinguishes a torn tail, which recovery may cut, from damage.

If all bytes after the last valid entry are zero, that is the end of the log. Otherwise the question is whether the
invalid entry was ever durable, because then it may have been acknowledged:

| the bad place                                  | good entries after it | it is        | what is done             |
| ---------------------------------------------- | --------------------- | ------------ | ------------------------ |
| at or below the checkpoint's end index         | either                | corruption   | `CorruptData`, no change |
| above it, can be a lost write                  | either                | torn tail    | cut, with a note         |
| above it, cannot be a lost write               | some                  | corruption   | `CorruptData`, no change |
| above it, cannot be a lost write, our own log  | none                  | damaged tail | `damaged_tail`           |
| above it, a log that Java wrote                | none                  | torn tail    | cut, with a note         |

A power cut takes unsynced writes sector by sector, in any order: later ones may be on the disk while earlier ones are
not. Before an entry is written, its range is zero (our logs are zero from their end on), and it is written with one
call, so each of its sectors has either all bytes of the entry or zeros from the entry's start (or the sector's) to the
sector's end. Hence an entry can be a lost write only if one of its sectors is such a run of zeros and everything else
that can be checked is correct. Damage, in contrast, leaves wrong bytes, or zeros that end in the middle of a sector. If
the entry's own data has a sector of zeros, one changed bit elsewhere in its body is recognised by the checksum, which
shows whether one bit explains the difference. So are a few changed bits in the header of an empty entry whose last
fields, zeros, begin the next sector. Two kinds of damage cannot be distinguished from a lost write: more than one
changed bit in the body of an entry with a sector of zeros, and a changed bit that was the only one set in its sector.

Java writes no checksums and leaves stale bytes after the end of the log, so its tails are cut as in Java.

"Good entries after it" must exclude stale bytes of truncated entries (Java leaves them; this program overwrites them)
and bodies that look like entries: an entry counts only if its index is possible, its term is not below the last valid
one, its checksums are correct, and its header has its own position. Of Java's entries, which have no checksums,
position field and position must differ by the same amount as those of the last valid entry.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crc32c import crc32c

from dledger.entries.format.codec import RAW_ENTRY_CODEC, EntryCodec
from dledger.entries.format.entry import (
    BLANK,
    BLANK_MAGIC,
    BLANK_SIZE_MIN,
    CHAIN,
    ENTRY_NORMAL,
    HEADER,
    HEADER_SIZE,
    NO_CHAIN,
)
from dledger.entries.format.walk import SECTOR_SIZE_BYTES, UNKNOWN
from dledger.entries.one_bit import find_one_bit, is_few_bits_off

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.entries.format.walk import WalkState
    from store.fs.mapped.mapped_file import MappedFile

# Matches a header: a magic of 1 to 3 and a small channel; with the lookahead, matches may overlap.
_HEADER_PATTERN = re.compile(rb"(?=\x00\x00\x00[\x01-\x03].{28}\x00{3}[\x00-\x04].{12})", re.DOTALL)
_MAGIC_SIZE = 4
# Offsets of the chain checksum in a header, and of the term in the bytes that the checksum covers (`CHAIN`).
_CHAIN_OFFSET = 36
_TERM_IN_CHAIN = range(16, 24)
_INTEGER = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class BadEntryPlace:
    """The place at which the scan of a log stopped.

    Attributes:
        files: its file, and all later ones.
        offset: in the first of them.
        state: the constraints on a good entry there.
        displacement: the position field of the last good entry minus its position; 0 unless Java wrote it.
        codec: of the log.
        is_after_ours: the last good entry has checksums, or there is none and only this program wrote to the log.
    """

    files: Sequence[MappedFile]
    offset: int
    state: WalkState
    displacement: int
    codec: EntryCodec = RAW_ENTRY_CODEC
    is_after_ours: bool = False

    @property
    def file(self) -> MappedFile:
        """Its file."""
        return self.files[0]

    @property
    def position(self) -> int:
        """The position in the log."""
        return self.file.begin_offset + self.offset

    def may_be(self, magic: int, channel: int) -> bool:
        """Return whether the log may contain entries of this kind."""
        return (magic, channel) == (ENTRY_NORMAL, 0) or (magic, channel) in self.codec.kinds


def holds_data(place: BadEntryPlace) -> bool:
    """Return whether any byte from the place on is not zero."""
    if place.file.find_data(place.position) < place.file.end_offset:
        return True
    return any(file.find_data(file.begin_offset) < file.end_offset for file in place.files[1:])


def find_good_after(place: BadEntryPlace) -> int | None:
    """Return the position of a valid entry after the place, if there is one."""
    for file in place.files:
        begin = _skip_stated_size(place) if file is place.file else file.begin_offset
        data_end = file.find_data_end(begin)
        view = file.view()[: data_end - file.begin_offset]
        # The last entry may end with zeros, after the last byte of data.
        padded = file.view()[: min(len(view) + HEADER_SIZE, file.file.size)]
        for match in _HEADER_PATTERN.finditer(padded, begin - file.begin_offset):
            if _is_good(place, file, match.start()):
                return file.begin_offset + match.start()
    return None


def is_ours(place: BadEntryPlace) -> bool:
    """Return whether this program wrote the log at the place, so that all unwritten bytes are zero."""
    return place.is_after_ours or _fits_chain(place)


def is_unfinished_step(place: BadEntryPlace) -> bool:
    """Return whether only the blank at the end of a file follows, or the remains of it after a lost sector."""
    view, begin = place.file.view(), place.offset
    blank = BLANK.pack(BLANK_MAGIC, len(view) - begin)
    end = begin + BLANK_SIZE_MIN
    if place.file.find_data_end(place.position) > place.file.begin_offset + end:
        return False
    border = min(_sector_end(begin, len(view)), end)
    parts = ((begin, border), (border, end))
    return all(view[at:to] == blank[at - begin : to - begin] or _is_zero(view, at, to) for at, to in parts)


def is_lost_write(place: BadEntryPlace) -> bool:
    """Return whether the bytes at the place can be the result of a write that did not reach the disk completely.

    That is: the expected entry is correct up to some sector, and that sector is zero (its part after the entry's start,
    for the sector in which it begins); and one changed bit in another sector does not explain it.
    """
    view, begin = place.file.view(), place.offset
    sector_end = _sector_end(begin, len(view))
    if sector_end - begin >= _MAGIC_SIZE and _is_zero(view, begin, sector_end):
        return True
    header_end = begin + HEADER_SIZE
    if sector_end < header_end and _is_zero(view, sector_end, _sector_end(sector_end, len(view))):
        header = bytes(view[begin:sector_end])
        return _is_header_right(place, header) and not _is_damaged_empty_entry(place, header)
    if header_end > len(view) or not _is_header_right(place, bytes(view[begin:header_end])):
        return False
    size = HEADER.unpack_from(view, begin)[1]
    if not HEADER_SIZE <= size <= len(view) - begin:
        return False
    zero_sectors = [
        sector
        for sector in range(sector_end, begin + size, SECTOR_SIZE_BYTES)
        if _is_zero(view, sector, _sector_end(sector, len(view)))
    ]
    if not zero_sectors:
        return False
    changed = find_one_bit(view[header_end : begin + size], HEADER.unpack_from(view, begin)[7])
    # A lost sector may have had a single set bit: if an entry ends with one byte in it, for example.
    return changed is None or any(
        sector <= header_end + changed < sector + SECTOR_SIZE_BYTES for sector in zero_sectors
    )


def _skip_stated_size(place: BadEntryPlace) -> int:
    """Return the start of the search: after the invalid entry if its header is correct, to exclude its body."""
    view, offset = place.file.view(), place.offset
    if offset + HEADER_SIZE <= len(view) and _is_header_right(place, bytes(view[offset : offset + HEADER_SIZE])):
        size: int = HEADER.unpack_from(view, offset)[1]
        if HEADER_SIZE <= size <= len(view) - offset:
            return place.position + size
    return place.position + 1


def _is_good(place: BadEntryPlace, file: MappedFile, offset: int) -> bool:
    view, state = file.view(), place.state
    magic, size, index, term, at, channel, chain_crc, body_crc, body_size = HEADER.unpack_from(view, offset)
    position = file.begin_offset + offset
    if not place.may_be(magic, channel) or size != body_size + HEADER_SIZE or body_size < 0:
        return False
    if offset + size > len(view) or term < state.term or index < max(state.index, 0):
        return False
    # Each entry between the place and this one has at least a header.
    if state.index != UNKNOWN and index - state.index > (position - place.position) // HEADER_SIZE:
        return False
    if not chain_crc and not body_crc:
        return at - position in (0, place.displacement)
    return at == position and body_crc in (0, crc32c(view[offset + HEADER_SIZE : offset + size]))


def _is_header_right(place: BadEntryPlace, header: bytes) -> bool:
    """Return whether all checkable fields of `header`, which may be incomplete, are correct."""
    visible = len(header)
    fields = HEADER.unpack(header.ljust(HEADER_SIZE, b"\0"))
    magic, size, _, term, position, channel, chain_crc, body_crc, body_size = fields
    if visible < _MAGIC_SIZE:
        return header in (bytes(visible), b"\xff" * visible)
    if magic == BLANK_MAGIC:
        return visible < HEADER_SIZE and (visible < BLANK_SIZE_MIN or size == len(place.file.view()) - place.offset)
    expected_index = _INTEGER.pack(place.state.index)[: max(0, visible - 8)]
    return (
        any(magic == kind[0] for kind in _kinds(place))
        and header[8:16] == expected_index
        and (visible < 24 or term >= place.state.term)
        and (visible < 32 or position - place.position in (0, place.displacement))
        and (visible < 36 or (magic, channel) in _kinds(place))
        and (visible < 44 or chain_crc in (NO_CHAIN, _chain_at(place, fields)) or place.state.chain_crc == UNKNOWN)
        and (visible < HEADER_SIZE or size == body_size + HEADER_SIZE)
        and (visible < HEADER_SIZE or not chain_crc or bool(body_size) == bool(body_crc))
    )


def _is_damaged_empty_entry(place: BadEntryPlace, header: bytes) -> bool:
    """Return whether `header`, possibly incomplete, is that of an empty entry except for a few changed bits.

    The bytes after it are zeros in an empty entry, too: then no sector was lost. Only the chain checksum shows that.
    """
    if len(header) <= _CHAIN_OFFSET or place.state.chain_crc == UNKNOWN:
        return False
    magic, _, index, term, position, channel, chain_crc, _, _ = HEADER.unpack(header.ljust(HEADER_SIZE, b"\0"))
    content = _chained(place, magic, index, term, body_crc=0)
    empty = HEADER.pack(magic, HEADER_SIZE, index, term, position, channel, crc32c(content), 0, 0)
    if empty[_CHAIN_OFFSET : len(header)] == header[_CHAIN_OFFSET:]:
        return not any(empty[len(header) :])
    return is_few_bits_off(content, _TERM_IN_CHAIN, chain_crc)


def _kinds(place: BadEntryPlace) -> set[tuple[int, int]]:
    return {(ENTRY_NORMAL, 0), *place.codec.kinds}


def _chain_at(place: BadEntryPlace, fields: tuple[int, ...]) -> int:
    """Return the chain checksum of an entry with these header fields at the place."""
    magic, _, index, term, _, _, _, body_crc, _ = fields
    return crc32c(_chained(place, magic, index, term, body_crc))


def _chained(place: BadEntryPlace, magic: int, index: int, term: int, body_crc: int) -> bytes:
    """Return the bytes covered by the chain checksum of such an entry at the place."""
    return CHAIN.pack(max(place.state.chain_crc, NO_CHAIN), magic, index, term, body_crc)


def _fits_chain(place: BadEntryPlace) -> bool:
    view, begin = place.file.view(), place.offset
    if place.state.chain_crc == UNKNOWN or begin + HEADER_SIZE > len(view):
        return False
    fields = HEADER.unpack_from(view, begin)
    chain_crc: int = fields[6]
    return NO_CHAIN != chain_crc == _chain_at(place, fields)


def _sector_end(offset: int, size: int) -> int:
    return min(offset - offset % SECTOR_SIZE_BYTES + SECTOR_SIZE_BYTES, size)


def _is_zero(view: memoryview, begin: int, end: int) -> bool:
    return not any(view[begin:end])
