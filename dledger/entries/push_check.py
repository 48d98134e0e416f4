"""Checks pushed entries against their description and the local log before any is written."""

from __future__ import annotations

from dataclasses import dataclass

from crc32c import crc32c

from dledger.entries.errors import CorruptPush
from dledger.entries.format.codec import RAW_ENTRY_CODEC, EntryCodec
from dledger.entries.format.entry import BLANK_SIZE_MIN, CHAIN, HEADER, INDEX_UNIT, decode
from dledger.entries.format.placement import place
from dledger.entries.format.walk import UNKNOWN, WalkState, describe_fault, walk
from dledger.types import MembershipEntry, Span


@dataclass(frozen=True, slots=True)
class CheckedPush:
    """A push whose entries are internally consistent.

    Attributes:
        span: the peer's description of the entries.
        payload: their bytes.
        units: their index units, back to back.
        special: the numbers of those that are not clients'.
        chain_crc: of the last one.
    """

    span: Span
    payload: bytes
    units: bytes
    special: list[int]
    chain_crc: int

    def memberships(self, codec: EntryCodec) -> tuple[MembershipEntry, ...]:
        """Return the memberships in the entries.

        Raises:
            MembershipUnreadable: the node must stop.
        """
        found: list[MembershipEntry] = []
        for number in self.special:
            entry = decode(
                self.payload, INDEX_UNIT.unpack_from(self.units, number * INDEX_UNIT.size)[1] - self.span.position
            )
            membership = codec.decode(entry.magic, entry.channel, entry.body)
            if membership is not None:
                found.append(MembershipEntry(entry.index, membership))
        return tuple(found)

    def position_of(self, index: int) -> int:
        """Return the position of entry `index` of the span in the log."""
        position: int = INDEX_UNIT.unpack_from(self.units, (index - self.span.first_index) * INDEX_UNIT.size)[1]
        return position


@dataclass(frozen=True, slots=True)
class Predecessor:
    """The local entry before a pushed one: it determines the position and the chain checksum of the next entry.

    `chain_crc` is UNKNOWN (-1) if the entry before was deleted.
    """

    end_position: int
    chain_crc: int


def check_payload(span: Span, payload: bytes, data_file_size: int, codec: EntryCodec = RAW_ENTRY_CODEC) -> CheckedPush:
    """Check the internal consistency of a push: count, order, term, sizes, positions and checksums.

    Raises:
        CorruptPush: drop the push.
    """
    first_index, view = span.first_index, memoryview(payload)
    if len(payload) != span.length or span.last_index < first_index or first_index < 0:
        found = f"[{first_index}, {span.last_index}] in {len(payload)} bytes"
        raise CorruptPush(first_index, f"entries in {span.length} bytes", found)
    if span.position < 0 or span.position % data_file_size + span.length + BLANK_SIZE_MIN > data_file_size:
        found = f"bytes [{span.position}, {span.position + span.length})"
        raise CorruptPush(first_index, f"entries within one data file of {data_file_size} bytes", found)
    count = span.last_index - first_index + 1
    done = walk(view, 0, len(view), span.position, WalkState(first_index, span.term, UNKNOWN), count, codec)
    if done.count < count:
        expected, fault = describe_fault(view, done.offset, len(view), span.position + done.offset, done.state, codec)
        raise CorruptPush(done.state.index, expected, fault)
    if done.offset != len(view):
        raise CorruptPush(done.state.index, f"{count} entries", f"{len(view) - done.offset} more bytes")
    if done.state.term != span.term:
        raise CorruptPush(span.last_index, f"term {span.term}", f"term {done.state.term}")
    return CheckedPush(span, payload, done.units, done.special, done.state.chain_crc)


def check_follows(push: CheckedPush, index: int, before: Predecessor, data_file_size: int) -> None:
    """Check that entry `index` of the push follows the local entry `before`.

    Raises:
        CorruptPush: drop the push.
    """
    position = push.position_of(index)
    fields = HEADER.unpack_from(push.payload, position - push.span.position)
    magic, size, _, term, _, _, chain_crc, body_crc, _ = fields
    expected_position = place(before.end_position, size, data_file_size)
    if position != expected_position:
        raise CorruptPush(index, f"position {expected_position}", f"position {position}")
    if chain_crc and before.chain_crc != UNKNOWN:
        expected = crc32c(CHAIN.pack(before.chain_crc, magic, index, term, body_crc))
        if chain_crc != expected:
            raise CorruptPush(index, f"chain checksum {expected:#010x}", f"{chain_crc:#010x}")
