"""`Raft.step(event) -> [Effect]`: the consensus of one node as a deterministic function of its events.

Place on the path of an append: the driver feeds `Propose` (leader) or `Received(Push)` (follower) and executes the
returned effects. The rules are in `election` (votes), `leader` and `follower` (replication), `transitions` (roles).
This module dispatches events to rules, compares terms, and orders the hard state before other effects.
"""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import TYPE_CHECKING

from dledger.core import catch_up, election, follower, leader, membership_changes, reads, transfer, transitions, trust
from dledger.core.events import (
    ChangeMembership,
    DiskHealth,
    Effect,
    Event,
    HeadDeleted,
    MessageRejected,
    PeerGone,
    PeerUnreachable,
    Persisted,
    Propose,
    PushNotTaken,
    ReadIndex,
    Received,
    RoleChanged,
    SaveHardState,
    SentSnapshotGone,
    SnapshotSaved,
    SnapshotStored,
    Tick,
    TransferLeadership,
    Written,
)
from dledger.core.messages import (
    LEADERS_MESSAGES,
    Heartbeat,
    HeartbeatResponse,
    Message,
    Push,
    PushAccepted,
    PushRefused,
    ReadIndexRequest,
    ReadIndexResponse,
    ResetLog,
    SnapshotChunk,
    SnapshotProgress,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.core.state import membership, voting_rights
from dledger.core.state.consensus import LIFE_END, Draw, Fit, State
from dledger.core.state.log_tail import LogTail
from dledger.core.state.roles import Follower, Leader
from dledger.core.state.status import RaftStatus
from dledger.types import NO_INDEX, HardState, LogState, MembershipEntry, Role, SnapshotInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.core.config import RaftConfig


class Raft(RaftStatus):
    """One node's consensus.

    Args:
        config: timings and limits.
        self_id: this node.
        memberships: from the log; the first is known to be committed, or is from the settings.
        hard_state: the last saved one.
        log_state: the recovered log; all of it is durable.
        fit: computes the span of one push; called only for entries that were written (see `core.state.consensus`).
        draw: random numbers in a half-open range, from a generator that the owner seeded.
        now_ms: the owner's monotonic clock at construction.
        snapshot: the newest one of the state machine.
        incoming: a snapshot that was being received, and the number of its received bytes.
        commit_floor: index up to which an earlier process on this directory knew its entries to be committed; -1: not
            known. It is at most `log_state.last_index`.
        is_flush_sync: the owner reports entries as persisted only after a sync.
    """

    def __init__(
        self,
        config: RaftConfig,
        *,
        self_id: str,
        memberships: Sequence[MembershipEntry],
        hard_state: HardState,
        log_state: LogState,
        fit: Fit,
        draw: Draw,
        now_ms: int,
        snapshot: SnapshotInfo | None = None,
        incoming: tuple[SnapshotInfo, int] | None = None,
        commit_floor: int = NO_INDEX,
        is_flush_sync: bool = True,
    ) -> None:
        log = LogTail(log_state)
        assert commit_floor <= log.last_index, (commit_floor, log.last_index)
        life = draw(1, LIFE_END)
        self.state = State(
            config=config,
            self_id=self_id,
            memberships=list(memberships),
            log=log,
            fit=fit,
            draw=draw,
            # The term file may be missing or older than the log (a copied store): the log's last term is then the
            # minimum.
            term=max(hard_state.term, log.last_term),
            voted_for=hard_state.voted_for if hard_state.term >= log.last_term else None,
            role_state=Follower(
                matched_index=log.begin_index - 1,
                deadline_ms=now_ms + transitions.waiting_time_ms(config, draw),
                contact_ms=now_ms,
            ),
            life=life,
            last_asked_id=life,
            is_founding=hard_state.is_founding,
            incarnation=hard_state.incarnation,
            founding_group_id=hard_state.founding_group_id,
            commit_index=log.begin_index - 1,
            commit_floor=commit_floor,
            is_flush_sync=is_flush_sync,
            kept_term=max(hard_state.term, log.last_term),
            written_index=log.last_index,
            persisted_index=log.last_index,
            now_ms=now_ms,
            quiet_until_ms=voting_rights.quiet_until_ms(config, now_ms, is_founding=hard_state.is_founding),
            snapshot=snapshot,
            incoming=incoming,
        )
        membership.refresh(self.state)
        # The values of the last `SaveHardState` and `RoleChanged`: each is an effect only of a step that changes them.
        self._saved = astuple(hard_state)
        self._shown = (self.state.role, self.state.term, self.state.leader_id)

    def step(self, event: Event) -> list[Effect]:
        """Process `event`; return the effects to execute, in order, before the next event.

        Raises:
            InvariantBroken: a state that Raft excludes; stop the node and keep its files.
        """
        state = self.state
        state.effects = []
        match event:
            case Received():
                self._receive(event.sender, event.message)
            case Tick():
                self._tick(event.now_ms)
            case Propose():
                leader.on_propose(state, event.proposal, event.count)
            case Written():
                state.written_index = max(state.written_index, event.last_index)
                if state.role is Role.LEADER:
                    leader.on_written(state)
            case Persisted():
                self._persisted(event.last_index)
            case ReadIndex():
                reads.on_read_index(state, event.read_id, is_lease_allowed=event.is_lease_allowed)
            case PeerUnreachable():
                if state.role is Role.LEADER:
                    leader.on_peer_unreachable(state, event.peer)
            case PushNotTaken():
                follower.on_push_not_taken(state, event.sender, event.push, is_corrupt=event.is_corrupt)
            case _:
                self._step_rare_event(event)
        return self._finish()

    def _step_rare_event(self, event: Event) -> None:
        state = self.state
        match event:
            case TransferLeadership():
                transfer.on_transfer(state, event.request_id, event.target)
            case ChangeMembership():
                membership_changes.on_change(state, event)
            case DiskHealth():
                election.on_disk_health(
                    state, is_stalled=event.is_stalled, is_stalling=event.is_stalling, is_full=event.is_full
                )
            case HeadDeleted():
                state.log.drop_head(event.begin_index, event.prev_term)
            case PeerGone():
                election.on_peer_gone(state, event.peer)
            case SnapshotSaved():
                catch_up.on_snapshot_saved(state, event.snapshot)
            case SentSnapshotGone():
                catch_up.on_snapshot_gone(state, event.peer, event.snapshot)
            case SnapshotStored():
                catch_up.on_snapshot_stored(state, event.snapshot, is_good=event.is_good)

    def _tick(self, now_ms: int) -> None:
        state = self.state
        assert now_ms >= state.now_ms, (now_ms, state.now_ms)
        state.now_ms = now_ms
        transfer.tick(state)
        role_state = state.role_state
        if isinstance(role_state, Leader):
            leader.tick(state)
            return
        if isinstance(role_state, Follower):
            reads.tick(state, role_state)
        election.tick(state, role_state)

    def pass_time(self, now_ms: int) -> None:
        """Set the clock to `now_ms`, without acting on deadlines: only `Tick` does that."""
        assert now_ms >= self.state.now_ms, (now_ms, self.state.now_ms)
        self.state.now_ms = now_ms

    def is_acceptable(self, sender: str, message: Message) -> bool:
        """Return whether `message` would be passed to its rule; entries are not checked. False for an old term."""
        return message.term >= self.state.term and trust.fault_of(self.state, sender, message) is None

    def _finish(self) -> list[Effect]:
        """Return the effects, with the hard state before those that depend on it, and a changed role after them."""
        state = self.state
        hard_state = (state.term, state.voted_for, state.is_founding, state.incarnation, state.founding_group_id)
        if hard_state != self._saved:
            self._saved = hard_state
            state.effects.insert(0, SaveHardState(*hard_state))
        if (state.role, state.term, state.leader_id) != self._shown:
            self._shown = (state.role, state.term, state.leader_id)
            state.emit(RoleChanged(state.role, state.term, state.leader_id))
        return state.effects

    def _persisted(self, last_index: int) -> None:
        state = self.state
        if last_index <= state.persisted_index:
            return
        assert last_index <= state.log.last_index, (last_index, state.log.last_index)
        state.persisted_index = last_index
        if state.role is Role.LEADER:
            leader.on_persisted(state)
        else:
            follower.on_persisted(state)

    def _receive(self, sender: str, message: Message) -> None:
        """Reject the message or pass it to its rule."""
        state = self.state
        if sender == state.self_id:
            return
        fault = trust.fault_of(state, sender, message)
        if fault is not None:
            state.emit(MessageRejected(sender, fault, type(message).__name__, message.term))
            return
        if isinstance(message, VoteRequest):
            if message.is_pre_vote:
                election.on_pre_vote_request(state, sender, message)
            else:
                election.on_vote_request(state, sender, message)
        else:
            self._compare_terms(sender, message)

    def _compare_terms(self, sender: str, message: Message) -> None:
        """Compare terms (Raft §5.1), then let the message's own rule decide.

        A leader or candidate need not be a member in our log: its membership may be newer (dissertation §4.1). All
        other messages of non-members, such as a node that was removed, never raise the term. Nor do a request for a
        read index and its answer: they have no group id, so a node of another group with the id of a member could
        depose a leader with them. A deposed leader receives the newer term with the next leader's messages, and answers
        no read before a quorum has confirmed it; a read that was sent to the wrong leader is refused.
        """
        state = self.state
        is_pre_vote_grant = isinstance(message, VoteResponse) and message.is_pre_vote and message.is_granted
        if message.term > state.term and not is_pre_vote_grant:
            is_leader = isinstance(message, LEADERS_MESSAGES)
            if isinstance(message, ReadIndexResponse):
                reads.on_response(state, sender, replace(message, index=NO_INDEX))
                return
            if isinstance(message, ReadIndexRequest) or (not is_leader and not self._is_known(sender)):
                return
            transitions.see_term(state, message.term, sender if is_leader else None)
        if message.term < state.term:
            self._answer_old_term(sender, message)
        elif isinstance(message, VoteResponse):
            election.on_vote_response(state, sender, message)
        elif isinstance(message, LEADERS_MESSAGES):
            self._follow(sender, message)
        elif isinstance(message, ReadIndexRequest):
            reads.on_request(state, sender, message)
        elif isinstance(message, ReadIndexResponse):
            reads.on_response(state, sender, message)
        elif isinstance(state.role_state, Leader) and sender in state.role_state.progress:
            self._lead(sender, message)

    def _is_known(self, sender: str) -> bool:
        return self.state.progress_of(sender) is not None or self.membership.get(sender) is not None

    def _answer_old_term(self, sender: str, message: Message) -> None:
        """Answer a leader of an old term with the current one; drop every other message of an old term."""
        state = self.state
        if isinstance(message, (Heartbeat, Push, SnapshotChunk, ResetLog)):
            state.send(sender, HeartbeatResponse(state.term, 0, state.incarnation))
        elif isinstance(message, ReadIndexRequest):
            state.send(sender, ReadIndexResponse(state.term, message.read_id, NO_INDEX))

    def _follow(self, sender: str, message: Message) -> None:
        state = self.state
        match message:
            case Push():
                follower.on_push(state, sender, message)
            case Heartbeat():
                follower.on_heartbeat(state, sender, message)
            case TimeoutNow():
                election.on_timeout_now(state, sender, message)
            case SnapshotChunk():
                follower.note_leader_contact(state, sender)
                catch_up.on_snapshot_chunk(state, sender, message)
            case ResetLog():
                follower.note_leader_contact(state, sender)
                catch_up.on_reset(state, sender, message)

    def _lead(self, sender: str, message: Message) -> None:
        state = self.state
        match message:
            case PushAccepted():
                leader.on_push_accepted(state, sender, message)
            case PushRefused():
                leader.on_push_refused(state, sender, message)
            case HeartbeatResponse():
                leader.on_heartbeat_response(state, sender, message)
            case SnapshotProgress():
                leader.on_snapshot_progress(state, sender, message)
