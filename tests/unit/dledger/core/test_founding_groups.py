"""The votes that found a group agree on its id, before an entry with the id is committed (ADR 19)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from dledger.core.events import MessageRejected, Received, RejectReason, Tick
from dledger.core.messages import Heartbeat, VoteRequest, VoteResponse
from dledger.core.state.voting_rights import accepted_group_id
from dledger.types import NO_GROUP, NO_INDEX, HardState, MembershipEntry
from tests.unit.dledger.core.conftest import Group, Node, membership_of

ABC = ("a", "b", "c")
SETTINGS = MembershipEntry(NO_INDEX, replace(membership_of(ABC).membership, group_id=NO_GROUP))
FOUNDING = HardState(is_founding=True)
OTHER_GROUP = 99


def founding_node(node_id, seed, hard_state=FOUNDING, terms=()):
    return Node(node_id, (), list(terms), hard_state, seed, memberships=[SETTINGS])


def founding_group():
    cluster = Group({node_id: [] for node_id in ABC})
    cluster.nodes = {node_id: founding_node(node_id, seed) for seed, node_id in enumerate(ABC)}
    return cluster


def is_vote(_sender, _peer, message):
    return isinstance(message, (VoteRequest, VoteResponse))


def test_founding_member_rejects_another_group_before_anything_is_committed():
    """Found by experiment: a foreign directory won the vote of a node that knew the leader but had no entry."""
    cluster = founding_group()
    leader = cluster.campaign("a", only=lambda *link: is_vote(*link) or isinstance(link[2], Heartbeat))
    drawn = leader.raft.state.group_id
    # After a restart it has the id from its disk.
    for node in (cluster["b"], founding_node("b", 9, cluster["b"].saved)):
        node.raft.state.quiet_until_ms = 0
        request = VoteRequest(9, is_pre_vote=False, last_index=9, last_term=9, is_transfer=True, group_id=OTHER_GROUP)
        foreign = [request, Heartbeat(9, 5, 1, group_id=OTHER_GROUP)]

        effects = [effect for message in foreign for effect in node.step(Received("c", message))]

        assert effects == [MessageRejected("c", RejectReason.GROUP, type(message).__name__, 9) for message in foreign]
        assert (node.saved.founding_group_id, node.raft.state.committed_group_id) == (drawn, NO_GROUP)
        assert (node.raft.last_index, node.raft.term) == (NO_INDEX, 1)


def test_next_leader_keeps_the_id_of_a_founding_whose_entry_was_lost():
    cluster = founding_group()
    drawn = cluster.campaign("a", only=is_vote).raft.state.group_id
    # A power failure loses its log, but not its hard state.
    cluster.nodes["a"] = founding_node("a", 9, cluster["a"].saved)

    cluster.campaign("a")
    cluster.tick(100)

    assert [node.raft.state.committed_group_id for node in cluster.nodes.values()] == [drawn] * 3


def test_founding_node_agrees_to_the_group_id_of_its_last_vote():
    node = founding_node("b", 1)

    for term, candidate, group_id in ((1, "a", 5), (2, "c", 6)):
        node.step(Received(candidate, VoteRequest(term, False, NO_INDEX, -1, group_id=group_id)))
        assert (node.saved.voted_for, node.saved.founding_group_id) == (candidate, group_id)
    node.raft.state.role_state.deadline_ms = 0
    node.step(Tick(1))

    assert {message.group_id for _, message in node.outbox if isinstance(message, VoteRequest)} == {6}


def test_wiped_node_that_voted_for_another_group_follows_the_leader_of_its_own():
    """Its vote for the founding of an unknown candidate makes it no member there: no other node voted for that."""
    node = founding_node("b", 1)
    node.step(Received("c", VoteRequest(4, False, 9, 4, group_id=OTHER_GROUP)))

    node.step(Received("a", Heartbeat(5, NO_INDEX, 1, group_id=5)))

    assert (node.raft.leader_id, node.saved.founding_group_id) == ("a", NO_GROUP)
    assert node.saved.incarnation != 0


class _Foundings:
    """A founding group whose messages arrive in any order or are lost, and whose nodes crash."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.nodes = {node_id: founding_node(node_id, self.random.random()) for node_id in ABC}
        self.in_flight = []
        self.now_ms = 0

    def do_something(self):
        kind = self.random.random()
        if kind < 0.14:
            self.now_ms += self.random.randrange(1, 400)
            for node in self.nodes.values():
                if self.random.random() < 0.7:
                    node.step(Tick(self.now_ms))
        elif kind < 0.17:
            node = self.random.choice(list(self.nodes.values()))
            # Data that is not durable is lost; the hard state is always durable.
            held = node.terms[: node.raft.state.persisted_index + 1]
            known = [entry for entry in node.memberships.values() if entry.index < len(held)]
            again = founding_node(node.id, self.random.random(), node.saved, held)
            if known:
                again = Node(node.id, (), held, node.saved, self.random.random(), memberships=[SETTINGS, known[-1]])
            again.raft.state.now_ms = self.now_ms
            self.nodes[node.id] = again
        elif kind < 0.22:
            self.random.choice(list(self.nodes.values())).sync()
        elif self.in_flight:
            sender, peer, message = self.in_flight.pop(self.random.randrange(len(self.in_flight)))
            if self.random.random() < 0.9:
                self.nodes[peer].step(Received(sender, message))
        for node in self.nodes.values():
            self.in_flight += [(node.id, peer, message) for peer, message in node.outbox]
            node.outbox.clear()

    @property
    def accepted_ids(self):
        return {accepted_group_id(node.raft.state) for node in self.nodes.values()} - {NO_GROUP}


def test_all_members_of_a_repeatedly_interrupted_founding_agree_on_one_group_id():
    foundings = members = 0
    for seed in range(150):
        group = _Foundings(seed)
        for _ in range(120):
            group.do_something()
            assert len(group.accepted_ids) <= 1, (seed, group.accepted_ids)
        foundings += bool(group.accepted_ids)
        members += sum(not node.raft.state.is_founding for node in group.nodes.values())

    # The test is meaningful only if many groups are founded, and many of their nodes learn of it.
    assert foundings > 75, foundings
    assert members > 150, members


@pytest.mark.parametrize("is_saved", [True, False])
def test_directory_of_an_older_version_agrees_to_no_group(is_saved):
    node = founding_node("b", 1, HardState(1, "a") if is_saved else HardState())

    assert accepted_group_id(node.raft.state) == NO_GROUP
