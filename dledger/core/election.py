"""Pre-vote and vote (Raft §5.2, §5.4.1; dissertation §4.2.3, §9.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dledger.core import leader, transfer, transitions
from dledger.core.events import MessageRejected, RejectReason, TransitionCause, VoteAnswered, VoteReceived
from dledger.core.messages import TimeoutNow, VoteRequest, VoteResponse
from dledger.core.state import voting_rights
from dledger.core.state.roles import Candidate, Follower, Leader
from dledger.types import TERM_MAX, Role

if TYPE_CHECKING:
    from dledger.core.state.consensus import State

# Election timeouts that a node skips, in favour of others, after its disk stalled.
_SKIPPED_TIMEOUTS_MAX: Final = 3


def tick(state: State, role_state: Follower | Candidate) -> None:
    """Start an election when no message of a leader arrived for a whole random timeout."""
    if state.now_ms < role_state.deadline_ms:
        return
    if _may_campaign(state):
        start_pre_vote(state)
    else:
        state.skipped_timeouts += not state.is_disk_stalling
        transitions.lose_leader(state)


def start_pre_vote(state: State) -> None:
    """Start a pre-vote, which keeps the term, so that a partitioned node does not disrupt the group later."""
    transitions.ask_pre_votes(state)
    _ask(state, request_term=state.term + 1)


def start_vote(state: State, *, is_asked_to_campaign: bool = False) -> None:
    """Increment the term, vote for this node and send vote requests."""
    transitions.ask_votes(state, is_asked_to_campaign=is_asked_to_campaign)
    voting_rights.name_group(state)
    _ask(state, request_term=state.term)


def on_timeout_now(state: State, sender: str, _message: TimeoutNow) -> None:
    """Campaign at once: the leader requests it, and this node has its whole log (dissertation §3.10)."""
    if state.role is Role.FOLLOWER and state.leader_id == sender and _may_campaign(state):
        start_vote(state, is_asked_to_campaign=True)


def _ask(state: State, *, request_term: int) -> None:
    candidate = state.candidate
    for voter in state.voters:
        if voter != state.self_id:
            request = VoteRequest(
                term=request_term,
                is_pre_vote=candidate.is_pre_vote,
                last_index=state.log.last_index,
                last_term=state.log.last_term,
                is_transfer=candidate.is_asked_to_campaign,
                voter_incarnation=state.incarnations[voter],
                life=state.life,
                group_id=state.named_group_id,
            )
            state.send(voter, request)
    if state.self_id in state.voters:
        _count_vote(state, state.self_id, is_founding=state.is_founding)


def has_live_leader(state: State) -> bool:
    """Return whether a leader sent a message within the shortest election timeout (dissertation §4.2.3).

    A leader whose process has probably ended does not count as live, except for the lease that this node renewed.
    A node that has just started may have had contact with a leader before.
    """
    role_state = state.role_state
    if isinstance(role_state, Leader) or state.now_ms < state.quiet_until_ms:
        return True
    if isinstance(role_state, Candidate) or state.leader_id is None:
        return False
    if role_state.is_leader_gone:
        return state.now_ms < role_state.lease_end_ms
    return state.now_ms - role_state.contact_ms < state.config.min_election_timeout_ms


def on_peer_gone(state: State, peer: str) -> None:
    """Campaign soon if `peer` is the leader, instead of after an election timeout.

    The voters campaign one after the other, in the order of their ids, so that votes rarely split: the next one takes
    its turn if no leader was elected within half a heartbeat interval. Before the first, all have time to learn of it.
    A lease that this node has renewed ends first. If the leader lives, its other followers refuse their pre-votes,
    and its next message makes this node wait again.
    """
    role_state = state.role_state
    if not isinstance(role_state, Follower) or state.leader_id != peer or role_state.is_leader_gone:
        return
    role_state.is_leader_gone = True
    others = sorted(voter for voter in state.voters if voter != peer)
    if state.self_id in others:
        interval_ms = state.config.heart_beat_time_interval_ms
        delay_ms = interval_ms // 5 + others.index(state.self_id) * interval_ms // 2
        due_ms = max(state.now_ms, role_state.lease_end_ms) + delay_ms
        role_state.deadline_ms = min(role_state.deadline_ms, due_ms)


def _may_campaign(state: State) -> bool:
    """Return whether this node may start an election.

    A node whose disk stalled recently skips its first election timeouts, so that another node can be elected. If no
    leader is elected meanwhile, it campaigns: the disks of all nodes may have stalled.

    In the highest term (`TERM_MAX`) no node campaigns: the next term could not be encoded.

    A non-voter campaigns when a candidate with a shorter log needs its vote (`_note_need`).
    """
    if state.is_disk_stalling or state.term >= TERM_MAX:
        return False
    if state.is_disk_stalled and state.skipped_timeouts < _SKIPPED_TIMEOUTS_MAX:
        return False
    is_needed = isinstance(state.role_state, Follower) and state.role_state.is_needed
    return is_needed or voting_rights.RIGHTS[voting_rights.voting_status_of(state)].campaigns


def _count_vote(state: State, voter: str, *, is_founding: bool) -> None:
    """Count a vote, and check whether there are enough: a majority of voters that are not founding, or all voters."""
    candidate = state.candidate
    voting_rights.take_vote(candidate, voter, is_founding=is_founding)
    has_majority = voting_rights.has_majority(state, candidate)
    if not has_majority and not voting_rights.is_founded_by(state, candidate):
        return
    if candidate.is_pre_vote:
        start_vote(state)
    else:
        leader.become_leader(state, is_founding=not has_majority)


def on_pre_vote_request(state: State, sender: str, request: VoteRequest) -> None:
    """Answer whether this node would grant the vote; neither its term nor its timer changes."""
    is_granted = (
        request.term > state.term
        and not has_live_leader(state)
        and voting_rights.has_vote(state, request)
        and _holds_enough(state, sender, request)
    )
    # A grant echoes the requested term, so that it answers this request only; a refusal carries our own.
    _answer(state, sender, request, term=request.term if is_granted else state.term, is_granted=is_granted)


def on_vote_request(state: State, sender: str, request: VoteRequest) -> None:
    """Vote for the first candidate of a term whose log is at least as up to date as ours."""
    if request.term > state.term:
        if has_live_leader(state) and not request.is_transfer:
            # "If a server receives a RequestVote within the minimum election timeout of hearing from a current
            # leader, it does not update its term or grant its vote" (dissertation §4.2.3).
            return
        transitions.see_term(state, request.term)
    is_granted = (
        request.term == state.term
        and state.voted_for in (None, sender)
        and state.role is Role.FOLLOWER
        and voting_rights.has_vote(state, request)
        and _holds_enough(state, sender, request)
    )
    if is_granted:
        transitions.vote_for(state, sender)
        voting_rights.agree_to_group(state, request.group_id)
    _answer(state, sender, request, term=state.term, is_granted=is_granted)


def _holds_enough(state: State, candidate: str, request: VoteRequest) -> bool:
    """Return whether the candidate's log is as up to date as ours (Raft §5.4.1), and has what is known to be committed.

    A log that lacks an entry which is known here to be committed must not win. If its last term began after this node
    learned of the commit, Raft excludes the leader of that term: one of its voters had lost entries and did not detect
    it. Otherwise the candidate's last entry is one that an earlier leader sent only to it, which is a normal case.
    """
    if not state.log.is_up_to_date(request.last_index, request.last_term):
        _note_need(state)
        return False
    is_enough = request.last_index >= state.kept_index
    if not is_enough and request.last_term > state.kept_term:
        state.emit(MessageRejected(candidate, RejectReason.COMMITTED, VoteRequest.__name__, request.term))
    return is_enough


def _note_need(state: State) -> None:
    """Record that a candidate with a shorter log counts this node as a voter, unlike this node's own log.

    The entry that promoted this node is in the candidate's log, and was replaced in this log by a later leader that is
    down. The candidate cannot win without this vote and never gets it, and perhaps no other node has a log that is long
    enough. So this node campaigns: elected by a majority of the voters that its own log names, without its own vote, it
    leads until its no-op is committed (`membership_changes.committed`), and then all have the same membership.
    """
    if (
        isinstance(state.role_state, Follower)
        and voting_rights.voting_status_of(state) is voting_rights.VotingStatus.NON_VOTER
    ):
        state.role_state.is_needed = True


def _answer(state: State, sender: str, request: VoteRequest, *, term: int, is_granted: bool) -> None:
    state.send(sender, VoteResponse(term, request.is_pre_vote, is_granted, state.is_founding, request.life))
    state.emit(VoteAnswered(sender, request.term, request.is_pre_vote, is_granted))


def on_vote_response(state: State, sender: str, response: VoteResponse) -> None:
    """Count a vote that answers the current request of this process; anything else is stale."""
    role_state = state.role_state
    if not isinstance(role_state, Candidate) or response.is_pre_vote != role_state.is_pre_vote:
        return
    if response.life != state.life:
        return
    asked_term = state.term + 1 if role_state.is_pre_vote else state.term
    if not response.is_granted:
        state.emit(VoteReceived(sender, asked_term, response.is_pre_vote, is_granted=False))
        return
    if response.term == asked_term and sender in state.voters:
        state.emit(VoteReceived(sender, asked_term, response.is_pre_vote, is_granted=True))
        _count_vote(state, sender, is_founding=response.is_founding)


def on_disk_health(state: State, *, is_stalled: bool, is_stalling: bool, is_full: bool) -> None:
    """Resign, and do not campaign, while the disk stalls: appends would be acknowledged late or never.

    A node that was elected although its disk stalled recently keeps leading until the disk stalls again.
    """
    if is_full and not state.is_disk_full:
        transfer.leave_full_disk(state)
    state.is_disk_full = is_full
    has_stalled = is_stalling or (is_stalled and not state.is_disk_stalled)
    state.is_disk_stalled, state.is_disk_stalling = is_stalled, is_stalling
    if not has_stalled:
        return
    state.skipped_timeouts = 0
    if state.role is Role.LEADER:
        transfer.hand_over(state)
    if state.role is not Role.FOLLOWER:
        transitions.step_down(state, TransitionCause.DISK_STALLED)
