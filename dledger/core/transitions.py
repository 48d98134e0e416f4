"""The one table of transitions between the roles, and the only writer of role, term, vote and leader.

A transition first ends the requests of the old role, and replaces the object of the role (`core.state.roles`). The
table has the old and new role of each cause, and the change of term and vote; a transition that is not in it is a bug.

Not here: the conditions of each cause (`core.election`, `core.leader`, `core.follower`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dledger.core.events import ReadRefused, RequestEnded, TransferEnded, TransitionCause, Transitioned
from dledger.core.messages import ReadIndexResponse
from dledger.core.state.roles import Candidate, Follower, Leader, RoleState
from dledger.errors import ResponseCode
from dledger.types import NO_INDEX, Role

if TYPE_CHECKING:
    from dledger.core.config import RaftConfig
    from dledger.core.state.consensus import Draw, State

_ANY: Final = frozenset(Role)
_LEADING: Final = frozenset({Role.LEADER})
_NOT_LEADING: Final = frozenset({Role.FOLLOWER, Role.CANDIDATE})


@dataclass(frozen=True, slots=True)
class Transition:
    """A row of the table.

    Attributes:
        origins: the roles in which the cause may occur.
        goal: the new role.
        term: the new term: "same", "next", or "higher" as given.
        vote: the new vote: "kept", "none", or "own".
    """

    origins: frozenset[Role]
    goal: Role
    term: str
    vote: str


TRANSITIONS: Final = {
    TransitionCause.NEWER_TERM: Transition(_ANY, Role.FOLLOWER, "higher", "none"),
    TransitionCause.LEADER_SEEN: Transition(_NOT_LEADING, Role.FOLLOWER, "same", "kept"),
    TransitionCause.LEADER_LOST: Transition(_NOT_LEADING, Role.FOLLOWER, "same", "kept"),
    TransitionCause.PRE_VOTE: Transition(_NOT_LEADING, Role.CANDIDATE, "same", "kept"),
    TransitionCause.VOTE: Transition(_NOT_LEADING, Role.CANDIDATE, "next", "own"),
    TransitionCause.ELECTED: Transition(frozenset({Role.CANDIDATE}), Role.LEADER, "same", "kept"),
    TransitionCause.QUORUM_LOST: Transition(_LEADING, Role.FOLLOWER, "same", "kept"),
    TransitionCause.DISK_STALLED: Transition(_LEADING | {Role.CANDIDATE}, Role.FOLLOWER, "same", "kept"),
    TransitionCause.REMOVED: Transition(_LEADING, Role.FOLLOWER, "same", "kept"),
}


def _enter(
    state: State,
    cause: TransitionCause,
    role_state: RoleState,
    leader_id: str | None = None,
    *,
    term: int | None = None,
) -> None:
    """Make the transition of `cause`; `term` is given if the table says that it becomes higher."""
    transition = TRANSITIONS[cause]
    assert state.role in transition.origins, (cause, state.role)
    assert role_state.role is transition.goal, (cause, role_state)
    if transition.term == "higher":
        assert term is not None, cause
        assert term > state.term, (cause, term, state.term)
        state.term = term
    elif transition.term == "next":
        state.term += 1
    if transition.vote != "kept":
        state.voted_for = state.self_id if transition.vote == "own" else None
    _leave(state)
    origin = state.role
    state.role_state, state.role, state.leader_id = role_state, role_state.role, leader_id
    state.emit(Transitioned(cause, origin, state.role, state.term, leader_id))
    if leader_id is not None:
        if state.role is Role.FOLLOWER:
            state.skipped_timeouts = 0
        end_transfer(state, leader_id)


# ------------------------------------------------------------------------------------------------------ the causes


def see_term(state: State, term: int, leader_id: str | None = None) -> None:
    """Follow `leader_id` (None: not known yet) in a higher term."""
    _enter(state, TransitionCause.NEWER_TERM, _new_follower(state), leader_id, term=term)


def follow(state: State, leader_id: str) -> None:
    """Follow the leader of the term; nothing changes if this node does so already."""
    if state.leader_id != leader_id:
        _enter(state, TransitionCause.LEADER_SEEN, _new_follower(state), leader_id)


def lose_leader(state: State) -> None:
    """Become a follower without a leader, and wait for another election timeout."""
    if state.role is Role.FOLLOWER and state.leader_id is None:
        reset_deadline(state)
    else:
        _enter(state, TransitionCause.LEADER_LOST, _new_follower(state))


def ask_pre_votes(state: State) -> None:
    """Become a candidate that requests pre-votes."""
    deadline_ms = state.now_ms + waiting_time_ms(state.config, state.draw)
    _enter(state, TransitionCause.PRE_VOTE, Candidate(True, False, deadline_ms))


def ask_votes(state: State, *, is_asked_to_campaign: bool) -> None:
    """Become a candidate of the next term, with its own vote."""
    deadline_ms = state.now_ms + waiting_time_ms(state.config, state.draw)
    _enter(state, TransitionCause.VOTE, Candidate(False, is_asked_to_campaign, deadline_ms))


def win_election(state: State, founders: frozenset[str]) -> None:
    """Become the leader of the term; `founders` are the voters, if this election founds the group."""
    due_ms = state.now_ms + state.config.preferred_leader_interval_ms
    _enter(state, TransitionCause.ELECTED, Leader(founders, state.log.last_index + 1, due_ms), state.self_id)


def step_down(state: State, cause: TransitionCause) -> None:
    """Stop being leader or candidate because of `cause`, a row of the table; the term does not change."""
    _enter(state, cause, _new_follower(state))


def vote_for(state: State, candidate_id: str) -> None:
    """Give this term's vote, which is final, and restart the election timeout to let the candidate win."""
    assert state.voted_for in (None, candidate_id), (state.voted_for, candidate_id)
    state.voted_for = candidate_id
    reset_deadline(state)


# ------------------------------------------------------------------------------------------------------- the parts


def waiting_time_ms(config: RaftConfig, draw: Draw) -> int:
    """Return a random election timeout (Raft §5.2: random, so that votes rarely split)."""
    return draw(config.min_election_timeout_ms, config.max_election_timeout_ms)


def reset_deadline(state: State) -> None:
    """As a follower, wait for a new random time."""
    state.follower.deadline_ms = state.now_ms + waiting_time_ms(state.config, state.draw)


def _new_follower(state: State) -> Follower:
    # Committed entries are the same everywhere; all others must be compared with the new leader's log first.
    deadline_ms = state.now_ms + waiting_time_ms(state.config, state.draw)
    return Follower(matched_index=state.commit_index, deadline_ms=deadline_ms, contact_ms=state.now_ms)


def _leave(state: State) -> None:
    """Fail the requests that only the old role could complete."""
    match state.role_state:
        case Leader(reads=reads, change=change):
            for read in reads:
                if read.peer is None:
                    state.emit(ReadRefused(read.read_id))
                else:
                    response = ReadIndexResponse(term=state.term, read_id=read.read_id, index=NO_INDEX)
                    state.send(read.peer, response)
            if change is not None:
                message = (
                    "this node is no longer leader; the change may still commit: list the members on the new leader"
                )
                state.emit(RequestEnded(change.request_id, ResponseCode.WAIT_QUORUM_ACK_TIMEOUT, message))
        case Follower(asked_reads=asked_reads):
            for asked in asked_reads.values():
                state.emit(ReadRefused(asked.read_id))


def end_transfer(state: State, leader_id: str) -> None:
    """Report the result of a transfer: `leader_id` leads now."""
    transfer, state.transfer = state.transfer, None
    if transfer is None:
        return
    state.emit(TransferEnded(transfer.target, leader_id))
    if transfer.request_id is None:
        return
    if transfer.target == leader_id:
        state.emit(RequestEnded(transfer.request_id, ResponseCode.SUCCESS))
        return
    message = f"{leader_id} was elected instead of {transfer.target}; retry"
    state.emit(RequestEnded(transfer.request_id, ResponseCode.TAKE_LEADERSHIP_FAILED, message))
