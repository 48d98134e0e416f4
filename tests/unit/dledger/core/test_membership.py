"""Membership changes, one member at a time (dissertation §4)."""

from __future__ import annotations

from dledger.core.events import (
    AppendMembership,
    ChangeMembership,
    MembershipAction,
    Propose,
    Received,
    RequestEnded,
    SaveMemberships,
)
from dledger.core.messages import HeartbeatResponse, Push, PushAccepted, ReadIndexRequest, VoteResponse
from dledger.errors import ResponseCode
from dledger.types import Role

THREE = {"a": [], "b": [], "c": []}
ADD, PROMOTE, REMOVE = MembershipAction.ADD, MembershipAction.PROMOTE, MembershipAction.REMOVE


def ended(node):
    return [(effect.request_id, effect.code) for effect in node.seen(RequestEnded)]


def change(cluster, node, action, member_id, request_id=1):
    node.step(ChangeMembership(request_id, action, member_id, "host:1"))
    cluster.deliver()


def four(group):
    """Return a group of three that a fourth node has joined as a voter, and its leader."""
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.begin("d", ("a", "b", "c"))
    change(cluster, leader, ADD, "d")
    cluster.tick(300)
    change(cluster, leader, PROMOTE, "d", 2)
    assert ended(leader) == [(1, ResponseCode.SUCCESS), (2, ResponseCode.SUCCESS)]
    return cluster, leader


def test_a_learner_gets_the_log_and_neither_votes_nor_counts(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.begin("d", ("a", "b", "c"))
    change(cluster, leader, ADD, "d")
    leader.step(Propose(3, 3))
    cluster.tick(300)
    assert cluster["d"].raft.commit_index == leader.raft.commit_index == 4

    cluster.isolate("b")
    cluster.isolate("c")
    leader.step(Propose(1, 1))
    cluster.tick(200)
    assert leader.raft.commit_index == 4

    cluster.tick(5_000)
    assert cluster["d"].raft.role is Role.FOLLOWER


def test_a_promoted_learner_votes_and_counts(group):
    cluster, leader = four(group)
    cluster.isolate("c")

    leader.step(Propose(1, 1))
    cluster.tick(200)
    assert leader.raft.commit_index == leader.raft.last_index

    cluster.isolate("a")
    cluster.cut -= {("c", other) for other in "bd"} | {(other, "c") for other in "bd"}
    cluster.tick(5_000)
    assert [node_id for node_id in cluster.leaders if node_id != "a"]


def test_membership_is_in_force_and_saved_before_its_entry_is_written(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")

    effects = leader.step(ChangeMembership(1, ADD, "d", "host:1"))

    kinds = [type(effect) for effect in effects]
    assert kinds.index(SaveMemberships) < kinds.index(AppendMembership)
    assert leader.raft.membership.get("d") is not None
    assert leader.raft.membership.voters == ("a", "b", "c")


def test_no_change_before_an_entry_of_the_leaders_own_term_is_committed(group):
    """The correction of 2015: two leaders could commit memberships that have no voter in common."""
    cluster = group(THREE)
    for node in cluster.nodes.values():
        node.is_disk_slow = True
    leader = cluster.campaign("a")

    leader.step(ChangeMembership(1, REMOVE, "c"))

    assert ended(leader) == [(1, ResponseCode.LEADER_NOT_READY)]


def test_one_change_at_a_time(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")

    leader.step(ChangeMembership(1, ADD, "d", "host:1"))
    leader.step(ChangeMembership(2, ADD, "e", "host:2"))
    cluster.deliver()

    assert ended(leader) == [(2, ResponseCode.REPEATED_REQUEST), (1, ResponseCode.SUCCESS)]


def test_repeated_changes_succeed_and_invalid_ones_are_refused(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.tick(100)

    change(cluster, leader, PROMOTE, "b", 1)
    change(cluster, leader, PROMOTE, "x", 2)
    change(cluster, leader, REMOVE, "x", 3)
    change(cluster, cluster["b"], ADD, "d", 4)
    change(cluster, leader, ADD, "d", 5)
    change(cluster, leader, ADD, "d", 6)
    change(cluster, leader, PROMOTE, "d", 7)

    assert ended(leader) == [
        (1, ResponseCode.SUCCESS),
        (2, ResponseCode.UNKNOWN_MEMBER),
        (3, ResponseCode.UNKNOWN_MEMBER),
        (5, ResponseCode.SUCCESS),
        (6, ResponseCode.SUCCESS),
        (7, ResponseCode.NETWORK_ERROR),
    ]
    assert ended(cluster["b"]) == [(4, ResponseCode.NOT_LEADER)]


def test_removal_that_would_leave_no_live_majority_is_refused(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.isolate("c")
    cluster.tick(1_500)

    change(cluster, leader, REMOVE, "b", 1)
    change(cluster, leader, REMOVE, "c", 2)

    assert ended(leader) == [(1, ResponseCode.INCONSISTENT_STATE), (2, ResponseCode.SUCCESS)]


def test_a_removed_node_learns_of_its_removal_and_disturbs_no_other_node(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    change(cluster, leader, REMOVE, "c")
    cluster.tick(300)
    term = leader.raft.term
    assert cluster["c"].raft.membership.get("c") is None

    cluster.tick(10_000)

    assert (cluster.leaders, leader.raft.term) == (["a"], term)
    assert "c" not in leader.raft.state.leader.progress


def test_a_removed_node_that_does_not_know_disturbs_no_other_node_either(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.isolate("c")
    change(cluster, leader, REMOVE, "c")
    cluster.tick(10_000)
    term = leader.raft.term
    cluster.heal()

    cluster.tick(10_000)

    assert (cluster.leaders, leader.raft.term) == (["a"], term)


def test_a_leader_that_removes_itself_leads_until_that_is_committed_without_counting_itself(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.isolate("c")
    leader.step(ChangeMembership(1, REMOVE, "a"))
    cluster.deliver()
    assert (leader.raft.role, leader.raft.commit_index) == (Role.LEADER, 0)

    cluster.heal()
    cluster.tick(2_000)

    assert ended(leader) == [(1, ResponseCode.SUCCESS)]
    assert len(cluster.leaders) == 1
    assert cluster.leaders[0] in "bc"


def test_a_membership_that_is_cut_off_is_no_longer_in_force(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.tick(100)
    cluster.isolate("a")
    change(cluster, leader, REMOVE, "c")
    assert leader.raft.membership.voters == ("a", "b")

    cluster.campaign("b")
    cluster.heal()
    cluster.tick(2_000)

    assert leader.raft.membership.voters == ("a", "b", "c")
    assert leader.raft.last_index == cluster["b"].raft.last_index


def test_pushed_memberships_are_in_force_on_followers_at_once(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    leader.step(ChangeMembership(1, ADD, "d", "host:1"))

    cluster.deliver(only=lambda _, __, message: isinstance(message, Push))

    assert cluster["b"].raft.membership.get("d") is not None


def test_an_answer_of_a_non_member_raises_no_term(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")

    for message in (
        HeartbeatResponse(99, 1),
        PushAccepted(99, 1),
        VoteResponse(99, False, False),
        ReadIndexRequest(99, 1),
    ):
        assert leader.step(Received("x", message)) == []

    assert (leader.raft.role, leader.raft.term) == (Role.LEADER, 1)


def test_a_learner_that_has_acknowledged_nothing_yet_is_not_promoted(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.begin("d", ("a", "b", "c")).is_disk_slow = True
    change(cluster, leader, ADD, "d")
    cluster.tick(200)

    change(cluster, leader, PROMOTE, "d", 2)

    assert ended(leader)[-1] == (2, ResponseCode.FALL_BEHIND_TOO_MUCH)
