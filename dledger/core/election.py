"""Pre-vote and vote: who may lead (Raft §5.2, §5.4.1; dissertation §4.2.3, §9.6)."""

from __future__ import annotations

from dledger.core import leader, membership, transfer
from dledger.core.messages import TimeoutNow, VoteRequest, VoteResponse
from dledger.core.state import State
from dledger.core.transitions import become_follower, hears_leader, reset_election_deadline
from dledger.types import Role


def tick(state: State) -> None:
    """Stand for election when no leader has shown itself for a whole random timeout."""
    if state.now_ms < state.election_deadline_ms:
        return
    if membership.may_stand(state):
        start_pre_vote(state)
    else:
        state.turns_left_to_others += not state.is_disk_stalling
        become_follower(state, state.term, None)
        reset_election_deadline(state)


def start_pre_vote(state: State) -> None:
    """Ask whether we would be elected, without raising the term: a node that was cut off disturbs nobody."""
    state.is_asked_to_stand = False
    _stand(state, is_pre_vote=True, request_term=state.term + 1)


def start_vote(state: State) -> None:
    """Raise the term, vote for ourselves and ask for the others' votes."""
    state.term += 1
    state.voted_for = state.self_id
    _stand(state, is_pre_vote=False, request_term=state.term)


def on_timeout_now(state: State, sender: str, _message: TimeoutNow) -> None:
    """Stand at once, because the leader asks for it and we hold all that it has (dissertation §3.10)."""
    if state.role is Role.FOLLOWER and state.leader_id == sender and membership.may_stand(state):
        state.is_asked_to_stand = True
        start_vote(state)


def _stand(state: State, *, is_pre_vote: bool, request_term: int) -> None:
    become_candidate(state)
    state.is_pre_vote = is_pre_vote
    for voter in state.voters:
        if voter != state.self_id:
            request = VoteRequest(
                term=request_term,
                is_pre_vote=is_pre_vote,
                last_index=state.log.last_index,
                last_term=state.log.last_term,
                is_transfer=state.is_asked_to_stand,
                voter_incarnation=state.incarnations[voter],
                life=state.life,
            )
            state.send(voter, request)
    if state.self_id in state.voters:
        _count_vote(state, state.self_id, is_founding=state.is_founding)


def become_candidate(state: State) -> None:
    """Leave the leader, and count votes from none."""
    become_follower(state, state.term, None)
    state.role = Role.CANDIDATE
    state.votes = set()
    state.founding_votes = set()
    reset_election_deadline(state)


def _count_vote(state: State, voter: str, *, is_founding: bool) -> None:
    """Count a vote, and see whether they are enough (ADR 7).

    A majority of voters with a past elects as ever. Voters without one may have lost what they promised: they elect
    only all together, and only who has nothing to lose. So a new group begins once all its voters are there, and a
    group in which disks were wiped is never begun anew behind the back of those that still hold its log.
    """
    state.votes.add(voter)
    if is_founding:
        state.founding_votes.add(voter)
    has_majority = len(state.votes) - len(state.founding_votes) >= state.quorum
    is_unanimous = len(state.votes) == len(state.voters) and state.log.holds_only_no_ops
    if not has_majority and not is_unanimous:
        return
    if state.is_pre_vote:
        start_vote(state)
    else:
        leader.take_office(state, is_founding=not has_majority)


def on_pre_vote_request(state: State, sender: str, request: VoteRequest) -> None:
    """Say whether we would vote so: nothing of ours changes, neither term nor timer."""
    is_granted = (
        request.term > state.term
        and not hears_leader(state)
        and _has_vote(state, request)
        and state.log.is_up_to_date(request.last_index, request.last_term)
    )
    # A grant echoes the asked-for term, so that it answers this question only; a refusal tells our own.
    _answer(state, sender, request, term=request.term if is_granted else state.term, is_granted=is_granted)


def on_vote_request(state: State, sender: str, request: VoteRequest) -> None:
    """Vote for the first candidate of a term whose log is at least as up to date as ours."""
    if request.term > state.term:
        if hears_leader(state) and not request.is_transfer:
            # "If a server receives a RequestVote within the minimum election timeout of hearing from a current
            # leader, it does not update its term or grant its vote" (dissertation §4.2.3).
            return
        become_follower(state, request.term, None)
    is_granted = (
        request.term == state.term
        and state.voted_for in (None, sender)
        and state.role is Role.FOLLOWER
        and _has_vote(state, request)
        and state.log.is_up_to_date(request.last_index, request.last_term)
    )
    if is_granted:
        state.voted_for = sender
        reset_election_deadline(state)
    _answer(state, sender, request, term=state.term, is_granted=is_granted)


def _answer(state: State, sender: str, request: VoteRequest, *, term: int, is_granted: bool) -> None:
    state.send(sender, VoteResponse(term, request.is_pre_vote, is_granted, state.is_founding, request.life))


def _has_vote(state: State, request: VoteRequest) -> bool:
    """Say whether this node, as the disk knows it, is the one that the candidate wants a vote of (ADR 7).

    Whether we are a voter is for the candidate to know: it may have a newer membership (dissertation §4.2).
    """
    return request.voter_incarnation == state.incarnation


def on_vote_response(state: State, sender: str, response: VoteResponse) -> None:
    """Count a vote that answers the open question of this life; anything else is late."""
    if state.role is not Role.CANDIDATE or not response.is_granted or response.is_pre_vote != state.is_pre_vote:
        return
    if response.life != state.life:
        return
    asked_term = state.term + 1 if state.is_pre_vote else state.term
    if response.term == asked_term and sender in state.voters:
        _count_vote(state, sender, is_founding=response.is_founding)


def on_disk_health(state: State, *, is_sick: bool, is_stalling: bool) -> None:
    """Lead no longer, and do not stand, while the disk stalls: what we acknowledge would come late or never.

    Who was elected although its disk stalled a short while ago leads on until that stalls again.
    """
    has_stalled = is_stalling or (is_sick and not state.is_disk_sick)
    state.is_disk_sick, state.is_disk_stalling = is_sick, is_stalling
    if not has_stalled:
        return
    state.turns_left_to_others = 0
    if state.role is Role.LEADER:
        transfer.hand_over(state)
    if state.role is not Role.FOLLOWER:
        become_follower(state, state.term, None)
