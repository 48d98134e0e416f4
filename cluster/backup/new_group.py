"""Completes the directory of a node of a new group, which has the copied entries and no other file of a node yet.

The last entry is a membership with the members and the id of the new group. All entries count as committed: the new
members agreed on them, by a restore with the same options, or because there is only one.

A directory is made under another name, and renamed when it is complete and durable, so that no node starts from a part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dledger.entries.membership_file import MembershipFile
from dledger.storage.hard_state import HardStateFile
from dledger.storage.identity import IdentityFile
from dledger.storage.properties import format_checked
from dledger.types import HardState, MembershipEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dledger.entries.format.codec import EntryCodec
    from dledger.entries.store import EntryStore
    from dledger.types import Membership
    from store.fs.ports import Files


@dataclass(frozen=True, slots=True)
class NewDirectory:
    """The directory of a node of a new group, while it is being made.

    Attributes:
        path: its name until it is complete.
        node_id, group: of the node.
        membership: of the new group, with its id; this node has incarnation 0 in it.
        record_name, record: a file that says where the log is from.
    """

    path: str
    node_id: str
    group: str
    membership: Membership
    record_name: str
    record: Mapping[str, str]


def complete(
    files: Files,
    new: NewDirectory,
    store: EntryStore,
    *,
    codec: EntryCodec,
    term: int,
    draw: Callable[[int, int], int],
) -> None:
    """Append the membership, write the other files of the node, and make everything durable; close the store.

    Args:
        files: the file system.
        new: what is made.
        store: with all copied entries; closed also after an error.
        codec: makes the entry.
        term: of the entry; above all terms of the old group that this node knows.
        draw: returns a random number in a half-open range.

    Raises:
        dledger.entries.errors.EntryTooLarge, store.errors.StoreError: the directory is incomplete.
    """
    try:
        entry = codec.membership(new.membership)
        index = store.last_index + 1
        store.append([entry.body], index, term, entry.magic, entry.channel, entry.stamp_at)
    except BaseException:
        store.abandon()
        raise
    store.close(index)
    HardStateFile.open(files, new.path).save(HardState(term))
    MembershipFile.open(files, new.path).save([MembershipEntry(index, new.membership)])
    identity = IdentityFile.check(files, new.path, new.node_id, new.group)
    identity.begin(new.node_id, new.group, has_state=True, is_adopting=True, draw=draw)
    files.replace(f"{new.path}/{new.record_name}", format_checked(new.record))
    files.sync_tree(new.path)


def remove_tree(files: Files, path: str) -> None:
    """Remove a directory with all that is in it; it need not exist."""
    if not files.exists(path):
        return
    for name, is_directory in files.list_entries(path):
        if is_directory:
            remove_tree(files, f"{path}/{name}")
        else:
            files.remove(f"{path}/{name}")
    files.remove_directory(path)
