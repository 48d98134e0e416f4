"""Chooses the nodes for flipped bits and replaced disks, at most a minority at a time, and records them.

A flip may destroy any data on the damaged node's disk, and a new disk loses all of it; other nodes lose no data, and
the group loses no acknowledged entry. This holds while the nodes with a loss that are not readmitted yet are a minority
of the voters: every majority of the others then intersects every majority that acknowledged an entry. It holds at any
time, regardless of the damaged node's last acknowledgements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.core.state.quorum import quorum_of
from dledger.testing.disk.disk import SECTOR_SIZE_BYTES
from dledger.testing.faults import Fault, Violation
from dledger.types import NO_GROUP

if TYPE_CHECKING:
    from random import Random

    from dledger.core.raft import Raft
    from dledger.testing.disk.disk import SimDisk
    from dledger.testing.disk.inode import Inode
    from dledger.testing.faults import FaultCounts
    from dledger.types import Membership

_BYTES_MAX = 3
_AT_END_SHARE = 0.3
_END_SIZE_BYTES = 60
_LOCK_NAME = "lock"


class Damage:
    """The record of damaged and replaced disks.

    Args:
        disks: by node.
        founders: the nodes in the settings.

    Attributes:
        changing: nodes with a membership change in progress, during which the next majorities are not known.
    """

    def __init__(self, disks: dict[str, SimDisk], founders: tuple[str, ...]) -> None:
        self._disks = disks
        self._founders = founders
        self._damaged: set[str] = set()
        self._repaired: set[str] = set()
        # Nodes that were wiped, or gave up their vote because of a damaged tail, and are not readmitted yet.
        self._non_voting: set[str] = set()
        self._memberships: dict[str, Membership] = {}
        # The commit index known to each node.
        self._settled: dict[str, Membership] = {}
        # The group id from which each node accepts leaders and candidates.
        self._accepted_group_ids: dict[str, int] = {}
        self._incarnations: dict[str, int] = {}
        self._former_incarnations: dict[str, int] = {}
        self._absent: set[str] = set()
        self.changing: set[str] = set()
        self._founded: set[str] = set()

    def is_damaged(self, node_id: str) -> bool:
        """Whether this node's disk has unrepaired flipped bits."""
        return node_id in self._damaged

    def may_have_sent_damage(self, node_id: str) -> bool:
        """Whether messages in flight from this node may contain damaged entries, also after a repair."""
        return node_id in self._damaged or node_id in self._repaired

    def can_lose(self, node_id: str) -> bool:
        """Return whether the nodes with losses and this one are a minority in every membership that may be in force.

        Learners count as voters, because they may be promoted before their loss is found.
        """
        if node_id in self.lost or self.changing or not self._is_founded():
            return False
        count = len(self.lost) + 1
        voter_counts = [len(membership.voters) for membership in self._memberships.values()]
        return all(count <= voters - quorum_of(voters) for voters in voter_counts)

    @property
    def lost(self) -> list[str]:
        """Nodes with a damaged disk, nodes with a loss that are not readmitted yet, and nodes that are taken away."""
        gone = self._damaged | self._non_voting | self._absent
        return [node_id for node_id in self._disks if node_id in gone]

    def take_away(self, node_id: str) -> bool:
        """Take this node away until it is given back, if the group can work without it; return whether it can."""
        is_spared = self.can_lose(node_id)
        if is_spared:
            self._absent.add(node_id)
        return is_spared

    def is_group_known(self) -> bool:
        """Return whether every founder has stored the group id; until then it trusts all nodes in its settings."""
        return all(self._accepted_group_ids.get(node_id, NO_GROUP) != NO_GROUP for node_id in self._founders)

    def give_back(self, node_id: str) -> None:
        """Record that a node that was taken away is back with all its data."""
        self._absent.discard(node_id)

    def runs(self, node_id: str, raft: Raft) -> list[str]:
        """Record a running node's group id and voting status; return the nodes that count again."""
        state = raft.state
        self._memberships[node_id] = state.memberships[-1].membership
        self._settled[node_id] = state.memberships[0].membership
        # Read from the state, not through the core's own rules, which are under test.
        self._accepted_group_ids[node_id] = state.committed_group_id or (
            0 if state.is_founding else state.founding_group_id
        )
        if state.is_founding:
            self._incarnations.pop(node_id, None)
            return []
        if node_id in self._non_voting and state.incarnation in (0, self._former_incarnations.get(node_id)):
            raise Violation("readmission", f"{node_id} lost what it acknowledged and acts as if it had not")
        self._incarnations[node_id] = state.incarnation
        self._founded.add(node_id)
        member = self._settled[node_id].get(node_id)
        if member is not None and member.is_voter and member.incarnation != state.incarnation:
            # It missed the founding and must be readmitted like a wiped node.
            self._non_voting.add(node_id)
        return self._readmit() if self._non_voting else []

    def _readmit(self) -> list[str]:
        """Find the nodes whose readmission every voter without a loss knows to be committed.

        A voter without that knowledge does not count their votes: after another loss no candidate could win an
        election.
        """
        readmitted = []
        for node_id in self.non_voting:
            incarnation = self._incarnations.get(node_id)
            settled = self._settled.get(node_id)
            if not incarnation or settled is None:
                continue
            knowing = [
                self._settled.get(voter) for voter in settled.voters if voter == node_id or voter not in self.lost
            ]
            members = [None if membership is None else membership.get(node_id) for membership in knowing]
            if all(member is not None and member.incarnation == incarnation for member in members):
                self._non_voting.remove(node_id)
                readmitted.append(node_id)
        return readmitted

    def _is_founded(self) -> bool:
        """Return whether no founder is founding; until then a wiped founder would forget a vote that others count."""
        return all(node_id in self._founded for node_id in self._founders)

    @property
    def non_voting(self) -> list[str]:
        """Nodes that were wiped and are not readmitted to the group yet."""
        return [node_id for node_id in self._disks if node_id in self._non_voting]

    def wipe(self, node_id: str) -> None:
        """Give a node that is down a new, empty disk."""
        self._disks[node_id].wipe()
        self._damaged.discard(node_id)
        self.lose_vote(node_id)
        self._memberships.pop(node_id, None)

    def gave_up_vote(self, node_id: str) -> None:
        """Record that a node treated the end of its log as damaged, which a crash alone must never cause."""
        if node_id not in self._damaged:
            raise Violation("vote given up", f"{node_id} gave its vote up, and its disk has changed no bit")
        self.lose_vote(node_id)

    def lose_vote(self, node_id: str) -> None:
        """Record that a node lost acknowledged data: it must not count until it is readmitted."""
        self._non_voting.add(node_id)
        self._settled.pop(node_id, None)
        self._accepted_group_ids.pop(node_id, None)
        former = self._incarnations.pop(node_id, None)
        if former is not None:
            self._former_incarnations[node_id] = former

    def came_back(self, node_id: str, raft: Raft, *, has_lost: bool) -> bool:
        """Record the start of a node with a damaged disk; return whether it must be readmitted, as far as is known.

        Args:
            node_id: the node.
            raft: its core.
            has_lost: it lost acknowledged data. Even without a loss it may give up its vote.
        """
        former = self._incarnations.get(node_id)
        if has_lost or (former is not None and raft.state.incarnation != former):
            self.lose_vote(node_id)
        self.runs(node_id, raft)
        return node_id in self._non_voting

    def flip(self, node_id: str, random: Random, counts: FaultCounts, *, is_cached: bool) -> str | None:
        """Flip a few bits of one file of a node; return its path.

        Args:
            node_id: owner of the disk.
            random: chooses the bits.
            counts: counts them.
            is_cached: also flip the bits in the page cache.

        Returns:
            None when nothing was done: too many others have losses, or the disk is empty.
        """
        # The end of the log is chosen as often as all other places, because special rules apply to the last entry.
        is_at_end = random.random() < _AT_END_SHARE
        chosen = self._choose_file(node_id, random, is_at_end=is_at_end)
        if chosen is None:
            return None
        path, inode = chosen
        # In most cases a place with data, because most of a file is empty.
        used = len(bytes(inode.durable).rstrip(b"\0")) if random.random() < 0.9 else len(inode.durable)
        begin = random.randrange(max(0, used - _END_SIZE_BYTES) if is_at_end else 0, max(1, used))
        for _ in range(random.randint(1, _BYTES_MAX)):
            position = min(begin + random.randrange(_BYTES_MAX), len(inode.durable) - 1)
            inode.flip(position, 1 << random.randrange(8), is_cached=is_cached)
        counts.add(Fault.BIT_FLIP)
        self._damaged.add(node_id)
        return path

    def misdirect(self, node_id: str, random: Random, counts: FaultCounts) -> str | None:
        """Copy a sector of one file over a sector of another one, on the disk and in the page cache.

        The source sector is kept: a missing newest write there would look like a write that never happened.

        Returns:
            The path of the file that was overwritten; None when nothing was done, as in `flip`.
        """
        source, target = self._choose_file(node_id, random), self._choose_file(node_id, random)
        if source is None or target is None:
            return None
        written, inode = _sector_of(source[1], random), target[1]
        begin = random.randrange(len(inode.durable)) // SECTOR_SIZE_BYTES * SECTOR_SIZE_BYTES
        if not any(written):
            # Zeros over the last entry look like a write that never happened.
            return None
        changes = [was ^ now for was, now in zip(inode.durable[begin : begin + len(written)], written, strict=False)]
        if not any(changes):
            return None
        for position, mask in enumerate(changes, start=begin):
            if mask:
                inode.flip(position, mask, is_cached=True)
        counts.add(Fault.MISDIRECTED_WRITE)
        self._damaged.add(node_id)
        return target[0]

    def _choose_file(self, node_id: str, random: Random, *, is_at_end: bool = False) -> tuple[str, Inode] | None:
        """Choose a file of this node to damage and return it with its path; None: there is none.

        Args:
            node_id: owner of the file.
            random: chooses it.
            is_at_end: choose the last data file with data, if there is one.
        """
        if not self.can_lose(node_id):
            return None
        # Each kind of file is chosen equally often, whatever the number of files.
        kinds = [
            [
                (f"{path}/{name}", inode)
                for name, inode in directory.durable.items()
                if name != _LOCK_NAME and inode.durable
            ]
            for path, directory in self._disks[node_id].directories.items()
        ]
        used_data = [file for files in kinds for file in files if _is_data(file[0]) and any(file[1].durable)]
        kinds = [used_data[-1:]] if is_at_end and used_data else [files for files in kinds if files]
        if not kinds:
            return None
        return random.choice(random.choice(kinds))

    def look_again(self, node_id: str) -> bool:
        """Return whether the node has overwritten all damage, so that its disk is intact."""
        disk = self._disks[node_id]
        if node_id in self._damaged and not any(inode.cache_flips or inode.durable_flips for inode in disk.inodes()):
            self._damaged.remove(node_id)
            self._repaired.add(node_id)
            return True
        return False

    def repair(self, node_id: str) -> None:
        """Restore the files, as from an operator's copy."""
        if node_id in self._damaged:
            self._damaged.remove(node_id)
            self._repaired.add(node_id)
            self._disks[node_id].unflip()


def _is_data(path: str) -> bool:
    """Return whether a file is part of the log, not of one that was set aside."""
    return "/data/" in path and "/aside/" not in path


def _sector_of(inode: Inode, random: Random) -> bytes:
    """Return a sector of a file, in most cases one with data."""
    used = len(bytes(inode.durable).rstrip(b"\0"))
    begin = random.randrange(max(1, used)) // SECTOR_SIZE_BYTES * SECTOR_SIZE_BYTES
    return bytes(inode.durable[begin : begin + SECTOR_SIZE_BYTES])
