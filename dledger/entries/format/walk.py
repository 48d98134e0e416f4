"""Scans contiguous entries, in a file or in a push, and checks each one.

Each entry must have a known kind (magic and channel), consistent sizes, the next index and a term not below the
previous one; the log's codec checks the content of a leader's own entry; if they are present (not 0), the body
checksum, the chain checksum and the position must match. An entry without checksums was written by Java; its position
field may legally differ from its position (DLedger 0.4 keeps the leader's), so it is not compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from dledger import native
from dledger.entries.format.codec import RAW_ENTRY_CODEC, EntryChecks
from dledger.entries.format.entry import CHAIN, ENTRY_NORMAL, HEADER, HEADER_SIZE, INDEX_UNIT, INDEX_UNIT_SIZE, NO_CHAIN

UNKNOWN: Final = -1
# Entries in one scan of a file: bounds the memory of their index units (128 KiB).
WALK_COUNT_MAX = 4096
# A disk writes whole sectors: a power cut tears a write only at multiples of this.
SECTOR_SIZE_BYTES: Final = 512
# The last offset in a sector at which the chain checksum of a header (bytes 36 to 40) is in the same sector.
_LAST_WHOLE_CHECKSUM: Final = SECTOR_SIZE_BYTES - 40
# The bytes after the last entry in a file, where a magic would be.
_END: Final = bytes(4)
# See `EntryChecks.marker_at`.
MARKER: Final = 0x04
MARKER_MASK: Final = 0x0C


def walk(
    buffer: memoryview,
    offset: int,
    end: int,
    position: int,
    state: WalkState,
    count_max: int = WALK_COUNT_MAX,
    codec: EntryChecks = RAW_ENTRY_CODEC,
) -> EntryWalk:
    """Check the entries of `buffer[offset:end]` in order, up to the first invalid one.

    Args:
        buffer: the entries.
        offset: begin of the first one.
        end: end of the last one.
        position: of the first entry in the log.
        state: the constraints on the first one.
        count_max: stop after this number of entries.
        codec: of the log.
    """
    kernels = native.kernels
    if kernels is not None:
        found = _walk_in_c(kernels, buffer, (offset, end, position), state, count_max, codec)
        if found is not None:
            return found
    return walk_in_python(buffer, (offset, end, position), state, count_max, codec)


def walk_in_python(
    buffer: memoryview, where: tuple[int, int, int], state: WalkState, count_max: int, codec: EntryChecks
) -> EntryWalk:
    """Do the same without the native module, of which this is the reference; `where`: offset, end and position."""
    offset, end, position = where
    index, term, chain_crc = state.index, state.term, state.chain_crc
    units: list[bytes] = []
    special: list[int] = []
    # The hot loop of followers and recovery, so lookups are hoisted out of it.
    add_unit, pack_unit, unpack_header, pack_chain = units.append, INDEX_UNIT.pack, HEADER.unpack_from, CHAIN.pack
    checksum, normal, header_size, unknown = crc32c, ENTRY_NORMAL, HEADER_SIZE, UNKNOWN
    header_end, displacement = end - header_size, position - offset
    is_index_known, marker_at = index != unknown, codec.marker_at
    while offset <= header_end and count_max:
        magic, size, at_index, at_term, at, channel, at_chain, body_crc, body_size = unpack_header(buffer, offset)
        next_offset = offset + size
        if at_index != index and is_index_known:
            break
        if at_term < term or at_index < 0 or body_size < 0 or size != body_size + header_size or next_offset > end:
            break
        body = buffer[offset + header_size : next_offset]
        is_own = channel or magic != normal
        if is_own or (0 <= marker_at < body_size and body[marker_at] & MARKER_MASK == MARKER):
            is_known = not is_own or (magic, channel) in codec.kinds
            if not is_known or codec.find_fault(magic, channel, offset + displacement, body):
                break
            if is_own:
                special.append(len(units))
        if body_crc and body_crc != checksum(body):
            break
        is_chained = at_chain and chain_crc != unknown
        if is_chained and at_chain != checksum(pack_chain(chain_crc, magic, at_index, at_term, body_crc)):
            break
        if at != offset + displacement and (body_crc or at_chain):
            break
        if not (at_chain or body_size) and chain_crc > 0 and _may_be_torn(buffer, offset, next_offset):
            break
        add_unit(pack_unit(magic, offset + displacement, size, at_index, at_term))
        index, term, chain_crc, is_index_known = at_index + 1, at_term, at_chain, True
        offset = next_offset
        count_max -= 1
    if special and special[-1] == len(units):  # the invalid entry
        special.pop()
    is_stopped = offset < end and count_max > 0
    return EntryWalk(b"".join(units), special, offset, WalkState(index, term, chain_crc), is_stopped)


def _walk_in_c(
    kernels: native.Kernels,
    buffer: memoryview,
    where: tuple[int, int, int],
    state: WalkState,
    count_max: int,
    codec: EntryChecks,
) -> EntryWalk | None:
    """Check clients' entries in C and a leader's own one by one here; None: these arguments are left to Python."""
    offset, end, position = where
    displacement, count = position - offset, 0
    units: list[bytes] = []
    special: list[int] = []
    while True:
        at_index, term, chain_crc = state.index, state.term, state.chain_crc
        found = kernels.walk_entries(
            buffer, offset, end, offset + displacement, at_index, term, chain_crc, count_max - count, codec.marker_at
        )
        if found is None:
            return None
        more, offset, at_index, term, chain_crc, is_for_codec = found
        units.append(more)
        count += len(more) // INDEX_UNIT_SIZE
        state = WalkState(at_index, term, chain_crc)
        if not is_for_codec:
            break
        one = walk_in_python(buffer, (offset, end, offset + displacement), state, 1, codec)
        if not one.units:
            break
        if one.special:
            special.append(count)
        units.append(one.units)
        count, offset, state = count + 1, one.offset, one.state
    return EntryWalk(b"".join(units), special, offset, state, offset < end and count < count_max)


# Not frozen: every read of entries creates some, and creating a frozen one takes four times as long.
@dataclass(slots=True)
class WalkState:
    """The constraints on the next entry.

    Attributes:
        index: the index that it must have; UNKNOWN (-1): any.
        term: the lowest term that it may have.
        chain_crc: the chain_crc field of the entry before it; UNKNOWN (-1): the chain is not checked.
    """

    index: int
    term: int
    chain_crc: int


# Not frozen: every read of entries creates one, and creating a frozen one takes four times as long.
@dataclass(slots=True)
class EntryWalk:
    """The result of a walk.

    Attributes:
        units: index units of the valid entries, back to back.
        special: the numbers, among the valid ones, of entries that are not clients'.
        offset: in the buffer, after the last valid entry.
        state: the constraints on the next entry.
        is_stopped: True: the bytes at `offset` are not a valid entry; False: the end or the count was reached.
    """

    units: bytes
    special: list[int]
    offset: int
    state: WalkState
    is_stopped: bool

    @property
    def count(self) -> int:
        """The number of valid entries."""
        return len(self.units) // INDEX_UNIT_SIZE


def chain_before(begin_index: int) -> int:
    """Return the chain value before a log's first entry: 0 for entry 0, else UNKNOWN (the entry before is deleted)."""
    return UNKNOWN if begin_index else NO_CHAIN


def _may_be_torn(buffer: memoryview, offset: int, next_offset: int) -> bool:
    """Return whether an empty entry may have lost its checksums only, and so looks like one of Java's."""
    is_checksum_apart = offset % SECTOR_SIZE_BYTES > _LAST_WHOLE_CHECKSUM
    return is_checksum_apart and buffer[next_offset : next_offset + len(_END)] == _END


def describe_fault(
    buffer: memoryview, offset: int, end: int, position: int, state: WalkState, codec: EntryChecks = RAW_ENTRY_CODEC
) -> tuple[str, str]:
    """Return the fault of the entry at `offset`, where `walk` stopped: (expected, found), as text for people."""
    if end - offset < HEADER_SIZE:
        return f"an entry header of {HEADER_SIZE} bytes", f"only {end - offset} bytes"
    magic, size, index, term, at, channel, chain_crc, body_crc, body_size = HEADER.unpack_from(buffer, offset)
    body = buffer[offset + HEADER_SIZE : max(offset + HEADER_SIZE, min(offset + size, end))]
    found_body_crc = crc32c(body)
    found_chain_crc = crc32c(CHAIN.pack(max(state.chain_crc, NO_CHAIN), magic, index, term, body_crc))
    kinds = {(ENTRY_NORMAL, 0), *codec.kinds}
    channels = sorted(channel for known, channel in kinds if known == magic)
    in_body = codec.find_fault(magic, channel, position, body) if (magic, channel) in kinds else None
    faults = (
        (not channels, f"magic 1, 2 or 3 (index {state.index})", f"magic {magic}"),
        (body_size < 0 or size != body_size + HEADER_SIZE, f"size {HEADER_SIZE} + body size {body_size}", f"{size}"),
        (size > end - offset, f"an entry of at most {end - offset} bytes", f"one of {size}"),
        (state.index not in (UNKNOWN, index), f"index {state.index}", f"index {index}"),
        (index < 0, "an index from 0", f"index {index}"),
        (term < state.term, f"term {state.term} or above (index {index})", f"term {term}"),
        (channel not in channels, f"channel {' or '.join(map(str, channels))} (index {index})", f"channel {channel}"),
        (
            body_crc not in (0, found_body_crc),
            f"body checksum {body_crc:#010x} (index {index})",
            f"{found_body_crc:#010x}",
        ),
        (in_body is not None, *(in_body or ("", ""))),
        (at != position, f"position {position} (index {index})", f"position {at}"),
        (True, f"chain checksum {found_chain_crc:#010x} (index {index})", f"{chain_crc:#010x}"),
    )
    return next((expected, found) for is_fault, expected, found in faults if is_fault)
