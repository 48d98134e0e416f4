"""Tells a torn tail from corruption: what may be cut at the place where a recovering log stops being good.

Zeros from there to the end are simply the end. Otherwise something is bad, and the question is whether it was ever
durable, for then somebody may have relied on it:

| the bad place                                | good entries behind | it is      | what is done            |
| -------------------------------------------- | ------------------- | ---------- | ----------------------- |
| at or below the checkpoint's end index       | either              | corruption | `CorruptData`, no change |
| above it, or no checkpoint                   | none                | torn tail  | cut, with a note        |
| above it; whole sectors of it are still zero | some                | torn tail  | cut, with a note        |
| above it; anything else                      | some                | corruption | `CorruptData`, no change |

The third row is what a power cut leaves of writes that were not synced: the disk takes sectors in any order, so later
ones may be there while earlier ones are not. A sector that was not written still holds the zeros that stood behind the
log's end, from the first lost write to the sector's end. Damage looks different: it leaves wrong bytes, or zeros that
end in the middle of a sector.

"Good behind" must not be fooled by leftovers of entries that were cut off long ago (Java leaves them; we overwrite
ours) or by bodies that look like entries: an entry counts only with an index that can have been reached, a term not
below the last good one, checksums that are given and right, and its own position in its header. Of Java's entries,
which have no checksums, the position must be as far off its place as that of the last good entry.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crc32c import crc32c

from dledger.entry import BLANK_MAGIC, ENTRY_NORMAL, HEADER, HEADER_SIZE
from dledger.entry_codec import RAW_ENTRY_CODEC, EntryCodec
from dledger.entry_walk import SECTOR_SIZE_BYTES, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.entry_walk import WalkState
    from store.mapped_file import MappedFile

# A header begins with a magic of 1 to 3 and has a small channel; the lookahead lets matches overlap.
_HEADER_PATTERN = re.compile(rb"(?=\x00\x00\x00[\x01-\x03].{28}\x00{3}[\x00-\x04].{12})", re.DOTALL)
_MAGIC_SIZE = 4


@dataclass(frozen=True, slots=True)
class BadPlace:
    """Where the walk over a log stopped.

    Attributes:
        files: the file that holds it, and all later ones.
        offset: in the first of them.
        state: what a good entry there would have to agree with.
        displacement: how far the position field of the last good entry was off its place; 0 unless Java wrote it.
        codec: of the log.
    """

    files: Sequence[MappedFile]
    offset: int
    state: WalkState
    displacement: int
    codec: EntryCodec = RAW_ENTRY_CODEC

    @property
    def file(self) -> MappedFile:
        """The file that holds it."""
        return self.files[0]

    @property
    def position(self) -> int:
        """Where it is in the log."""
        return self.file.begin_offset + self.offset

    def may_be(self, magic: int, channel: int) -> bool:
        """Return whether entries of this kind stand in the log."""
        return (magic, channel) == (ENTRY_NORMAL, 0) or (magic, channel) in self.codec.kinds


def holds_data(place: BadPlace) -> bool:
    """Return whether any byte from the bad place on is not zero."""
    if place.file.find_data(place.position) < place.file.end_offset:
        return True
    return any(file.find_data(file.begin_offset) < file.end_offset for file in place.files[1:])


def find_good_behind(place: BadPlace) -> int | None:
    """Return the position of a good entry behind the bad place, if there is one."""
    for file in place.files:
        begin = _skip_stated_size(place) if file is place.file else file.begin_offset
        data_end = file.find_data_end(begin)
        view = file.view()[: data_end - file.begin_offset]
        # Behind the last byte of data there may still be zeros that belong to an entry.
        padded = file.view()[: min(len(view) + HEADER_SIZE, file.file.size)]
        for match in _HEADER_PATTERN.finditer(padded, begin - file.begin_offset):
            if _is_good(place, file, match.start()):
                return file.begin_offset + match.start()
    return None


def is_lost_write(place: BadPlace) -> bool:
    """Return whether what stands at the bad place is what writes that never reached the disk leave there.

    That is: of the entry that should stand there, everything up to some sector is right, and that sector is zero (its
    part behind the entry's beginning, for the sector in which it begins).
    """
    view, begin = place.file.view(), place.offset
    sector_end = _sector_end(begin, len(view))
    if sector_end - begin >= _MAGIC_SIZE and _is_zero(view, begin, sector_end):
        return True
    header_end = begin + HEADER_SIZE
    if sector_end < header_end and _is_zero(view, sector_end, _sector_end(sector_end, len(view))):
        return _is_header_right(place, bytes(view[begin:sector_end]))
    if header_end > len(view) or not _is_header_right(place, bytes(view[begin:header_end])):
        return False
    size = HEADER.unpack_from(view, begin)[1]
    if not HEADER_SIZE <= size <= len(view) - begin:
        return False
    return any(
        _is_zero(view, sector, _sector_end(sector, len(view)))
        for sector in range(sector_end, begin + size, SECTOR_SIZE_BYTES)
    )


def _skip_stated_size(place: BadPlace) -> int:
    """Return from where to search: behind the bad entry if its header is right, so that its body is not looked into."""
    view, offset = place.file.view(), place.offset
    if offset + HEADER_SIZE <= len(view) and _is_header_right(place, bytes(view[offset : offset + HEADER_SIZE])):
        size: int = HEADER.unpack_from(view, offset)[1]
        if HEADER_SIZE <= size <= len(view) - offset:
            return place.position + size
    return place.position + 1


def _is_good(place: BadPlace, file: MappedFile, offset: int) -> bool:
    view, state = file.view(), place.state
    magic, size, index, term, at, channel, chain_crc, body_crc, body_size = HEADER.unpack_from(view, offset)
    position = file.begin_offset + offset
    if not place.may_be(magic, channel) or size != body_size + HEADER_SIZE or body_size < 0:
        return False
    if offset + size > len(view) or term < state.term or index < max(state.index, 0):
        return False
    # Entries between the bad place and this one took at least a header each.
    if state.index != UNKNOWN and index - state.index > (position - place.position) // HEADER_SIZE:
        return False
    if not chain_crc and not body_crc:
        return at - position in (0, place.displacement)
    return at == position and body_crc in (0, crc32c(view[offset + HEADER_SIZE : offset + size]))


def _is_header_right(place: BadPlace, header: bytes) -> bool:
    """Return whether those fields that lie wholly in `header`, the beginning of one, are as they must be."""
    magic, size, index, term, position, _, _, _, body_size = HEADER.unpack(header.ljust(HEADER_SIZE, b"\0"))
    visible = len(header)
    if visible >= _MAGIC_SIZE and magic == BLANK_MAGIC:
        return visible < HEADER_SIZE
    return (
        (visible < _MAGIC_SIZE or magic == ENTRY_NORMAL or any(magic == kind[0] for kind in place.codec.kinds))
        and (visible < 16 or index == place.state.index)
        and (visible < 24 or term >= place.state.term)
        and (visible < 32 or position - place.position in (0, place.displacement))
        and (visible < HEADER_SIZE or size == body_size + HEADER_SIZE)
    )


def _sector_end(offset: int, size: int) -> int:
    return min(offset - offset % SECTOR_SIZE_BYTES + SECTOR_SIZE_BYTES, size)


def _is_zero(view: memoryview, begin: int, end: int) -> bool:
    return not any(view[begin:end])
