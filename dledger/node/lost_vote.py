"""A node with a damaged tail loses its vote until it has the lost entries again.

The last entry was durable, so this node may have acknowledged it. If it truncated the entry and kept its vote, then
with one more node down a majority without the entry could elect a leader, and an acknowledged entry would be lost. So
before the tail is cut, the node saves a new incarnation: to the group it is a node that lost its disk (ADR 7). It runs
without a vote, the leader sends it the missing entries, and readmits it. If the other voters are not a majority, no
leader can do that: the node refuses to start until an operator accepts the loss of the entry.

Place: called by recovery (`dledger.entries.recovery`) before the cut; writes the hard state. Source: Alagappan et al.,
"Protocol-Aware Recovery for Consensus-Based Storage" (FAST 2018); ADR 21.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from dledger.core.state.quorum import quorum_of
from dledger.entries.membership_file import MembershipFile
from dledger.storage.hard_state import HardStateFile
from dledger.types import INCARNATION_END
from store.errors import DiskFull

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.entries.damaged_tail import DamagedTail
    from dledger.types import Membership
    from store.fs.ports import Files

logger = logging.getLogger(__name__)

_PERMISSION_NAME = "give-up"
_VOTE_PERMISSION_NAME = "restore-vote"


class VoteGivenUp:
    """Called for a damaged tail: gives up the node's vote, durably, if the group can readmit the node.

    Args:
        files: the file system.
        directory: the node's own.
        self_id: its id.
        settings: the membership in the settings.
        draw: random numbers in a half-open range.
    """

    def __init__(
        self, files: Files, directory: str, *, self_id: str, settings: Membership, draw: Callable[[int, int], int]
    ) -> None:
        self._files = files
        self._directory = directory
        self._self_id = self_id
        self._settings = settings
        self._draw = draw

    def __call__(self, damage: DamagedTail) -> str:
        """Give up the vote and return a description for the log; the directory must be locked.

        Raises:
            store.errors.CorruptData: without this node there is no majority. Nothing was changed.
            store.errors.StoreError, dledger.storage.membership_codec.MembershipUnreadable: do not start.
        """
        voters = self._membership_before(damage.index).voters
        others = [voter for voter in voters if voter != self._self_id]
        if len(others) < quorum_of(len(voters)):
            return self._check_permission(damage)
        kept = self._keep(damage)
        hard_state = HardStateFile.open(self._files, self._directory)
        saved = hard_state.load()
        # A founding node has no vote to lose, and the other founders must still see it as founding.
        if hard_state.exists and not saved.is_founding:
            hard_state.save(replace(saved, incarnation=self._draw(1, INCARNATION_END)))
        return f"{kept}this node has no vote until the leader has sent it the missing entries"

    def _membership_before(self, index: int) -> Membership:
        """Return the membership that is in force without the entries from `index` on."""
        entries = MembershipFile.open(self._files, self._directory).load()
        if entries is None:
            return self._settings
        return next((entry for entry in reversed(entries) if entry.index < index), entries[0]).membership

    def _check_permission(self, damage: DamagedTail) -> str:
        """Give the tail up only if an operator created the file whose name contains the index of the entry."""
        permission = f"{self._directory}/{_PERMISSION_NAME}.{damage.index}"
        if not self._files.exists(permission):
            raise damage.refusal(
                "; the other voters alone have no majority, and cannot send it again. If there is no copy "
                f"of it anywhere, create the empty file {permission} and start the node: it then discards that entry"
            )
        kept = self._keep(damage)
        # Removed before the cut, so that the file cannot permit a second loss.
        self._files.remove(permission)
        self._files.sync_directory(self._directory)
        return f"{kept}{permission} permits the node to discard it"

    def _keep(self, damage: DamagedTail) -> str:
        """Save the truncated bytes for inspection, if they fit on the disk."""
        path = f"{self._directory}/damaged.{damage.log_position:020d}"
        try:
            self._files.replace(path, damage.content)
        except DiskFull:
            return ""
        return f"kept in {path}; "


def restore_vote(
    files: Files, directory: str, self_id: str, hard_state: HardStateFile, memberships: MembershipFile
) -> None:
    """Restore the vote of this node, if an operator requested it; the directory must be locked.

    If voters lost data and the rest are not a majority, no leader can readmit them. An operator can, by creating an
    empty file whose name contains the incarnation without a vote. That gives up entries which were only on the lost
    disks or tails.

    Raises:
        store.errors.StorageFailed: the node must not start.
        dledger.storage.hard_state.HardStateUnreadable, dledger.storage.membership_codec.MembershipUnreadable: do not
            start.
    """
    saved = hard_state.load()
    permission = f"{directory}/{_VOTE_PERMISSION_NAME}.{saved.incarnation}"
    if not files.exists(permission):
        return
    entries = memberships.load()
    member = entries[0].membership.get(self_id) if entries else None
    if member is not None and member.is_voter and not saved.is_founding:
        # Saved before the file is removed: if the file survives a crash, its incarnation is never used again.
        hard_state.save(replace(saved, incarnation=member.incarnation))
        logger.warning("vote_restored self_id=%s incarnation=%d permission=%r", self_id, saved.incarnation, permission)
    files.remove(permission)
    files.sync_directory(directory)
