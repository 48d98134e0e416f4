"""The persistent state of a node at its start: hard state and memberships, read together.

Both are needed to decide whether a node without term and vote is new or was wiped (ADR 7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dledger.entries.membership_file import MembershipFile, drop_unheld
from dledger.storage.membership_codec import MembershipTooLarge, widest
from dledger.types import NO_GROUP, NO_INDEX, HardState, Membership, MembershipEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.entries.store import EntryStore
    from dledger.storage.hard_state import HardStateFile


@dataclass(frozen=True, slots=True)
class PersistentState:
    """The persistent state of a node at its start; memberships as for `dledger.core.raft.Raft`."""

    hard_state: HardState
    memberships: tuple[MembershipEntry, ...]


class SavedMemberships:
    """Saves and loads the memberships of a node: the driver's port `Memberships`, with the file."""

    def __init__(self, file: MembershipFile) -> None:
        self._file = file

    def save(self, entries: Sequence[MembershipEntry]) -> None:
        """Save the memberships of the log durably; the first is committed."""
        self._file.save(entries)

    def load(self, store: EntryStore, hard_state: HardStateFile, settings: Membership) -> PersistentState:
        """Return the persistent state; at the first start the memberships are saved.

        Memberships whose entries the log lacks are removed from the file: after the log's head beyond their index is
        deleted, they could no longer be recognised as uncommitted.

        A node without term and vote is founding, unless another program wrote its log (DLedger's own file may be
        missing): with an empty directory, or one of this program, earlier votes may have been lost.

        Args:
            store: recovered.
            hard_state: the file.
            settings: the membership in the settings; in force until the log contains one.

        Raises:
            store.errors.StoreError, MembershipUnreadable, MembershipTooLarge: do not start; see the messages.
        """
        saved = hard_state.load()
        entries = self._file.load()
        _check_founding(store, settings if entries is None else entries[-1].membership)
        is_empty = store.last_index < store.begin_index
        if not hard_state.exists and (is_empty or entries is not None):
            saved = HardState(is_founding=True)
        if entries is None:
            entries = (MembershipEntry(NO_INDEX, settings),)
            self._file.save(entries)
        held = drop_unheld(entries, store)
        if held != entries:
            self._file.save(held)
        return PersistentState(saved, held)


def has_state(store: EntryStore, hard_state: HardStateFile, memberships: MembershipFile) -> bool:
    """Return whether a node of this or another program may have voted or acknowledged entries in this directory."""
    return hard_state.exists or memberships.exists or store.last_index >= store.begin_index


def _check_founding(store: EntryStore, membership: Membership) -> None:
    """Check that an entry can contain the first membership, if the group is not founded yet.

    Raises:
        MembershipTooLarge: it cannot.
    """
    if membership.group_id != NO_GROUP:
        return
    size = len(store.codec.membership(widest(membership)).body)
    if size > store.max_body_bytes:
        raise MembershipTooLarge(len(membership.members), size, store.max_body_bytes)
