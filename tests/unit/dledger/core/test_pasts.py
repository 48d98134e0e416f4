"""What a node may do, given its past: each row of the table of `core.pasts`, tried between nodes (ADR 7, ADR 18)."""

from __future__ import annotations

import pytest

from dledger.core.events import Propose, Tick
from dledger.core.state.pasts import MAY, Past, past_of
from dledger.types import HardState, Role
from tests.unit.dledger.core.conftest import Node

ABC, BCD = ("a", "b", "c"), ("b", "c", "d")
VOTERS = {Past.FOUNDING: ABC, Past.NAMED: ABC, Past.UNNAMED: ABC, Past.OUTSIDE: BCD}
HARD_STATES = {
    Past.FOUNDING: HardState(is_founding=True),
    Past.NAMED: HardState(),
    Past.UNNAMED: HardState(incarnation=5),
    Past.OUTSIDE: HardState(),
}


def group_around(past, group, terms):
    """Return a group in which a has `past`; b and c are voters with a past and a log of `terms`."""
    cluster = group({"a": [], "b": terms, "c": terms})
    for seed, node_id in enumerate("abc"):
        hard_state = HARD_STATES[past] if node_id == "a" else HardState(max(terms, default=0))
        cluster.nodes[node_id] = Node(node_id, VOTERS[past], [] if node_id == "a" else terms, hard_state, seed)
    assert past_of(cluster["a"].raft.state) is past
    return cluster


@pytest.mark.parametrize("past", Past)
def test_a_node_stands_for_election_if_its_past_allows_it(past, group):
    node = group_around(past, group, [])["a"]

    node.step(Tick(2_000))

    assert MAY[past].campaigns == (node.raft.role is Role.CANDIDATE)


@pytest.mark.parametrize("past", Past)
def test_a_vote_makes_a_majority_if_the_past_of_its_voter_allows_it(past, group):
    cluster = group_around(past, group, [1, 1])
    cluster.isolate("c")

    cluster.campaign("b")

    assert MAY[past].elects == (cluster["b"].raft.role is Role.LEADER)


@pytest.mark.parametrize("past", Past)
def test_a_vote_helps_to_found_a_group_if_the_past_of_its_voter_allows_it(past, group):
    cluster = group_around(past, group, [])
    for seed, node_id in enumerate("bc"):
        cluster.nodes[node_id] = Node(node_id, VOTERS[past], [], HardState(is_founding=True), seed)

    cluster.campaign("b")

    assert MAY[past].founds == (cluster["b"].raft.role is Role.LEADER)


def test_a_node_with_a_past_and_nothing_in_its_log_founds_the_group_with_those_without_one(group):
    cluster = group_around(Past.NAMED, group, [])
    for seed, node_id in enumerate("bc"):
        cluster.nodes[node_id] = Node(node_id, ABC, [], HardState(is_founding=True), seed)

    assert cluster.campaign("a").raft.role is Role.LEADER


@pytest.mark.parametrize("past", Past)
def test_an_acknowledgement_counts_if_the_past_of_its_sender_allows_it(past, group):
    cluster = group_around(past, group, [1, 1])
    leader = cluster.campaign("b", only=lambda sender, peer, _: "a" not in (sender, peer))
    assert leader.raft.role is Role.LEADER
    cluster.isolate("c")

    leader.step(Propose(1, 1))
    for _ in range(40):
        cluster.now_ms += 40
        leader.step(Tick(cluster.now_ms))
        cluster.deliver()

    assert MAY[past].commits == (leader.raft.commit_index == leader.raft.last_index)
