"""Rights of a node by its status: each row of the table of `core.state.voting_rights`, between nodes (ADR 7, 18)."""

from __future__ import annotations

import pytest

from dledger.core.events import Propose, Tick
from dledger.core.state.voting_rights import RIGHTS, VotingStatus, voting_status_of
from dledger.types import HardState, Role
from tests.unit.dledger.core.conftest import Node

ABC, BCD = ("a", "b", "c"), ("b", "c", "d")
VOTERS = {
    VotingStatus.FOUNDING: ABC,
    VotingStatus.COUNTED: ABC,
    VotingStatus.NOT_COUNTED: ABC,
    VotingStatus.NON_VOTER: BCD,
}
HARD_STATES = {
    VotingStatus.FOUNDING: HardState(is_founding=True),
    VotingStatus.COUNTED: HardState(),
    VotingStatus.NOT_COUNTED: HardState(incarnation=5),
    VotingStatus.NON_VOTER: HardState(),
}


def group_around(status, group, terms):
    """Return a group in which a has `status`; b and c are counted voters with a log of `terms`."""
    cluster = group({"a": [], "b": terms, "c": terms})
    for seed, node_id in enumerate("abc"):
        hard_state = HARD_STATES[status] if node_id == "a" else HardState(max(terms, default=0))
        cluster.nodes[node_id] = Node(node_id, VOTERS[status], [] if node_id == "a" else terms, hard_state, seed)
    assert voting_status_of(cluster["a"].raft.state) is status
    return cluster


@pytest.mark.parametrize("status", VotingStatus)
def test_a_node_starts_an_election_if_its_status_allows_it(status, group):
    node = group_around(status, group, [])["a"]

    node.step(Tick(2_000))

    assert RIGHTS[status].campaigns == (node.raft.role is Role.CANDIDATE)


@pytest.mark.parametrize("status", VotingStatus)
def test_a_vote_makes_a_majority_if_the_status_of_its_voter_allows_it(status, group):
    cluster = group_around(status, group, [1, 1])
    cluster.isolate("c")

    cluster.campaign("b")

    assert RIGHTS[status].elects == (cluster["b"].raft.role is Role.LEADER)


@pytest.mark.parametrize("status", VotingStatus)
def test_a_vote_helps_to_found_a_group_if_the_status_of_its_voter_allows_it(status, group):
    cluster = group_around(status, group, [])
    for seed, node_id in enumerate("bc"):
        cluster.nodes[node_id] = Node(node_id, VOTERS[status], [], HardState(is_founding=True), seed)

    cluster.campaign("b")

    assert RIGHTS[status].founds == (cluster["b"].raft.role is Role.LEADER)


def test_a_node_with_a_past_and_nothing_in_its_log_founds_the_group_with_those_without_one(group):
    cluster = group_around(VotingStatus.COUNTED, group, [])
    for seed, node_id in enumerate("bc"):
        cluster.nodes[node_id] = Node(node_id, ABC, [], HardState(is_founding=True), seed)

    assert cluster.campaign("a").raft.role is Role.LEADER


@pytest.mark.parametrize("status", VotingStatus)
def test_an_acknowledgement_counts_if_the_status_of_its_sender_allows_it(status, group):
    cluster = group_around(status, group, [1, 1])
    leader = cluster.campaign("b", only=lambda sender, peer, _: "a" not in (sender, peer))
    assert leader.raft.role is Role.LEADER
    cluster.isolate("c")

    leader.step(Propose(1, 1))
    for _ in range(40):
        cluster.now_ms += 40
        leader.step(Tick(cluster.now_ms))
        cluster.deliver()

    assert RIGHTS[status].commits == (leader.raft.commit_index == leader.raft.last_index)
