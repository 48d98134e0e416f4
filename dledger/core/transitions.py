"""Ways into the roles that need nothing but the state: follower, candidate; and the clock of elections.

How a candidate becomes leader is in `leader.take_office`.
"""

from __future__ import annotations

from dledger.core import membership
from dledger.core.events import Commit, ReadReady, ReadRefused, RequestEnded
from dledger.core.messages import ReadIndexResponse
from dledger.core.state import State
from dledger.errors import ResponseCode
from dledger.types import NO_INDEX, Role


def become_follower(state: State, term: int, leader_id: str | None) -> None:
    """Follow `leader_id` (None: nobody yet) in `term`, which is at least ours."""
    assert term >= state.term, (term, state.term)
    if term > state.term:
        state.term = term
        state.voted_for = None
    elif state.role is Role.FOLLOWER and state.leader_id == leader_id:
        return
    refuse_reads(state)
    _give_up_change(state)
    state.role = Role.FOLLOWER
    state.leader_id = leader_id
    state.progress.clear()
    # What is committed is the same everywhere; all else must be compared with the new leader's log first.
    state.matched_index = state.commit_index
    state.owes_acknowledgement = False
    if leader_id is not None:
        state.turns_left_to_others = 0
        settle_transfer(state, leader_id)
    reset_election_deadline(state)


def reset_election_deadline(state: State) -> None:
    """Wait a new random time before standing for election (Raft §5.2: random, so that votes seldom split)."""
    config = state.config
    state.election_deadline_ms = state.now_ms + state.draw(
        config.min_election_timeout_ms, config.max_election_timeout_ms
    )


def hears_leader(state: State) -> bool:
    """Say whether a leader showed itself within the shortest election timeout (dissertation §4.2.3).

    A node that has just started may have heard one before.
    """
    if state.role is Role.LEADER or state.now_ms < state.quiet_until_ms:
        return True
    silence_ms = state.now_ms - state.leader_contact_ms
    return state.leader_id is not None and silence_ms < state.config.min_election_timeout_ms


def learn_commit(state: State, index: int) -> None:
    """As a follower, take over from the leader that everything up to `index` is committed.

    The only place where that is bounded: it holds for what was compared with *this* leader's log. What stands behind
    may come from a leader that was deposed, whatever this node acknowledged before it was wiped or started again.
    """
    advance_commit(state, min(index, state.matched_index))


def advance_commit(state: State, commit_index: int) -> None:
    """Take `commit_index` as committed if it is news."""
    if commit_index <= state.commit_index:
        return
    assert commit_index <= state.log.last_index, (commit_index, state.log.last_index)
    state.commit_index = commit_index
    if membership.is_changing(state):
        membership.settle(state)
    state.emit(Commit(commit_index))
    ready = [asked_id for asked_id, read in state.asked_reads.items() if NO_INDEX < read.index <= commit_index]
    for asked_id in ready:
        read = state.asked_reads.pop(asked_id)
        state.emit(ReadReady(read.read_id, read.index))


def refuse_reads(state: State) -> None:
    """Answer all waiting reads: this node can no longer vouch for them."""
    for read in state.reads:
        if read.peer is None:
            state.emit(ReadRefused(read.read_id))
        else:
            state.send(read.peer, ReadIndexResponse(term=state.term, read_id=read.read_id, index=NO_INDEX))
    state.reads.clear()
    for asked in state.asked_reads.values():
        state.emit(ReadRefused(asked.read_id))
    state.asked_reads.clear()


def settle_transfer(state: State, leader_id: str) -> None:
    """Say how a transfer ended: `leader_id` leads now."""
    transfer, state.transfer = state.transfer, None
    if transfer is None or transfer.request_id is None:
        return
    if transfer.target == leader_id:
        state.emit(RequestEnded(transfer.request_id, ResponseCode.SUCCESS))
        return
    message = f"{leader_id} was elected instead of {transfer.target}; try again"
    state.emit(RequestEnded(transfer.request_id, ResponseCode.TAKE_LEADERSHIP_FAILED, message))


def _give_up_change(state: State) -> None:
    change, state.change = state.change, None
    if change is not None:
        message = "this node no longer leads; the change may be committed yet: list the members on the new leader"
        state.emit(RequestEnded(change.request_id, ResponseCode.WAIT_QUORUM_ACK_TIMEOUT, message))
