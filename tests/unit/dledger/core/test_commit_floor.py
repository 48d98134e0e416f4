"""Entries committed by an earlier process are never truncated, and no node is elected without them (ADR 29)."""

from __future__ import annotations

import pytest

from dledger.core.events import MessageRejected, Received, RejectReason, ResetStore, Send, Tick, TruncateFrom
from dledger.core.messages import Push, PushAccepted, PushRefused, ResetLog, VoteRequest, VoteResponse
from dledger.types import HardState, Span
from tests.unit.dledger.core.conftest import ENTRY_SIZE, GROUP, Node, membership_of

TERMS = [1, 1, 1, 2, 2]


def node_with(floor: int) -> Node:
    """Return node a of three: entries 0 to 4 of terms 1 1 1 2 2, all up to `floor` committed by an earlier process."""
    node = Node("a", ("a", "b", "c"), TERMS, HardState(2), seed=1)
    node.raft.state.commit_floor = floor
    node.step(Tick(10))
    return node


def push_of(first_index: int, last_index: int, term: int, *, prev_term: int, leader_term: int = 5) -> Push:
    span = Span(first_index, last_index, term, first_index * ENTRY_SIZE, (last_index + 1 - first_index) * ENTRY_SIZE)
    return Push(leader_term, first_index - 1, prev_term, 9, span, group_id=GROUP)


def answers(effects: list) -> list:
    return [effect.message for effect in effects if isinstance(effect, Send)]


@pytest.mark.parametrize("floor", [3, 4])
def test_a_leader_that_would_cut_below_the_floor_is_refused(floor: int) -> None:
    node = node_with(floor)
    effects = node.step(Received("b", push_of(3, 6, 3, prev_term=1)))
    assert MessageRejected("b", RejectReason.COMMITTED, "Push", 5) in effects
    assert answers(effects) == [PushRefused(5, 2, 4, -1, -1, is_contradicting=True)]
    assert not node.seen(TruncateFrom)
    assert node.terms == TERMS
    assert node.raft.state.follower.matched_index == -1


def test_above_the_floor_the_leaders_log_counts() -> None:
    node = node_with(3)
    effects = node.step(Received("b", push_of(4, 6, 3, prev_term=2)))
    assert not [effect for effect in effects if isinstance(effect, MessageRejected)]
    assert node.terms == [1, 1, 1, 2, 3, 3, 3]


@pytest.mark.parametrize(("floor", "is_contradicting"), [(3, True), (4, True), (2, False), (-1, False)])
def test_a_term_that_differs_at_the_floor_needs_no_walk_back(floor: int, is_contradicting: bool) -> None:
    node = node_with(floor)
    (answer,) = answers(node.step(Received("b", push_of(4, 4, 3, prev_term=3))))
    assert answer.is_contradicting is is_contradicting
    assert (answer.conflict_term, answer.conflict_first_index) == ((-1, -1) if is_contradicting else (2, 3))


def test_the_floor_commits_nothing_by_itself() -> None:
    node = node_with(4)
    node.step(Received("b", push_of(2, 2, 1, prev_term=1)))
    assert node.raft.commit_index == 2, "only what was compared with this leader's log"


@pytest.mark.parametrize(("floor", "is_dropped"), [(4, False), (3, False), (2, True), (-1, True)])
def test_a_reset_that_begins_within_the_floor_drops_nothing(floor: int, is_dropped: bool) -> None:
    """The leader's term of the entry before its first one may be a placeholder for an unknown one."""
    node = node_with(floor)
    reset = ResetLog(5, 4, 4 * ENTRY_SIZE, 4, membership_of("abc"), group_id=GROUP)
    effects = node.step(Received("b", reset))
    assert bool(node.seen(ResetStore)) is is_dropped
    assert answers(effects) == [PushAccepted(5, 3, 0)]
    assert node.terms == ([] if is_dropped else TERMS)


def test_a_reset_that_begins_after_the_floor_replaces_the_log() -> None:
    """By the leader, all entries before its start are committed: it is beyond the floor, as after a long absence."""
    node = node_with(3)
    node.step(Received("b", ResetLog(5, 9, 9 * ENTRY_SIZE, 4, membership_of("abc"), group_id=GROUP)))
    assert node.begin_index == 9
    assert node.seen(ResetStore)


@pytest.mark.parametrize("is_pre_vote", [True, False])
@pytest.mark.parametrize(("last_index", "is_granted"), [(3, True), (2, False)])
def test_no_candidate_whose_log_ends_before_the_floor_gets_a_vote(
    is_pre_vote: bool, last_index: int, is_granted: bool
) -> None:
    node = node_with(3)
    request = VoteRequest(7, is_pre_vote, last_index, 6, life=8, group_id=GROUP)
    effects = node.step(Received("b", request))
    (answer,) = answers(effects)
    assert isinstance(answer, VoteResponse)
    assert answer.is_granted is is_granted
    assert (MessageRejected("b", RejectReason.COMMITTED, "VoteRequest", 7) in effects) is not is_granted


@pytest.mark.parametrize(("last_term", "is_accused"), [(5, False), (6, True)])
def test_a_shorter_log_of_a_term_before_the_commit_was_learned_is_refused_and_not_reported(
    last_term: int, is_accused: bool
) -> None:
    """Node b may have an entry that the leader of term 5 sent to no other node, and that no majority ever had."""
    node = node_with(-1)
    node.step(Received("c", push_of(4, 4, 2, prev_term=2)))
    assert (node.raft.commit_index, node.raft.term) == (4, 5)
    effects = node.step(Received("b", VoteRequest(7, False, 3, last_term, is_transfer=True, life=8, group_id=GROUP)))
    (answer,) = answers(effects)
    assert isinstance(answer, VoteResponse)
    assert not answer.is_granted
    assert (MessageRejected("b", RejectReason.COMMITTED, "VoteRequest", 7) in effects) is is_accused


def test_a_refused_leader_reports_that_and_waits_long_before_it_retries(group) -> None:
    nodes = group({"a": [1, 1], "b": [1, 2, 2], "c": [1, 2, 2]})
    nodes["a"].raft.state.commit_floor = 1
    leader = nodes.campaign("b")
    assert MessageRejected("a", RejectReason.CONTRADICTED, "PushRefused", 3) in leader.effects
    assert (leader.raft.is_contradicting("a"), leader.raft.is_contradicting("c")) == (True, False)
    del leader.effects[:], nodes["a"].effects[:]
    nodes.tick(5_000)
    assert leader.raft.role.name == "LEADER"
    assert nodes["a"].terms == [1, 1]
    assert not [
        effect
        for effect in leader.effects
        if isinstance(effect, Send) and isinstance(effect.message, Push) and effect.peer == "a"
    ]
    nodes.tick(2_000)
    assert leader.seen(MessageRejected), "it asks again, because it may have been repaired"
    nodes["a"].raft.state.commit_floor = -1
    nodes.tick(7_000)
    assert nodes["a"].terms == leader.terms
    assert not leader.raft.is_contradicting("a")
