"""The port `EntryCodec`, which distinguishes a leader's own entries from those of clients; and raw logs.

A leader itself appends some entries: a no-op when its term begins, a membership when the group changes. In a log of raw
bytes the magic distinguishes them:

| entry         | magic | channel | body |
| ------------- | ----: | ------: | ---- |
| of a client   |     1 |       0 | its bytes |
| no-op         |     2 |       0 | empty |
| membership    |     3 |       0 | a JSON object (`dledger.storage.membership_codec`) |

A log whose bodies have a record format has its own codec (`commitlog.record.system_records`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from dledger.entries.format.entry import ENTRY_CONFIG_CHANGE, ENTRY_NOOP, ENTRY_NORMAL
from dledger.storage.membership_codec import (
    MembershipUnreadable,
    membership_from_object,
    membership_to_object,
    to_json,
)
from store.fs.foreign_json import foreign_json

if TYPE_CHECKING:
    from dledger.entries.format.entry import Entry
    from dledger.types import Membership


# The bit of both bytes at `EntryCodec.effect_at`.
EFFECT_MARK: Final = 0x40


class SystemEntry(NamedTuple):
    """An entry that no client appended.

    Attributes:
        magic, channel: of its header.
        body: the bytes after the header.
        stamp_at: position in the body at which the store writes its physical offset; None: nowhere.
    """

    magic: int
    channel: int
    body: bytes
    stamp_at: int | None = None


class EntryChecks(Protocol):
    """Validates a leader's own entries."""

    @property
    def kinds(self) -> frozenset[tuple[int, int]]:
        """The (magic, channel) pairs of a leader's own entries; magic 1 with channel 0 is always a client's entry."""
        ...

    @property
    def marker_at(self) -> int:
        """Offset of a body byte in which a leader's own entries have bits 0x0C set to 0x04; -1: there is none.

        A client's entry with the same bits is checked by `find_fault`: its channel may be damaged.
        """
        ...

    def find_fault(self, magic: int, channel: int, position: int, body: memoryview) -> tuple[str, str] | None:
        """Return the first contradiction between the header and the body of an entry at `position`.

        Returns:
            (expected, found), as text for people; None if there is none.
        """
        ...


class EntryCodec(EntryChecks, Protocol):
    """Also creates a leader's own entries."""

    @property
    def applied_channel(self) -> int:
        """The channel of the entries (magic 1) that are passed to a state machine."""
        ...

    @property
    def effect_at(self) -> int:
        """Offset of two body bytes, -1: none. A state machine also receives clients' entries with bit 0x40 in both."""
        ...

    def no_op(self) -> SystemEntry:
        """Return the no-op with which a leader begins its term."""
        ...

    def membership(self, membership: Membership) -> SystemEntry:
        """Return the entry for `membership`."""
        ...

    def decode(self, magic: int, channel: int, body: bytes) -> Membership | None:
        """Return the membership in an entry; None if it has none.

        Raises:
            MembershipUnreadable: this version cannot read it; stop the node.
        """
        ...


class RawEntryCodec:
    """`EntryCodec` of a log of raw bytes."""

    kinds: frozenset[tuple[int, int]] = frozenset({(ENTRY_NOOP, 0), (ENTRY_CONFIG_CHANGE, 0)})
    applied_channel = 0
    effect_at = -1
    marker_at = -1

    def no_op(self) -> SystemEntry:
        """Return the no-op with which a leader begins its term: magic 2, no body."""
        return SystemEntry(ENTRY_NOOP, 0, b"")

    def membership(self, membership: Membership) -> SystemEntry:
        """Return the entry for `membership`: magic 3, a JSON body."""
        return SystemEntry(ENTRY_CONFIG_CHANGE, 0, to_json(membership_to_object(membership)).encode())

    def decode(self, magic: int, channel: int, body: bytes) -> Membership | None:
        """Return the membership in an entry of magic 3; None for any other entry."""
        if (magic, channel) != (ENTRY_CONFIG_CHANGE, 0):
            return None
        return decode_membership(body, "an entry of magic 3")

    def find_fault(self, magic: int, channel: int, position: int, body: memoryview) -> tuple[str, str] | None:
        """Return None: header and body of a raw entry are not redundant."""


RAW_ENTRY_CODEC: EntryCodec = RawEntryCodec()


def is_applied(codec: EntryCodec, entry: Entry) -> bool:
    """Return whether a state machine receives an entry: of the applied channel, or of a client with an effect."""
    if entry.magic != ENTRY_NORMAL:
        return False
    if entry.channel:
        return entry.channel == codec.applied_channel
    effect_at = codec.effect_at
    has_effect = 0 <= effect_at < len(entry.body) - 1 and bool(
        entry.body[effect_at] & entry.body[effect_at + 1] & EFFECT_MARK
    )
    return has_effect or not codec.applied_channel


def decode_membership(body: bytes, where: str) -> Membership:
    """Return the membership in the JSON of `body`.

    Raises:
        MembershipUnreadable: it is not a membership, or has another version.
    """
    try:
        return membership_from_object(foreign_json(body))
    except ValueError as error:
        raise MembershipUnreadable(where, "a membership in JSON", str(error)) from error
