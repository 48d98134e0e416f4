"""The kinds of entries in raw logs and logs of messages: entries of clients, and a leader's own entries.

A remote reader does not know whether a group's log is raw. It does not need to: a channel other than 0 is evaluated
only if the body is a record of the leaders' system topic, which clients cannot write.
"""

from __future__ import annotations

from typing import Final

from commitlog.record.system_records import MEMBERSHIP_CHANNEL, NO_OP_CHANNEL, STATE_CHANNEL, MessageEntryCodec
from dledger.entries.format.codec import RAW_ENTRY_CODEC
from dledger.entries.format.entry import ENTRY_CONFIG_CHANGE, ENTRY_NOOP, ENTRY_NORMAL

CLIENT_KIND: Final = "normal"
# By magic and channel.
_KINDS: Final = {
    (ENTRY_NORMAL, 0): CLIENT_KIND,
    (ENTRY_NOOP, 0): "no-op",
    (ENTRY_CONFIG_CHANGE, 0): "member",
    (ENTRY_NORMAL, NO_OP_CHANNEL): "no-op",
    (ENTRY_NORMAL, MEMBERSHIP_CHANNEL): "member",
    (ENTRY_NORMAL, STATE_CHANNEL): "state",
}
_NAMES: Final = {"no-op": "a no-op", "member": "a membership entry", "state": "a change of broker state"}


class AnyLogChecks:
    """`dledger.entries.format.codec.EntryChecks` of a log whose kind is not known."""

    kinds = frozenset(_KINDS) - {(ENTRY_NORMAL, 0)}
    # A client's entry in a raw log may have any body.
    marker_at = -1

    def __init__(self) -> None:
        self._of_messages = MessageEntryCodec(lambda: 0)

    def find_fault(self, magic: int, channel: int, position: int, body: memoryview) -> tuple[str, str] | None:
        """Return (expected, found) if a leader's own entry contradicts its header; None: it does not."""
        checks = self._of_messages if channel else RAW_ENTRY_CODEC
        return checks.find_fault(magic, channel, position, body)


def kind_of(magic: int, channel: int) -> str:
    """Return the name of an entry's kind; the magic if the kind is unknown."""
    return _KINDS.get((magic, channel), str(magic))


def leaders_own(magic: int, channel: int) -> str:
    """Return the kind of a leader's own entry, with an article; empty for a client's entry."""
    return _NAMES.get(kind_of(magic, channel), "")
