"""Read-only properties of a core, for its driver, observers, metrics and checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.core.state import voting_rights
from dledger.core.state.roles import Leader
from dledger.types import NO_INDEX, HardState, Membership, MembershipEntry, Role

if TYPE_CHECKING:
    from dledger.core.state.consensus import State
    from dledger.types import SnapshotInfo


class RaftStatus:
    """The read-only part of `core.raft.Raft`.

    Attributes:
        state: the whole state of the core.
    """

    state: State

    @property
    def role(self) -> Role:
        """The role of this node in the current term."""
        return self.state.role

    @property
    def term(self) -> int:
        """The current term."""
        return self.state.term

    @property
    def leader_id(self) -> str | None:
        """The leader of the current term, if known."""
        return self.state.leader_id

    @property
    def commit_index(self) -> int:
        """Last index known to be committed; `begin_index - 1` when none is."""
        return self.state.commit_index

    @property
    def last_index(self) -> int:
        """Last index of the log, committed or not."""
        return self.state.log.last_index

    @property
    def begin_index(self) -> int:
        """First index of the log."""
        return self.state.log.begin_index

    @property
    def now_ms(self) -> int:
        """The time of the last tick, or of a later reading of the clock."""
        return self.state.now_ms

    @property
    def next_due_ms(self) -> int:
        """When a leader's next heartbeat is due, or the election timeout of another node ends."""
        role_state = self.state.role_state
        return role_state.heartbeat_due_ms if isinstance(role_state, Leader) else role_state.deadline_ms

    @property
    def needs_other_votes(self) -> bool:
        """Whether an election needs the vote of another node."""
        return self.state.voters != (self.state.self_id,)

    def is_unknown_life(self, peer: str, incarnation: int) -> bool:
        """Whether the voter `peer` answers with an incarnation that does not count: it was wiped."""
        return self.state.incarnations.get(peer, incarnation) != incarnation

    def match_index_of(self, peer: str) -> int:
        """On a leader: the last index known to be durable on `peer`; -1 when not known or not leading."""
        progress = self.state.progress_of(peer)
        return -1 if progress is None else progress.match_index

    def is_live(self, peer: str) -> bool:
        """On a leader: whether `peer` answered within the longest election timeout."""
        progress = self.state.progress_of(peer)
        time_out_ms = self.state.config.max_election_timeout_ms
        return progress is not None and progress.is_live(self.state.now_ms, time_out_ms)

    def is_healthy(self, peer: str) -> bool:
        """On a leader: whether `peer` reported a healthy disk in its last answer."""
        progress = self.state.progress_of(peer)
        return progress is not None and progress.is_healthy

    def is_refusing_corrupt(self, peer: str) -> bool:
        """On a leader: whether `peer` could not verify the last entries sent to it."""
        progress = self.state.progress_of(peer)
        return progress is not None and progress.corrupt_count > 0

    def is_contradicting(self, peer: str) -> bool:
        """On a leader: whether `peer` last reported other committed entries than were sent to it (ADR 29)."""
        progress = self.state.progress_of(peer)
        return progress is not None and progress.is_contradicting

    def is_counted(self, peer: str) -> bool:
        """On a leader: whether acknowledgements of the voter `peer` count: it was not wiped (ADR 7)."""
        progress = self.state.progress_of(peer)
        return progress is not None and voting_rights.counts(self.state, peer, progress)

    @property
    def memberships(self) -> tuple[MembershipEntry, ...]:
        """The newest membership known to be committed, and those that follow it in the log."""
        return tuple(self.state.memberships)

    @property
    def membership(self) -> Membership:
        """The membership in force: the last one in the log, committed or not."""
        return self.state.memberships[-1].membership

    @property
    def hard_state(self) -> HardState:
        """Term and vote, and whether the node may have lost earlier ones."""
        state = self.state
        return HardState(state.term, state.voted_for, state.is_founding, state.incarnation)

    @property
    def is_transferring(self) -> bool:
        """Whether a transfer of the leadership is in progress: appends are refused meanwhile."""
        return self.state.transfer is not None

    @property
    def is_disk_stalled(self) -> bool:
        """Whether the disk stalls, or stalled recently."""
        return self.state.is_disk_stalled

    @property
    def is_disk_full(self) -> bool:
        """Whether the disk lacks the space for the last refused allocation."""
        return self.state.is_disk_full

    @property
    def is_disk_stalling(self) -> bool:
        """Whether the disk stalls now."""
        return self.state.is_disk_stalling

    @property
    def snapshot(self) -> SnapshotInfo | None:
        """The snapshot that a follower gets if it lacks deleted entries; None without one."""
        return self.state.snapshot

    @property
    def snapshot_index(self) -> int:
        """The last entry in `snapshot`; -1 without one.

        A state machine's log is kept after it, even if a newer snapshot is saved already: until the core knows that
        one, it could not send the entries before it to a follower in any form.
        """
        return NO_INDEX if self.state.snapshot is None else self.state.snapshot.index

    @property
    def retention_floor(self) -> int:
        """The first index that must be kept: the lowest that a live follower lacks, at most the last committed one.

        The log must begin with a committed entry: any other may be replaced by an entry that is in the previous file.
        """
        state = self.state
        floor = state.commit_index
        time_out_ms = state.config.max_election_timeout_ms
        role_state = state.role_state
        for progress in role_state.progress.values() if isinstance(role_state, Leader) else ():
            if progress.is_live(state.now_ms, time_out_ms):
                is_beginning = progress.is_probing or progress.installation is not None
                floor = min(floor, state.log.begin_index if is_beginning else progress.match_index + 1)
        return max(floor, state.log.begin_index)
