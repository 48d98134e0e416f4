"""The memberships in the log, the one in force, and the votes that count (dissertation §4.1; ADR 7).

A membership is in force as soon as it is in the log, committed or not. `State.memberships` begins with the newest one
that is known to be committed, followed by all later ones in the log.

A voter that was wiped has a new incarnation. It counts again when the membership with the new incarnation is
*committed*: until then votes and acknowledgements that the wiped disk has lost may count (`core.state.voting_rights`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.core.events import SaveMemberships
from dledger.core.state import voting_rights
from dledger.core.state.quorum import majority_value
from dledger.types import NO_INDEX, MembershipEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dledger.core.state.consensus import State
    from dledger.core.state.progress import Progress


def refresh(state: State) -> None:
    """Recompute the voters, incarnations and group id from `state.memberships`."""
    committed = state.memberships[0].membership
    current = state.memberships[-1].membership
    state.group_id, state.committed_group_id = current.group_id, committed.group_id
    state.voters = current.voters
    state.incarnations = {}
    for member in current.members:
        before = committed.get(member.id)
        counted = before if before is not None and before.is_voter else member
        if member.is_voter:
            state.incarnations[member.id] = counted.incarnation


def add(state: State, entries: Sequence[MembershipEntry]) -> None:
    """Add memberships that are now in the log; their indexes are above all known ones."""
    state.memberships += entries
    refresh(state)
    state.emit(SaveMemberships(tuple(state.memberships)))


def truncate(state: State, first_index: int) -> None:
    """Remove the memberships that were truncated, those from `first_index` on."""
    kept = [entry for entry in state.memberships if entry.index < first_index]
    if len(kept) < len(state.memberships):
        # The first one is committed, whatever its index.
        state.memberships = kept or state.memberships[:1]
        refresh(state)
        state.emit(SaveMemberships(tuple(state.memberships)))


def commit(state: State) -> None:
    """Remove the memberships before the newest one that is committed."""
    known = 0
    for number, entry in enumerate(state.memberships):
        if entry.index <= state.commit_index:
            known = number
    if known:
        state.memberships = state.memberships[known:]
        refresh(state)
        state.emit(SaveMemberships(tuple(state.memberships)))


def replace(state: State, entry: MembershipEntry) -> None:
    """Replace all memberships by `entry`, which is committed."""
    state.memberships = [entry]
    refresh(state)
    state.emit(SaveMemberships(tuple(state.memberships)))


def is_changing(state: State) -> bool:
    """Return whether a membership is in force that is not known to be committed."""
    return len(state.memberships) > 1


def agreed(state: State, own: int, value_of: Callable[[Progress], int]) -> int:
    """Return the greatest value that a majority of the voters has reached; a voter that does not count has -1.

    Args:
        state: a leader's.
        own: this node's value; it counts while this node is a voter.
        value_of: returns a follower's value.
    """
    values, followers = [], state.leader.progress
    for voter in state.voters:
        if voter == state.self_id:
            values.append(own)
            continue
        progress = followers[voter]
        values.append(value_of(progress) if voting_rights.counts(state, voter, progress) else NO_INDEX)
    return majority_value(values)
