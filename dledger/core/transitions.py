"""Ways into the roles that need nothing but the state: follower, candidate; and the clock of elections.

How a candidate becomes leader is in `leader.take_office`.
"""

from __future__ import annotations

from dledger.core.events import Commit, ReadRefused
from dledger.core.state import State
from dledger.types import Role


def become_follower(state: State, term: int, leader_id: str | None) -> None:
    """Follow `leader_id` (None: nobody yet) in `term`, which is at least ours."""
    assert term >= state.term, (term, state.term)
    if term > state.term:
        state.term = term
        state.voted_for = None
    elif state.role is Role.FOLLOWER and state.leader_id == leader_id:
        return
    refuse_reads(state)
    state.role = Role.FOLLOWER
    state.leader_id = leader_id
    state.progress.clear()
    # What is committed is the same everywhere; all else must be compared with the new leader's log first.
    state.matched_index = state.commit_index
    state.owes_acknowledgement = False
    reset_election_deadline(state)


def reset_election_deadline(state: State) -> None:
    """Wait a new random time before standing for election (Raft §5.2: random, so that votes seldom split)."""
    config = state.config
    state.election_deadline_ms = state.now_ms + state.draw(
        config.min_election_timeout_ms, config.max_election_timeout_ms
    )


def hears_leader(state: State) -> bool:
    """Say whether a leader showed itself within the shortest election timeout (dissertation §4.2.3)."""
    if state.role is Role.LEADER:
        return True
    silence_ms = state.now_ms - state.leader_contact_ms
    return state.leader_id is not None and silence_ms < state.config.min_election_timeout_ms


def advance_commit(state: State, commit_index: int) -> None:
    """Take `commit_index` as committed if it is news."""
    if commit_index > state.commit_index:
        assert commit_index <= state.log.last_index, (commit_index, state.log.last_index)
        state.commit_index = commit_index
        state.emit(Commit(commit_index))


def refuse_reads(state: State) -> None:
    """Answer all waiting reads: this node can no longer vouch for them."""
    for read in state.reads:
        state.emit(ReadRefused(read.read_id))
    state.reads.clear()
