"""The table of transitions: the role after each cause, its term and vote, and that no other module writes them."""

from __future__ import annotations

import ast
from functools import partial
from pathlib import Path

import pytest

from dledger.core import raft, transitions
from dledger.core.events import (
    Commit,
    Propose,
    ReadIndex,
    ReadRefused,
    Received,
    RequestEnded,
    Tick,
    TransitionCause,
    Transitioned,
)
from dledger.core.messages import Heartbeat, Push
from dledger.core.state.roles import Candidate, Follower, Leader
from dledger.core.transitions import TRANSITIONS
from dledger.types import Role, Span

THREE = {"a": [], "b": [], "c": []}
CORE = Path(raft.__file__).parent
# Attributes of `state` and its parts that only transitions may write.
GUARDED = {"term", "voted_for", "role_state", "role", "leader_id"}

STEPS = {
    TransitionCause.NEWER_TERM: lambda state: transitions.see_term(state, state.term + 3, "x"),
    TransitionCause.LEADER_SEEN: lambda state: transitions.follow(state, "x"),
    TransitionCause.LEADER_LOST: transitions.lose_leader,
    TransitionCause.PRE_VOTE: transitions.ask_pre_votes,
    TransitionCause.VOTE: lambda state: transitions.ask_votes(state, is_asked_to_campaign=False),
    TransitionCause.ELECTED: lambda state: transitions.win_election(state, frozenset()),
    **{
        cause: partial(transitions.step_down, cause=cause)
        for cause in (TransitionCause.QUORUM_LOST, TransitionCause.DISK_STALLED, TransitionCause.REMOVED)
    },
}
TERM_STEPS = {"same": 0, "next": 1, "higher": 3}


def state_in(role, group):
    """Return the state of a node that follows c, campaigns, or leads."""
    cluster = group(THREE)
    if role is Role.LEADER:
        return cluster.campaign("a").raft.state
    node = cluster["a"]
    if role is Role.FOLLOWER:
        node.step(Received("c", Heartbeat(term=1, commit_index=-1, round=1)))
    else:
        node.step(Tick(1_000))
    return node.raft.state


@pytest.mark.parametrize("cause", TransitionCause)
@pytest.mark.parametrize("role", Role)
def test_transitions_follow_the_table_and_no_others_exist(role, cause, group):
    state = state_in(role, group)
    term, vote, role_state = state.term, state.voted_for, state.role_state
    assert state.role is role

    if role not in TRANSITIONS[cause].origins:
        with pytest.raises(AssertionError):
            STEPS[cause](state)
        assert (state.term, state.voted_for, state.role_state) == (term, vote, role_state)
        return
    state.effects = []
    STEPS[cause](state)

    shown = Transitioned(cause, role, state.role, state.term, state.leader_id)
    assert [effect for effect in state.effects if isinstance(effect, Transitioned)] == [shown]
    assert state.role is TRANSITIONS[cause].goal
    assert state.role_state is not role_state
    assert state.term == term + TERM_STEPS[TRANSITIONS[cause].term]
    assert state.voted_for == {"kept": vote, "none": None, "own": "a"}[TRANSITIONS[cause].vote]


def test_only_transitions_write_role_term_vote_and_leader():
    found = []
    for path in sorted(CORE.rglob("*.py")):
        if path.name == "transitions.py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in targets:
                parts = target.elts if isinstance(target, ast.Tuple) else [target]
                names = [part.attr for part in parts if isinstance(part, ast.Attribute)]
                found += [f"{path.name}:{node.lineno} {name}" for name in names if name in GUARDED]

    assert found == []


def test_a_follower_has_compared_nothing_with_the_next_leader(group):
    follower = group(THREE)["b"]
    follower.step(Received("a", Push(1, -1, -1, -1, Span(0, 2, 1, 0, 300), b"x" * 300)))
    assert follower.raft.state.follower.matched_index == 2

    effects = follower.step(Received("c", Heartbeat(term=2, commit_index=2, round=1)))

    assert not [effect for effect in effects if isinstance(effect, Commit)]
    assert follower.raft.state.follower.matched_index == -1


def test_a_leader_that_is_elected_again_knows_nothing_of_its_followers(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    leader.step(Propose(1, 1))
    cluster.tick(200)
    before = leader.raft.state.leader

    transitions.step_down(leader.raft.state, TransitionCause.QUORUM_LOST)
    cluster.campaign("a", only=lambda *_: False)
    transitions.ask_votes(leader.raft.state, is_asked_to_campaign=False)
    transitions.win_election(leader.raft.state, frozenset())

    role_state = leader.raft.state.leader
    assert before.progress
    assert (role_state.progress, role_state.round, role_state.reads, role_state.change) == ({}, 0, [], None)


def test_waiters_for_a_role_are_answered_when_it_ends(group):
    cluster = group(THREE)
    leader, follower = cluster.campaign("a"), cluster["b"]
    cluster.tick(50)
    leader.step(ReadIndex(7))
    follower.step(ReadIndex(8))
    newer = Heartbeat(term=9, commit_index=-1, round=1)

    assert ReadRefused(7) in leader.step(Received("c", newer))
    assert ReadRefused(8) in follower.step(Received("c", newer))
    assert not leader.seen(RequestEnded)


def test_each_role_has_an_object_of_its_own_with_its_name():
    assert {role_state.role: role_state.__name__.upper() for role_state in (Follower, Candidate, Leader)} == {
        role: role.value for role in Role
    }
