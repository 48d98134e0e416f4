"""Bits that disks flip and disks that are replaced: where, so that a majority of good copies stays, and who was hit.

A flip may cost the damaged node whatever is on its disk, and a new disk costs it everything; nobody else anything. That
can only hold while enough others hold everything that it holds, so both happen in such moments only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.testing.faults import Fault, Violation

if TYPE_CHECKING:
    from random import Random

    from dledger.core.raft import Raft
    from dledger.testing.faults import FaultCounts
    from dledger.testing.log_checks import LogChecks
    from dledger.testing.sim_disk import SimDisk
    from dledger.types import Membership

_BYTES_MAX = 3
_AT_END_SHARE = 0.3
_END_SIZE_BYTES = 60
_LOCK_NAME = "lock"


class Damage:
    """What is broken on which disk.

    Args:
        disks: by node.
        founders: whom the settings name.
        log: knows which entries are good on which node.

    Attributes:
        changing: nodes that were asked to change the membership and have not ended that yet: who will be a majority
            is not known then.
    """

    def __init__(self, disks: dict[str, SimDisk], founders: tuple[str, ...], log: LogChecks) -> None:
        self._disks = disks
        self._founders = founders
        self._log = log
        self._damaged: set[str] = set()
        # Wiped, or without the voice that a damaged tail cost, and not yet heard in the group again.
        self._voiceless: set[str] = set()
        self._memberships: dict[str, Membership] = {}
        self._incarnations: dict[str, int] = {}
        self.changing: set[str] = set()
        self._founded: set[str] = set()

    def is_damaged(self, node_id: str) -> bool:
        """Whether bits of this node's disk were flipped and not repaired since."""
        return node_id in self._damaged

    def can_lose(self, node_id: str) -> bool:
        """Say whether a majority without this node holds all that it holds, whichever membership is in force."""
        if node_id in self._damaged or node_id in self._voiceless or self.changing or not self._is_founded():
            return False
        good = [other for other in self._disks if other not in self._damaged and other not in self._voiceless]
        return all(
            self._log.can_spare(node_id, [other for other in good if other != node_id and other in voters], len(voters))
            for voters in {membership.voters for membership in self._memberships.values()}
        )

    def runs(self, node_id: str, raft: Raft) -> None:
        """Look at what a running node believes of the group and of itself."""
        state = raft.state
        self._memberships[node_id] = state.memberships[-1].membership
        if state.is_founding:
            self._incarnations.pop(node_id, None)
        else:
            if node_id in self._voiceless and not state.incarnation:
                raise Violation("readmission", f"{node_id} was wiped and takes itself for what it was before")
            self._incarnations[node_id] = state.incarnation
            self._founded.add(node_id)

    def _is_founded(self) -> bool:
        """Say whether every founder has met the group: before, a wiped one would forget a promise that others count."""
        return all(node_id in self._founded for node_id in self._founders)

    @property
    def voiceless(self) -> list[str]:
        """Nodes that were wiped and are not heard in the group yet."""
        return [node_id for node_id in self._disks if node_id in self._voiceless]

    def wipe(self, node_id: str) -> None:
        """Give a node that is down a new, empty disk."""
        self._disks[node_id].wipe()
        self._damaged.discard(node_id)
        self._voiceless.add(node_id)
        self._memberships.pop(node_id, None)
        self._incarnations.pop(node_id, None)

    def gave_up_voice(self, node_id: str) -> None:
        """Hear that a node took what its log ends with for damaged; a crash alone must never look so."""
        if node_id not in self._damaged:
            raise Violation("voice", f"{node_id} gave its voice up, and its disk has changed no bit")
        self._voiceless.add(node_id)

    def settle(self, membership: Membership) -> list[str]:
        """Hear that `membership` is committed; return whom it gives a voice again."""
        heard = []
        for node_id in self.voiceless:
            member = membership.get(node_id)
            if member is not None and member.incarnation and member.incarnation == self._incarnations.get(node_id):
                self._voiceless.remove(node_id)
                heard.append(node_id)
        return heard

    def flip(self, node_id: str, random: Random, counts: FaultCounts, *, is_cached: bool) -> str | None:
        """Flip a few bits of one file of a node; return its path.

        Args:
            node_id: whose disk.
            random: which bits.
            counts: counts them.
            is_cached: the page cache, too, holds the flipped bits.

        Returns:
            None when nothing was done: then too few others hold what this node holds.
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
        # As often the end of the log: what becomes of its last entry is decided by other rules than of all others.
        used_data = [file for files in kinds for file in files if "/data/" in file[0] and any(file[1].durable)]
        is_at_end = bool(used_data) and random.random() < _AT_END_SHARE
        kinds = [used_data[-1:]] if is_at_end else [files for files in kinds if files]
        if not kinds:
            return None
        path, inode = random.choice(random.choice(kinds))
        # Where the file holds something, as a rule: most of a file is empty.
        used = len(bytes(inode.durable).rstrip(b"\0")) if random.random() < 0.9 else len(inode.durable)
        begin = random.randrange(max(0, used - _END_SIZE_BYTES) if is_at_end else 0, max(1, used))
        for _ in range(random.randint(1, _BYTES_MAX)):
            position = min(begin + random.randrange(_BYTES_MAX), len(inode.durable) - 1)
            inode.flip(position, 1 << random.randrange(8), is_cached=is_cached)
        counts.add(Fault.BIT_FLIP)
        self._damaged.add(node_id)
        return path

    def look_again(self, node_id: str) -> bool:
        """Say whether the node has just overwritten all that was damaged: then it is whole again."""
        disk = self._disks[node_id]
        if node_id in self._damaged and not any(inode.cache_flips or inode.durable_flips for inode in disk.inodes()):
            self._damaged.remove(node_id)
            return True
        return False

    def repair(self, node_id: str) -> None:
        """Put the files back as they were: the operator had a copy."""
        if node_id in self._damaged:
            self._damaged.remove(node_id)
            self._disks[node_id].unflip()
