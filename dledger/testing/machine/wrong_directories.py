"""Directories on which a node must not simply run: of another group or node, or without an identity.

An operator can cause each of them with a few commands. The node must be down.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from dledger.entries.format.codec import RAW_ENTRY_CODEC, EntryCodec
from dledger.entries.membership_file import MembershipFile
from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.storage.hard_state import HardStateFile
from dledger.storage.identity import FILE_NAME, IdentityFile
from dledger.testing.checks.all_checks import node_directory
from dledger.types import NO_GROUP, HardState, Member, Membership, MembershipEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.testing.disk.disk import Directory, SimDisk
    from dledger.testing.disk.files import SimFiles

# The name of all simulated groups; they differ in their ids.
GROUP_NAME = "simulated"


@dataclass(frozen=True, slots=True)
class Foreign:
    """Another group with a member of the same name, and that member's log.

    Attributes:
        members: of the group.
        group_id: of the group, not that of the nodes here.
        term: of all entries; also the node's current term.
        bodies: of the entries after the first one, which contains the group id; all are committed.
    """

    members: tuple[Member, ...]
    group_id: int
    term: int
    bodies: Sequence[bytes]


def put_foreign(
    files: SimFiles,
    node_id: str,
    sizes: EntryStoreConfig,
    foreign: Foreign,
    codec: EntryCodec = RAW_ENTRY_CODEC,
    group: str = GROUP_NAME,
) -> None:
    """Create the directory of `node_id`, which must not exist, as left by a node of the same name in another group.

    Args:
        files: of its machine.
        node_id: of both nodes.
        sizes: of the files of the log.
        foreign: the other group, and the node's log in it.
        codec: of the entries.
        group: the name of both groups.
    """
    directory = node_directory(node_id)
    files.make_directory(directory)
    identity = IdentityFile.check(files, directory, node_id, group)
    draw = Random(foreign.group_id).randrange
    identity.begin(node_id, group, has_state=False, is_adopting=False, draw=draw)
    membership = Membership(foreign.members, foreign.group_id)
    MembershipFile.open(files, directory).save([MembershipEntry(0, membership)])
    HardStateFile.open(files, directory).save(HardState(foreign.term, node_id))
    store = EntryStore.open(files, directory, sizes, codec)
    magic, channel, body, stamp_at = codec.membership(membership)
    store.append([body], 0, foreign.term, magic=magic, channel=channel, stamp_at=stamp_at)
    if foreign.bodies:
        store.append(list(foreign.bodies), 1, foreign.term)
    store.close(store.last_index)


def exchange(disk: SimDisk, node_id: str, other_disk: SimDisk, other_id: str) -> None:
    """Exchange the directories of two nodes; each then has the other's name."""
    mine, theirs = _taken(disk, node_id), _taken(other_disk, other_id)
    for target, name, content in ((disk, node_id, theirs), (other_disk, other_id, mine)):
        target.directories.update({f"{node_directory(name)}{path}": each for path, each in content.items()})


def _taken(disk: SimDisk, node_id: str) -> dict[str, Directory]:
    root = node_directory(node_id)
    paths = [path for path in disk.directories if path == root or path.startswith(f"{root}/")]
    return {path.removeprefix(root): disk.directories.pop(path) for path in paths}


def make_nameless(files: SimFiles, node_id: str) -> None:
    """Make the directory of a node like that of an older version, without node identity and group id."""
    directory = node_directory(node_id)
    files.remove(f"{directory}/{FILE_NAME}")
    files.sync_directory(directory)
    hard_state = HardStateFile.open(files, directory)
    if hard_state.exists:
        hard_state.save(replace(hard_state.load(), founding_group_id=NO_GROUP))
    file = MembershipFile.open(files, directory)
    entries = file.load()
    assert entries is not None, node_id
    file.save([replace(entry, membership=replace(entry.membership, group_id=NO_GROUP)) for entry in entries])
