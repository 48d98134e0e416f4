"""Bits that disks flip and disks that are replaced: on which nodes, so that a minority at most is hit, and which were.

A flip may destroy any data on the damaged node's disk, and a new disk all of it; other nodes lose nothing, and the
group nothing that it acknowledged. This holds while the nodes that lost something, and are not readmitted yet, are a
minority of the voters: every majority of the others then intersects every majority that acknowledged something. It
holds at any moment, whatever the damaged node acknowledged just before, and whichever other nodes hold it.
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
    """What is broken on which disk.

    Args:
        disks: by node.
        founders: the nodes that the settings name.

    Attributes:
        changing: nodes with a membership change under way: the next majorities are not known then.
    """

    def __init__(self, disks: dict[str, SimDisk], founders: tuple[str, ...]) -> None:
        self._disks = disks
        self._founders = founders
        self._damaged: set[str] = set()
        self._repaired: set[str] = set()
        # Wiped, or without a vote because of a damaged tail, and not readmitted to the group yet.
        self._non_voting: set[str] = set()
        self._memberships: dict[str, Membership] = {}
        # What each node knows to be committed.
        self._settled: dict[str, Membership] = {}
        # The group of which each node believes leaders and candidates.
        self._believed: dict[str, int] = {}
        self._incarnations: dict[str, int] = {}
        self._former_incarnations: dict[str, int] = {}
        self._absent: set[str] = set()
        self.changing: set[str] = set()
        self._founded: set[str] = set()

    def is_damaged(self, node_id: str) -> bool:
        """Whether bits of this node's disk were flipped and not repaired since."""
        return node_id in self._damaged

    def may_have_sent_damage(self, node_id: str) -> bool:
        """Whether entries of this node's disk that are still under way may be damaged: since its repair, too."""
        return node_id in self._damaged or node_id in self._repaired

    def can_lose(self, node_id: str) -> bool:
        """Return whether the nodes that lost something stay a minority with this one, whichever membership is in force.

        Learners count as if they voted: they may be promoted before their loss is found.
        """
        if node_id in self.lost or self.changing or not self._is_founded():
            return False
        count = len(self.lost) + 1
        voter_counts = [len(membership.voters) for membership in self._memberships.values()]
        return all(count <= voters - quorum_of(voters) for voters in voter_counts)

    @property
    def lost(self) -> list[str]:
        """Nodes with a damaged disk, those that lost what they had and have no vote again yet, and those taken away."""
        gone = self._damaged | self._non_voting | self._absent
        return [node_id for node_id in self._disks if node_id in gone]

    def take_away(self, node_id: str) -> bool:
        """Return whether the group can do without this node; then it must, from now on, until it is given back."""
        is_spared = self.can_lose(node_id)
        if is_spared:
            self._absent.add(node_id)
        return is_spared

    def is_group_known(self) -> bool:
        """Return whether every founder has stored the group id: before, it trusts all nodes of its settings."""
        return all(self._believed.get(node_id, NO_GROUP) != NO_GROUP for node_id in self._founders)

    def give_back(self, node_id: str) -> None:
        """Note that a node that was taken away is there again, with all that it had."""
        self._absent.discard(node_id)

    def runs(self, node_id: str, raft: Raft) -> list[str]:
        """Look at what a running node believes of the group and of itself; return which nodes count again by that."""
        state = raft.state
        self._memberships[node_id] = state.memberships[-1].membership
        self._settled[node_id] = state.memberships[0].membership
        # Read where it is kept: what the core makes of it is what the run is to find out.
        self._believed[node_id] = state.committed_group_id or (0 if state.is_founding else state.founding_group_id)
        if state.is_founding:
            self._incarnations.pop(node_id, None)
            return []
        if node_id in self._non_voting and state.incarnation in (0, self._former_incarnations.get(node_id)):
            raise Violation("readmission", f"{node_id} lost what it promised and takes itself for what it was before")
        self._incarnations[node_id] = state.incarnation
        self._founded.add(node_id)
        member = self._settled[node_id].get(node_id)
        if member is not None and member.is_voter and member.incarnation != state.incarnation:
            # It came to the founding too late and has to be readmitted as if it had been wiped.
            self._non_voting.add(node_id)
        return self._readmit() if self._non_voting else []

    def _readmit(self) -> list[str]:
        """Find the nodes whose return is committed, as every other voter knows that lost nothing.

        A voter that does not know it cannot count their votes: if another one were lost now, a vote could not be won.
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
        """Return whether every founder has met the group: before, a wiped one would forget a vote that others count."""
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
        """Note that a node took what its log ends with for damaged; a crash alone must never look so."""
        if node_id not in self._damaged:
            raise Violation("vote given up", f"{node_id} gave its vote up, and its disk has changed no bit")
        self.lose_vote(node_id)

    def lose_vote(self, node_id: str) -> None:
        """Note that a node lost something that it promised: it must not count until it is readmitted."""
        self._non_voting.add(node_id)
        self._settled.pop(node_id, None)
        self._believed.pop(node_id, None)
        former = self._incarnations.pop(node_id, None)
        if former is not None:
            self._former_incarnations[node_id] = former

    def came_back(self, node_id: str, raft: Raft, *, has_lost: bool) -> bool:
        """Note that a node with a damaged disk has started; say whether it must be readmitted, as far as is known.

        Args:
            node_id: the node.
            raft: its core.
            has_lost: it lost something that it promised. If it did not, it may give its vote up all the same.
        """
        former = self._incarnations.get(node_id)
        if has_lost or (former is not None and raft.state.incarnation != former):
            self.lose_vote(node_id)
        self.runs(node_id, raft)
        return node_id in self._non_voting

    def flip(self, node_id: str, random: Random, counts: FaultCounts, *, is_cached: bool) -> str | None:
        """Flip a few bits of one file of a node; return its path.

        Args:
            node_id: whose disk.
            random: which bits.
            counts: counts them.
            is_cached: the page cache, too, holds the flipped bits.

        Returns:
            None when nothing was done: too many others have lost something, or the disk is empty.
        """
        # The end of the log as often as others: what becomes of its last entry is decided by other rules.
        is_at_end = random.random() < _AT_END_SHARE
        chosen = self._choose_file(node_id, random, is_at_end=is_at_end)
        if chosen is None:
            return None
        path, inode = chosen
        # Where the file holds something, as a rule: most of a file is empty.
        used = len(bytes(inode.durable).rstrip(b"\0")) if random.random() < 0.9 else len(inode.durable)
        begin = random.randrange(max(0, used - _END_SIZE_BYTES) if is_at_end else 0, max(1, used))
        for _ in range(random.randint(1, _BYTES_MAX)):
            position = min(begin + random.randrange(_BYTES_MAX), len(inode.durable) - 1)
            inode.flip(position, 1 << random.randrange(8), is_cached=is_cached)
        counts.add(Fault.BIT_FLIP)
        self._damaged.add(node_id)
        return path

    def misdirect(self, node_id: str, random: Random, counts: FaultCounts) -> str | None:
        """Write a sector of one file to the place of another one, on the disk and in the page cache.

        The sector's own place keeps it: if the newest write were missing there, that would look like one never done.

        Returns:
            The path of the file that was overwritten; None when nothing was done, as in `flip`.
        """
        source, target = self._choose_file(node_id, random), self._choose_file(node_id, random)
        if source is None or target is None:
            return None
        written, inode = _sector_of(source[1], random), target[1]
        begin = random.randrange(len(inode.durable)) // SECTOR_SIZE_BYTES * SECTOR_SIZE_BYTES
        if not any(written):
            # Zeros over the last entry look like a write that was never done.
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
        """Return a file of this node that may be damaged, with its path; None: no file may.

        Args:
            node_id: whose.
            random: which.
            is_at_end: the last data file that holds anything, if there is one.
        """
        if not self.can_lose(node_id):
            return None
        # Each kind of file as often as any other, however many there are.
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
        """Return whether the node has just overwritten all that was damaged: then it is whole again."""
        disk = self._disks[node_id]
        if node_id in self._damaged and not any(inode.cache_flips or inode.durable_flips for inode in disk.inodes()):
            self._damaged.remove(node_id)
            self._repaired.add(node_id)
            return True
        return False

    def repair(self, node_id: str) -> None:
        """Put the files back as they were: the operator had a copy."""
        if node_id in self._damaged:
            self._damaged.remove(node_id)
            self._repaired.add(node_id)
            self._disks[node_id].unflip()


def _is_data(path: str) -> bool:
    """Return whether a file is part of the log, not of one that was set aside."""
    return "/data/" in path and "/aside/" not in path


def _sector_of(inode: Inode, random: Random) -> bytes:
    """Return a sector of a file, as a rule one that holds something."""
    used = len(bytes(inode.durable).rstrip(b"\0"))
    begin = random.randrange(max(1, used)) // SECTOR_SIZE_BYTES * SECTOR_SIZE_BYTES
    return bytes(inode.durable[begin : begin + SECTOR_SIZE_BYTES])
