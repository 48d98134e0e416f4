"""The port `EntryCodec`, which distinguishes a leader's own entries from those of clients; and raw logs.

A leader writes entries of its own: a no-op when it begins, a membership when the group changes. In a log of raw bytes
their magic says so:

| entry         | magic | channel | body |
| ------------- | ----: | ------: | ---- |
| of a client   |     1 |       0 | its bytes |
| no-op         |     2 |       0 | empty |
| membership    |     3 |       0 | a JSON object (`dledger.storage.membership_codec`) |

A log whose bodies are records of some other format brings a codec of its own (`commitlog.record.system_records`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from dledger.entries.format.entry import ENTRY_CONFIG_CHANGE, ENTRY_NOOP
from dledger.storage.membership_codec import (
    MembershipUnreadable,
    membership_from_object,
    membership_to_object,
    to_json,
)
from store.fs.foreign_json import foreign_json

if TYPE_CHECKING:
    from dledger.types import Membership


class SystemEntry(NamedTuple):
    """An entry that no client appended.

    Attributes:
        magic, channel: of its header.
        body: the bytes after the header.
        stamp_at: where in the body the store writes its physical offset; None: nowhere.
    """

    magic: int
    channel: int
    body: bytes
    stamp_at: int | None = None


class EntryChecks(Protocol):
    """Knows a leader's own entries when it sees them."""

    @property
    def kinds(self) -> frozenset[tuple[int, int]]:
        """(magic, channel) of every entry that is not a client's; one of magic 1 and channel 0 always is."""
        ...

    @property
    def tell_tale_at(self) -> int:
        """Offset in a body of a byte in which a leader's own entries have bits 0x0C set to 0x04; -1: there is none.

        A client's entry that has them, too, is looked at by `find_fault`: its channel may have been lost.
        """
        ...

    def find_fault(self, magic: int, channel: int, position: int, body: memoryview) -> tuple[str, str] | None:
        """Return the first contradiction between the header and the body of an entry at `position`.

        Returns:
            (expected, found), as text for people; None when nothing does.
        """
        ...


class EntryCodec(EntryChecks, Protocol):
    """Makes a leader's own entries, too."""

    @property
    def applied_channel(self) -> int:
        """Of the entries (magic 1) that a state machine gets."""
        ...

    def no_op(self) -> SystemEntry:
        """Return the entry with which a leader begins its term."""
        ...

    def membership(self, membership: Membership) -> SystemEntry:
        """Return the entry that brings `membership`."""
        ...

    def decode(self, magic: int, channel: int, body: bytes) -> Membership | None:
        """Return the membership that an entry brings; None when it brings none.

        Raises:
            MembershipUnreadable: it brings one that this program cannot read; stop the node.
        """
        ...


class RawEntryCodec:
    """`EntryCodec` of a log of raw bytes."""

    kinds: frozenset[tuple[int, int]] = frozenset({(ENTRY_NOOP, 0), (ENTRY_CONFIG_CHANGE, 0)})
    applied_channel = 0
    tell_tale_at = -1

    def no_op(self) -> SystemEntry:
        """Return the entry with which a leader begins its term: of magic 2, without a body."""
        return SystemEntry(ENTRY_NOOP, 0, b"")

    def membership(self, membership: Membership) -> SystemEntry:
        """Return the entry that brings `membership`: of magic 3, its body JSON."""
        return SystemEntry(ENTRY_CONFIG_CHANGE, 0, to_json(membership_to_object(membership)).encode())

    def decode(self, magic: int, channel: int, body: bytes) -> Membership | None:
        """Return the membership that an entry of magic 3 brings; None for any other entry."""
        if (magic, channel) != (ENTRY_CONFIG_CHANGE, 0):
            return None
        return decode_membership(body, "an entry of magic 3")

    def find_fault(self, magic: int, channel: int, position: int, body: memoryview) -> tuple[str, str] | None:
        """Return None: header and checksums of an entry say all."""


RAW_ENTRY_CODEC: EntryCodec = RawEntryCodec()


def decode_membership(body: bytes, where: str) -> Membership:
    """Return the membership that `body` holds as JSON.

    Raises:
        MembershipUnreadable: none does, or one of another version.
    """
    try:
        return membership_from_object(foreign_json(body))
    except ValueError as error:
        raise MembershipUnreadable(where, "a membership in JSON", str(error)) from error
