"""The state of one node's consensus, and its two outputs: effects and messages.

The state of a role is in an object of that role (`core.state.roles`). Term, vote, role and leader are written by
`core.transitions` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dledger.core.events import Effect, Send
from dledger.core.state.quorum import quorum_of
from dledger.core.state.roles import Candidate, Follower, Leader, RoleState
from dledger.types import NO_GROUP, NO_INDEX, NO_TERM, MembershipEntry, Role, SnapshotInfo, Span

if TYPE_CHECKING:
    from dledger.core.config import RaftConfig
    from dledger.core.messages import Message
    from dledger.core.state.log_tail import LogTail
    from dledger.core.state.progress import Progress

# (first_index, last_index_max, size_bytes_max) -> the longest span from first_index that one push can carry.
Fit = Callable[[int, int, int], Span]
# (begin, end) -> a number in [begin, end), from a generator that the owner seeded.
Draw = Callable[[int, int], int]
# `life` is drawn from [1, LIFE_END): two draws are almost never close, and ids that count up from one fit in 63 bits.
LIFE_END: Final = 1 << 61


@dataclass(slots=True)
class Transfer:
    """A transfer of the leadership to `target`; `request_id` None: this node began it without a request."""

    target: str
    request_id: int | None
    deadline_ms: int


@dataclass(slots=True)
class State:
    """The whole state of one node's consensus.

    Attributes:
        self_id: the id of this node.
        memberships, voters, incarnations: kept by `dledger.core.state.membership`.
        group_id: of the membership in force; messages of this node carry it.
        committed_group_id: of the newest committed membership; messages of another group are rejected.
        term, voted_for, is_founding, incarnation, founding_group_id: the hard state (`dledger.types.HardState`).
        role, leader_id: the role of this node in its term, and the term's leader, if known.
        role_state: the state of its role. These three, `term` and `voted_for` are written by `core.transitions` alone.
        commit_index: last index known to be committed; never decreases.
        commit_floor: last index that an earlier process on this directory knew to be committed, and that was durable
            here; -1 if none is known. Nothing at or below it is ever truncated, and this node grants no vote to a
            candidate that lacks it.
        kept_term: the term in which this node learned that `kept_index` is committed; after a start, the term of the
            start, which is the same or later.
        written_index: last index that is in the store and may be pushed.
        persisted_index: last index that is durable here.
        life: a random number of this process, to distinguish answers to it from those to an earlier process (ADR 17).
        last_asked_id: id of the last read index request; the first id follows `life`.
        now_ms: time of the last tick.
        quiet_until_ms: this node does not vote before this time: it has just started, and may have had recent contact
            with a leader.
        is_flush_sync: this node acknowledges entries only after a sync.
        is_disk_stalled: the disk stalls, or stalled recently.
        is_disk_stalling: it stalls now.
        is_disk_full: the last refused entries do not fit on it.
        skipped_timeouts: election timeouts that a node with a stalled disk skipped since its last contact with a
            leader.
        incoming: a snapshot that is being received, and the number of its received bytes.
        stored: the last snapshot that was received completely.
        transfer: the transfer of the leadership in progress; it ends shortly after this node's leadership.
        snapshot: the newest one that our own state machine saved.
    """

    config: RaftConfig
    self_id: str
    # Never empty; indexes ascend, and all but the first are above `commit_index`.
    memberships: list[MembershipEntry]
    log: LogTail
    fit: Fit
    draw: Draw
    # Never decreases, and is at least the last term of the log. `Raft` puts `SaveHardState` before all other effects of
    # a step, so that no message shows a term or a vote that a restart could forget.
    term: int
    # The vote of `term`: once given it changes only with the term. A leader has voted for itself.
    voted_for: str | None
    # `role_state.role` is `role`; both are replaced together.
    role_state: RoleState
    life: int
    # At least `life`: ids count up from it, so that answers to another process of this node match no request (ADR 17).
    last_asked_id: int
    # A founding node has incarnation 0. Founding ends when the node receives a leader's first message or becomes
    # leader.
    is_founding: bool = False
    incarnation: int = 0
    founding_group_id: int = NO_GROUP
    # `voters`, `incarnations` (its keys are the voters) and the two group ids are derived from `memberships`, by
    # `core.membership.refresh` alone.
    voters: tuple[str, ...] = ()
    incarnations: dict[str, int] = field(default_factory=dict)
    role: Role = Role.FOLLOWER
    # This node's own id exactly while it leads; None while it is a candidate.
    leader_id: str | None = None
    group_id: int = NO_GROUP
    committed_group_id: int = NO_GROUP
    # In `[log.begin_index - 1, log.last_index]`, also at the start: only committed entries are deleted, or left out by
    # a reset, and a log that begins after them never goes back to them (`catch_up.on_reset`). It may exceed
    # `persisted_index`: then a majority without this node has made the entries durable.
    commit_index: int = NO_INDEX
    # Fixed for the life of the process; never above `log.last_index`, because nothing at or below it is truncated.
    commit_floor: int = NO_INDEX
    kept_term: int = NO_TERM
    # `persisted_index <= written_index <= log.last_index`: the core's log is ahead of the store until the effects of
    # the step that appended are executed.
    written_index: int = NO_INDEX
    persisted_index: int = NO_INDEX
    # Monotonic: never goes back. All `..._ms` of this package are on this clock.
    now_ms: int = 0
    quiet_until_ms: int = 0
    # Fixed for the life of the process. Without it a power cut may lose acknowledged entries, as documented.
    is_flush_sync: bool = True
    is_disk_stalled: bool = False
    is_disk_stalling: bool = False
    is_disk_full: bool = False
    skipped_timeouts: int = 0
    # The bytes received, from offset 0 on without a gap; at most the snapshot's size.
    incoming: tuple[SnapshotInfo, int] | None = None
    stored: SnapshotInfo | None = None
    # Its target is another node. While it is set, a leader refuses proposals, so that the target can catch up.
    transfer: Transfer | None = None
    snapshot: SnapshotInfo | None = None
    # Of the current step, in the order of execution; `Raft.step` replaces the list.
    effects: list[Effect] = field(default_factory=list)

    @property
    def follower(self) -> Follower:
        """The state of the role; this node must be a follower."""
        role_state = self.role_state
        assert isinstance(role_state, Follower), role_state
        return role_state

    @property
    def candidate(self) -> Candidate:
        """The state of the role; this node must be a candidate."""
        role_state = self.role_state
        assert isinstance(role_state, Candidate), role_state
        return role_state

    @property
    def leader(self) -> Leader:
        """The state of the role; this node must be the leader."""
        role_state = self.role_state
        assert isinstance(role_state, Leader), role_state
        return role_state

    def progress_of(self, peer: str) -> Progress | None:
        """Return a leader's progress of `peer`; None: unknown, or this node does not lead."""
        role_state = self.role_state
        return role_state.progress.get(peer) if isinstance(role_state, Leader) else None

    @property
    def quorum(self) -> int:
        """The number of voters in a majority."""
        return quorum_of(len(self.voters))

    @property
    def named_group_id(self) -> int:
        """The group id that this node sends as a candidate: of its log, or of the founding for which it voted last."""
        return self.group_id if self.group_id != NO_GROUP else self.founding_group_id

    @property
    def kept_index(self) -> int:
        """Last index that must never be truncated: this process, or an earlier one, knows that it is committed."""
        return max(self.commit_index, self.commit_floor)

    def emit(self, effect: Effect) -> None:
        """Add an effect to those of this step."""
        self.effects.append(effect)

    def send(self, peer: str, message: Message) -> None:
        """Send `message` to `peer` as an effect of this step."""
        self.effects.append(Send(peer, message))
