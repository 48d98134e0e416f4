"""Rules that advance the commit index: a leader counts acknowledgements, a follower takes the leader's index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.core.events import Commit, ReadReady
from dledger.core.state import membership
from dledger.core.state.roles import Follower
from dledger.types import NO_INDEX

if TYPE_CHECKING:
    from dledger.core.state.consensus import State


def learn_commit(state: State, index: int) -> None:
    """Advance a follower's commit index to `index`, which the leader sent.

    The only place where the index is bounded: it is valid for entries that were compared with *this* leader's log.
    Entries beyond those may be from a deposed leader, even if this node acknowledged others before it was wiped or
    restarted.
    """
    advance_commit(state, min(index, state.follower.matched_index))


def advance_commit(state: State, commit_index: int) -> None:
    """Advance the commit index to `commit_index` if that is higher."""
    if commit_index <= state.commit_index:
        return
    assert commit_index <= state.log.last_index, (commit_index, state.log.last_index)
    state.commit_index, state.kept_term = commit_index, state.term
    if membership.is_changing(state):
        membership.commit(state)
    state.emit(Commit(commit_index))
    if isinstance(state.role_state, Follower):
        asked_reads = state.role_state.asked_reads
        ready = [asked_id for asked_id, read in asked_reads.items() if NO_INDEX < read.index <= commit_index]
        for asked_id in ready:
            read = asked_reads.pop(asked_id)
            state.emit(ReadReady(read.read_id, read.index))
