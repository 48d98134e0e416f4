"""The rule by which entries follow one another, across parts of a backup and across backups.

Each entry has the next index, a term that is not lower, a position that is not before the end of the last one, and a
chain checksum that covers all entries before it. So a log whose entries were replaced, for example that of a group
which lost its majority, is recognised as another log. Entries of Java have no checksums; of those the other rules hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from dledger.entries.format.entry import CHAIN, HEADER, HEADER_SIZE

if TYPE_CHECKING:
    from dledger.entries.format.entry import Entry

# The checksum of the entry before is not known: it was deleted from the log.
UNKNOWN_CHAIN: Final = -1


@dataclass(frozen=True, slots=True)
class ChainEnd:
    """The last entry of a run of entries, as far as the next one depends on it.

    Attributes:
        index, term: of the last entry; before the first one of a log: its index minus 1, and 0.
        position: after that entry.
        chain_crc: of that entry; UNKNOWN_CHAIN (-1): not known; 0: none before entry 0, and of Java's entries.
    """

    index: int
    term: int
    position: int
    chain_crc: int


class ChainBroken(Exception):
    """An entry does not follow the one before it.

    Attributes:
        expected, found: of the field that differs.
    """

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.expected = expected
        self.found = found


def beginning(begin_index: int, begin_position: int) -> ChainEnd:
    """Return the end before the first entry of a log that begins there."""
    return ChainEnd(begin_index - 1, 0, begin_position, UNKNOWN_CHAIN if begin_index else 0)


def follow(end: ChainEnd, entry: Entry) -> ChainEnd:
    """Return the end after `entry`.

    Raises:
        ChainBroken: it does not follow `end`.
    """
    if entry.index != end.index + 1:
        raise ChainBroken(f"index {end.index + 1}", f"index {entry.index}")
    if entry.term < end.term:
        raise ChainBroken(f"term {end.term} or above at index {entry.index}", f"term {entry.term}")
    # An entry of Java may have the position of another replica.
    is_checked = bool(entry.chain_crc)
    if is_checked and entry.position < end.position:
        raise ChainBroken(f"position {end.position} or above at index {entry.index}", f"position {entry.position}")
    if is_checked and end.chain_crc != UNKNOWN_CHAIN:
        expected = crc32c(CHAIN.pack(end.chain_crc, entry.magic, entry.index, entry.term, entry.body_crc))
        if entry.chain_crc != expected:
            raise ChainBroken(
                f"chain checksum {expected:#010x} at index {entry.index}", f"chain checksum {entry.chain_crc:#010x}"
            )
    return ChainEnd(entry.index, entry.term, entry.position + entry.size, entry.chain_crc)


def encoded(entry: Entry) -> bytes:
    """Return the bytes of an entry as they are in the files of nodes."""
    size = HEADER_SIZE + len(entry.body)
    header = HEADER.pack(
        entry.magic,
        size,
        entry.index,
        entry.term,
        entry.position,
        entry.channel,
        entry.chain_crc,
        entry.body_crc,
        len(entry.body),
    )
    return header + entry.body
