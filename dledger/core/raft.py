"""`Raft.step(event) -> [Effect]`: the consensus of one node as a deterministic function of what happens to it.

Place on the way of an append: the driver feeds `Propose` (leader) or `Received(Push)` (follower) and executes what
comes back. The rules live beside this file: `election` (who leads), `leader` and `follower` (replication),
`transitions` (roles). Here events find their rule, terms are compared, and the hard state goes first.
"""

from __future__ import annotations

from dledger.core import election, follower, leader
from dledger.core.config import RaftConfig
from dledger.core.events import (
    Effect,
    Event,
    PeerUnreachable,
    Persisted,
    Propose,
    PushNotTaken,
    ReadIndex,
    Received,
    RoleChanged,
    SaveHardState,
    Tick,
    Written,
)
from dledger.core.log_tail import LogTail
from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    Message,
    Push,
    PushAccepted,
    PushRefused,
    VoteRequest,
    VoteResponse,
)
from dledger.core.state import Draw, Fit, State
from dledger.core.transitions import become_follower, reset_election_deadline
from dledger.types import HardState, LogState, Role


class Raft:
    """One node's consensus.

    Args:
        config: timings and limits.
        self_id: this node; one of `voters`.
        voters: ids of all voters.
        hard_state: term and vote as they were last saved.
        log_state: what recovery found of the log; all of it is durable.
        fit: says how much one push can carry; asked only for entries that were written (see `core.state.Fit`).
        draw: random numbers in a half-open range, from a generator that the owner seeded.
        now_ms: the owner's monotonic clock at construction.
    """

    def __init__(
        self,
        config: RaftConfig,
        *,
        self_id: str,
        voters: tuple[str, ...],
        hard_state: HardState,
        log_state: LogState,
        fit: Fit,
        draw: Draw,
        now_ms: int,
    ) -> None:
        assert self_id in voters, (self_id, voters)
        log = LogTail(log_state)
        self.state = State(
            config=config,
            self_id=self_id,
            voters=voters,
            others=tuple(voter for voter in voters if voter != self_id),
            log=log,
            fit=fit,
            draw=draw,
            # A log may come with no, or an older, term file (a store that was copied): its entries prove a term, too.
            term=max(hard_state.term, log.last_term),
            voted_for=hard_state.voted_for if hard_state.term >= log.last_term else None,
            commit_index=log.begin_index - 1,
            written_index=log.last_index,
            persisted_index=log.last_index,
            matched_index=log.begin_index - 1,
            now_ms=now_ms,
        )
        self._saved = (hard_state.term, hard_state.voted_for)
        self._shown = (self.state.role, self.state.term, self.state.leader_id)
        reset_election_deadline(self.state)

    def step(self, event: Event) -> list[Effect]:
        """Let `event` happen; return what must be done for it, in order, before the next event.

        Raises:
            InvariantBroken: Raft excludes what happened; stop the node and keep its files.
        """
        state = self.state
        state.effects = []
        match event:
            case Received():
                self._receive(event.sender, event.message)
            case Tick():
                assert event.now_ms >= state.now_ms, (event.now_ms, state.now_ms)
                state.now_ms = event.now_ms
                if state.role is Role.LEADER:
                    leader.tick(state)
                else:
                    election.tick(state)
            case Propose():
                leader.on_propose(state, event.proposal, event.count)
            case Written():
                state.written_index = max(state.written_index, event.last_index)
                if state.role is Role.LEADER:
                    leader.on_written(state)
            case Persisted():
                self._persisted(event.last_index)
            case ReadIndex():
                leader.on_read_index(state, event.read_id)
            case PeerUnreachable():
                if state.role is Role.LEADER:
                    leader.on_peer_unreachable(state, event.peer)
            case PushNotTaken():
                follower.on_push_not_taken(state, event.sender, event.push)
        return self._finish()

    def _finish(self) -> list[Effect]:
        """Put the hard state in front of all that depends on it, and show a changed role behind."""
        state = self.state
        if (state.term, state.voted_for) != self._saved:
            self._saved = (state.term, state.voted_for)
            state.effects.insert(0, SaveHardState(state.term, state.voted_for))
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
        """Compare terms (Raft §5.1), then let the message's own rule decide."""
        state = self.state
        if sender not in state.others:
            return
        if isinstance(message, VoteRequest):
            if message.is_pre_vote:
                election.on_pre_vote_request(state, sender, message)
            else:
                election.on_vote_request(state, sender, message)
            return
        is_pre_vote_grant = isinstance(message, VoteResponse) and message.is_pre_vote and message.is_granted
        if message.term > state.term and not is_pre_vote_grant:
            is_leader = isinstance(message, (Heartbeat, Push))
            become_follower(state, message.term, sender if is_leader else None)
        if message.term < state.term:
            self._answer_old_term(sender, message)
            return
        self._dispatch(sender, message)

    def _answer_old_term(self, sender: str, message: Message) -> None:
        """Tell a leader of an old term that it is none; everything else of an old term is dropped."""
        state = self.state
        if isinstance(message, (Heartbeat, Push)):
            state.send(sender, HeartbeatResponse(term=state.term, round=0))

    def _dispatch(self, sender: str, message: Message) -> None:
        state = self.state
        if isinstance(message, Push):
            follower.on_push(state, sender, message)
        elif isinstance(message, Heartbeat):
            follower.on_heartbeat(state, sender, message)
        elif isinstance(message, VoteResponse):
            election.on_vote_response(state, sender, message)
        elif state.role is Role.LEADER:
            if isinstance(message, PushAccepted):
                leader.on_push_accepted(state, sender, message)
            elif isinstance(message, PushRefused):
                leader.on_push_refused(state, sender, message)
            elif isinstance(message, HeartbeatResponse):
                leader.on_heartbeat_response(state, sender, message)

    # ------------------------------------------------------------------------------------------- what a status shows

    @property
    def role(self) -> Role:
        """What this node is in its term."""
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

    def match_index_of(self, peer: str) -> int:
        """On a leader: the last index known to be durable on `peer`; -1 when not known or not leading."""
        progress = self.state.progress.get(peer)
        return -1 if progress is None else progress.match_index

    def is_live(self, peer: str) -> bool:
        """On a leader: whether `peer` answered within the longest election timeout."""
        progress = self.state.progress.get(peer)
        time_out_ms = self.state.config.max_election_timeout_ms
        return progress is not None and progress.is_live(self.state.now_ms, time_out_ms)
