"""Makes a log the log of a new group: appends a membership with a new group id, and begins a new term.

Nodes of the old group refuse messages of the new one, and the other way round, because each message of a leader has the
group id (`dledger.core.trust`). Shared by a restore, where all members write the same entry, and by a recovery, where
one survivor does.

Order, each step durable before the next: the term, so that this node votes in no earlier one; the memberships with the
new one as the last; the entry; the new membership as the committed one; the caller's checkpoint. After a crash between
them the node starts with the old membership, or with the new one in force: both are states of Raft.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dledger.entries.membership_file import MembershipFile, drop_unheld
from dledger.storage.hard_state import HardStateFile
from dledger.types import HardState, MembershipEntry

if TYPE_CHECKING:
    from dledger.entries.format.codec import EntryCodec
    from dledger.entries.store import EntryStore
    from dledger.types import Membership
    from store.fs.ports import Files


@dataclass(frozen=True, slots=True)
class NewGroup:
    """The beginning of a new group.

    Attributes:
        index, term: of the entry with its membership.
        membership: with its id.
    """

    index: int
    term: int
    membership: Membership


def begin_new_group(
    files: Files, directory: str, store: EntryStore, membership: Membership, codec: EntryCodec
) -> NewGroup:
    """Append a membership as the last entry, durably; the caller closes the store, with this entry as committed.

    Args:
        files: the file system.
        directory: of the node.
        store: its open log.
        membership: of the new group; the incarnation of this node is that of its hard state.
        codec: makes the entry.

    Raises:
        dledger.entries.errors.EntryTooLarge, store.errors.DiskFull: the log is unchanged.
        store.errors.StorageFailed: repeat the command.
    """
    hard_state = HardStateFile.open(files, directory)
    memberships = MembershipFile.open(files, directory)
    saved = hard_state.load()
    entry = codec.membership(membership)
    store.reserve([len(entry.body)])
    found = NewGroup(store.last_index + 1, max(saved.term, store.last_term, 0) + 1, membership)
    hard_state.save(HardState(found.term, incarnation=saved.incarnation))
    added = MembershipEntry(found.index, membership)
    earlier = memberships.load()
    if earlier is not None:
        memberships.save((*drop_unheld(earlier, store), added))
    store.append([entry.body], found.index, found.term, entry.magic, entry.channel, entry.stamp_at)
    ticket = store.begin_flush()
    ticket.sync()
    store.end_flush(ticket)
    memberships.save([added])
    return found
