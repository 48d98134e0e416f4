"""Bits that disks flip: where, so that a majority of good copies stays, and who was hit.

A flip may cost the damaged node whatever is on its disk, and nobody else anything. That can only hold while enough
others hold everything that it holds, so bits are flipped in such moments only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.testing.faults import Fault

if TYPE_CHECKING:
    from random import Random

    from dledger.testing.faults import FaultCounts
    from dledger.testing.log_checks import LogChecks
    from dledger.testing.sim_disk import SimDisk

_BYTES_MAX = 3
_LOCK_NAME = "lock"


class Damage:
    """What is broken on which disk.

    Args:
        disks: by node.
        log: knows which entries are good on which node.
    """

    def __init__(self, disks: dict[str, SimDisk], log: LogChecks) -> None:
        self._disks = disks
        self._log = log
        self._damaged: set[str] = set()

    def is_damaged(self, node_id: str) -> bool:
        """Whether bits of this node's disk were flipped and not repaired since."""
        return node_id in self._damaged

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
        others = [other for other in self._disks if other not in self._damaged and other != node_id]
        if node_id in self._damaged or not self._log.can_spare(node_id, others):
            return None
        paths = [
            (f"{path}/{name}", inode)
            for path, directory in self._disks[node_id].directories.items()
            for name, inode in directory.durable.items()
            if name != _LOCK_NAME and inode.durable
        ]
        if not paths:
            return None
        path, inode = random.choice(paths)
        # Where the file holds something, as a rule: most of a file is empty.
        used = len(bytes(inode.durable).rstrip(b"\0")) if random.random() < 0.9 else len(inode.durable)
        begin = random.randrange(max(1, used))
        for _ in range(random.randint(1, _BYTES_MAX)):
            position = min(begin + random.randrange(_BYTES_MAX), len(inode.durable) - 1)
            inode.flip(position, 1 << random.randrange(8), is_cached=is_cached)
        counts.add(Fault.BIT_FLIP)
        self._damaged.add(node_id)
        return path

    def look_again(self, node_id: str) -> None:
        """See whether the node has overwritten all that was damaged: then it is whole again."""
        disk = self._disks[node_id]
        if node_id in self._damaged and not any(inode.cache_flips or inode.durable_flips for inode in disk.inodes()):
            self._damaged.remove(node_id)

    def repair(self, node_id: str) -> None:
        """Put the files back as they were: the operator had a copy."""
        if node_id in self._damaged:
            self._damaged.remove(node_id)
            self._disks[node_id].unflip()
