"""Leaders' entries in the form of a log of messages, for runs with such a log.

As in `commitlog.record.system_records`, which this package must not import, they have magic 1, the channel gives their
kind, and the store stamps their positions into their bodies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.entries.format.codec import SystemEntry, decode_membership
from dledger.entries.format.entry import ENTRY_NORMAL, HEADER_SIZE, STAMP
from dledger.storage.membership_codec import membership_to_object, to_json

if TYPE_CHECKING:
    from dledger.types import Membership

_NO_OP_CHANNEL = 2
_MEMBERSHIP_CHANNEL = 3
_STAMP_AT = 28
# The bytes before the stamp, which is followed by the kind.
_FRAME = b"system".ljust(_STAMP_AT, b".") + bytes(STAMP.size)
_BODY_AT = len(_FRAME) + 1


class ChannelEntryCodec:
    """`EntryCodec`; a body consists of a frame of 36 bytes, the channel and, for a membership, JSON."""

    kinds: frozenset[tuple[int, int]] = frozenset({(ENTRY_NORMAL, _NO_OP_CHANNEL), (ENTRY_NORMAL, _MEMBERSHIP_CHANNEL)})
    applied_channel = 0
    effect_at = -1
    # The "t" of the frame.
    marker_at = 3

    def no_op(self) -> SystemEntry:
        """Return the no-op with which a leader begins its term: magic 1, channel 2."""
        return _entry(_NO_OP_CHANNEL, b"")

    def membership(self, membership: Membership) -> SystemEntry:
        """Return the entry for `membership`: magic 1, channel 3."""
        return _entry(_MEMBERSHIP_CHANNEL, to_json(membership_to_object(membership)).encode())

    def decode(self, magic: int, channel: int, body: bytes) -> Membership | None:
        """Return the membership in an entry of channel 3; None for any other entry."""
        if (magic, channel) != (ENTRY_NORMAL, _MEMBERSHIP_CHANNEL):
            return None
        return decode_membership(body[_BODY_AT:], "an entry of channel 3")

    def find_fault(self, magic: int, channel: int, position: int, body: memoryview) -> tuple[str, str] | None:
        """Return (expected, found) if the body's frame contradicts channel and position; None if it agrees."""
        if (magic, channel) == (ENTRY_NORMAL, 0):
            is_own = body[:_STAMP_AT] == _FRAME[:_STAMP_AT]
            return ("an entry of a client in channel 0", "one of a leader") if is_own else None
        stamped = _FRAME[:_STAMP_AT] + STAMP.pack(position + HEADER_SIZE) + bytes([channel])
        found = body[:_BODY_AT].tobytes()
        return None if magic == ENTRY_NORMAL and found == stamped else (stamped.hex(), found.hex())


def _entry(channel: int, body: bytes) -> SystemEntry:
    return SystemEntry(ENTRY_NORMAL, channel, _FRAME + bytes([channel]) + body, _STAMP_AT)
