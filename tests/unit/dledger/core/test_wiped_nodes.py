"""New groups, and members whose disk was wiped (ADR 7)."""

from __future__ import annotations

from dledger.core.events import Propose, Received, Refuse, Tick
from dledger.core.messages import Heartbeat, HeartbeatResponse, PushAccepted, VoteRequest, VoteResponse
from dledger.errors import ResponseCode
from dledger.types import HardState, Member, MembershipEntry, Role
from tests.unit.dledger.core.conftest import Node, membership_of

THREE = {"a": [], "b": [], "c": []}


def founding_three(group):
    """Return a group that founds itself: three nodes with empty directories."""
    cluster = group({})
    for node_id in THREE:
        cluster.begin(node_id, tuple(THREE))
    cluster.tick(3_000)
    return cluster


def test_nodes_without_a_past_found_a_group_and_are_full_members(group):
    cluster = founding_three(group)

    assert len(cluster.leaders) == 1
    for node in cluster.nodes.values():
        assert not node.saved.is_founding
        assert node.saved.incarnation == 0


def test_a_group_begins_once_all_its_voters_are_there(group):
    cluster = group({})
    for node_id in ("a", "b"):
        cluster.begin(node_id, tuple(THREE))
    cluster.tick(5_000)
    assert cluster.leaders == []
    assert {node.raft.term for node in cluster.nodes.values()} == {0}

    cluster.begin("c", tuple(THREE))
    cluster.tick(3_000)

    assert len(cluster.leaders) == 1
    assert all(entry.index == -1 for node in cluster.nodes.values() for entry in node.raft.memberships)


def test_a_group_is_founded_although_its_first_leader_dies_before_its_first_message(group):
    cluster = group({})
    for node_id in THREE:
        cluster.begin(node_id, tuple(THREE))
    first = cluster.campaign("a", only=lambda _, __, message: isinstance(message, (VoteRequest, VoteResponse)))
    assert first.raft.role is Role.LEADER
    assert (first.saved.is_founding, cluster["b"].saved.is_founding) == (False, True)

    # It restarts with its hard state, and without its no-op, which was not durable.
    cluster.nodes["a"] = Node("a", tuple(THREE), [], first.saved, 5)
    cluster["a"].raft.state.quiet_until_ms = 0
    cluster["a"].step(Tick(cluster.now_ms))
    cluster.tick(5_000)

    assert len(cluster.leaders) == 1
    assert cluster[cluster.leaders[0]].raft.commit_index >= 0


def test_appends_wait_until_a_majority_of_a_new_group_has_a_past(group):
    cluster = group({})
    for node_id in THREE:
        cluster.begin(node_id, tuple(THREE)).is_disk_slow = True
    leader = cluster.campaign("a")
    leader.step(Propose(7, 7))
    assert leader.seen(Refuse) == [Refuse(7, ResponseCode.LEADER_NOT_READY)]

    for node in cluster.nodes.values():
        node.is_disk_slow = False
    cluster.tick(100)
    leader.step(Propose(1, 1))
    cluster.tick(100)
    assert leader.raft.commit_index == 1


def test_a_wiped_majority_does_not_found_a_new_group_without_the_node_that_holds_the_log(group):
    cluster = group(THREE)
    cluster.campaign("a").step(Propose(4, 4))
    cluster.tick(300)
    for node_id in "ab":
        cluster.begin(node_id, tuple(THREE))

    cluster.tick(10_000)

    assert cluster.leaders == []
    assert cluster["c"].raft.last_index == 4


def test_the_vote_of_a_wiped_node_does_not_make_a_majority(group):
    voter = Node("c", tuple(THREE), [], HardState(is_founding=True), 1)
    voter.step(Received("b", VoteRequest(term=9, is_pre_vote=False, last_index=9, last_term=8)))
    granted = voter.outbox.pop()[1]
    assert granted == VoteResponse(term=9, is_pre_vote=False, is_granted=True, is_founding=True)

    candidate = group(THREE)["b"]
    candidate.step(Tick(1_000))
    life = candidate.raft.state.life
    candidate.step(Received("c", VoteResponse(term=1, is_pre_vote=True, is_granted=True, is_founding=True, life=life)))
    assert candidate.raft.term == 0


def test_a_wiped_node_counts_again_only_when_a_majority_without_it_has_readmitted_it(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    leader.step(Propose(4, 4))
    cluster.tick(200)
    cluster.isolate("b")
    cluster.begin("c", tuple(THREE))

    cluster.tick(500)
    leader.step(Propose(1, 1))
    cluster.tick(300)
    assert cluster["c"].saved.incarnation != 0
    assert cluster["c"].raft.last_index == leader.raft.last_index
    assert leader.raft.commit_index == 4

    cluster.heal()
    cluster.tick(500)
    assert leader.raft.commit_index == leader.raft.last_index
    assert leader.raft.membership.get("c").incarnation == cluster["c"].saved.incarnation

    cluster.isolate("b")
    leader.step(Propose(1, 1))
    cluster.tick(300)
    assert leader.raft.commit_index == leader.raft.last_index


def test_a_wiped_node_does_not_help_a_lagging_one_become_leader(group):
    """DLedger and most other systems would lose acknowledged entries here."""
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.tick(200)
    cluster.isolate("b")
    leader.step(Propose(4, 4))
    cluster.tick(200)
    assert leader.raft.commit_index == 4

    cluster.begin("c", tuple(THREE))
    cluster.heal()
    cluster.isolate("a")
    cluster.tick(10_000)

    assert [node_id for node_id in cluster.leaders if node_id != "a"] == []


def test_acknowledgements_of_an_earlier_incarnation_are_forgotten(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.tick(200)
    assert leader.raft.match_index_of("c") == 0
    seen_round = leader.raft.state.leader.round
    cluster.isolate("c")
    cluster.tick(200)

    leader.step(Received("c", HeartbeatResponse(leader.raft.term, seen_round + 1, incarnation=6)))

    assert leader.raft.match_index_of("c") == -1


def test_late_acknowledgements_of_earlier_incarnations_do_not_count(group):
    cluster = group({"a": [], "b": [], "c": []})
    leader = cluster.campaign("a")
    cluster.tick(200)
    cluster.begin("c", tuple(THREE))
    cluster.tick(1_500)
    counted = cluster["c"].saved.incarnation
    assert leader.raft.membership.get("c").incarnation == counted != 0
    cluster.isolate("b")
    cluster.isolate("c")
    term, last_index = leader.raft.term, leader.raft.last_index
    rounds = leader.raft.state.leader

    # Its disk is lost twice more; the answers of its incarnations arrive in any order.
    late = rounds.round
    for incarnation in (5, 6):
        cluster.tick(100)
        leader.step(Received("c", HeartbeatResponse(term, rounds.round, incarnation)))
    for earlier in (counted, 5, 0):
        leader.step(Received("c", PushAccepted(term, last_index, earlier)))
        leader.step(Received("c", HeartbeatResponse(term, late, earlier)))
        assert leader.raft.match_index_of("c") == -1
        assert not leader.raft.is_counted("c")


def test_a_late_answer_of_an_incarnation_that_never_answered_before_costs_a_readmitted_node_nothing(group):
    """The node lost its disk twice; a message of the incarnation in between arrives after the readmission."""
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.tick(200)
    late_round = leader.raft.state.leader.round
    cluster.begin("c", tuple(THREE))
    cluster.tick(1_500)
    counted = cluster["c"].saved.incarnation
    members = leader.raft.membership
    assert leader.raft.is_counted("c")

    for late in (
        PushAccepted(leader.raft.term, leader.raft.last_index, incarnation=5),
        HeartbeatResponse(leader.raft.term, late_round, incarnation=5),
        HeartbeatResponse(leader.raft.term, 0, incarnation=5),
    ):
        leader.step(Received("c", late))
        assert leader.raft.match_index_of("c") == leader.raft.last_index
    cluster.tick(500)
    cluster.isolate("b")
    leader.step(Propose(1, 1))
    cluster.tick(3_000)

    assert cluster["c"].saved.incarnation == counted
    assert (leader.raft.membership, leader.raft.role) == (members, Role.LEADER)
    assert leader.raft.commit_index == leader.raft.last_index


def test_a_node_is_counted_although_the_first_answer_in_the_term_was_a_late_one_of_its_lost_disk(group):
    cluster = group(THREE)
    cluster.begin("c", tuple(THREE))
    cluster.isolate("c")
    leader = cluster.campaign("a")
    leader.step(Propose(2, 2))
    cluster.tick(100)
    leader.step(Received("c", PushAccepted(leader.raft.term, leader.raft.last_index, incarnation=0)))
    assert leader.raft.is_counted("c")

    cluster.heal()
    cluster.tick(1_500)

    assert leader.raft.membership.get("c").incarnation == cluster["c"].saved.incarnation != 0
    assert leader.raft.is_counted("c")
    assert leader.raft.match_index_of("c") == leader.raft.last_index


def test_a_wiped_node_that_was_readmitted_and_wiped_again_must_be_readmitted_again(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.tick(200)
    seen = set()
    for _ in range(3):
        cluster.begin("c", tuple(THREE))
        cluster.tick(1_500)
        assert leader.raft.membership.get("c").incarnation == cluster["c"].saved.incarnation
        seen.add(cluster["c"].saved.incarnation)
    assert len(seen) == 3
    assert leader.raft.commit_index == leader.raft.last_index


def test_a_readmitted_node_knows_after_a_restart_that_it_may_campaign(group):
    saved = HardState(5, None, incarnation=77)
    readmitted = membership_of(THREE).membership.with_member(Member("c", incarnation=77))

    for known, role in ((membership_of(THREE), Role.FOLLOWER), (MembershipEntry(40, readmitted), Role.CANDIDATE)):
        node = Node("c", tuple(THREE), [1], saved, 3, memberships=[known])
        node.step(Tick(2_000))
        assert node.raft.role is role


def test_a_node_without_state_takes_a_new_incarnation_before_it_answers_a_heartbeat(group):
    node = Node("c", tuple(THREE), [], HardState(is_founding=True), 1)

    effects = node.step(Received("a", Heartbeat(term=3, commit_index=-1, round=1)))

    assert effects[0].incarnation == node.saved.incarnation != 0
    assert node.outbox.pop()[1].incarnation == node.saved.incarnation


def test_a_node_with_a_new_incarnation_gives_no_vote_to_a_candidate_that_names_the_old_one(group):
    voter = Node("c", tuple(THREE), [], HardState(3, None, incarnation=77), 1)
    voter.raft.state.quiet_until_ms = 0

    for known, is_granted in ((0, False), (77, True)):
        request = VoteRequest(term=9, is_pre_vote=True, last_index=9, last_term=8, voter_incarnation=known)
        voter.step(Received("b", request))
        assert voter.outbox.pop()[1].is_granted is is_granted


def test_a_late_message_of_the_founding_makes_no_wiped_node_a_founder(group):
    """Found by simulation (seed 80): a replayed heartbeat made it a full member that had forgotten its votes."""
    late = Heartbeat(term=1, commit_index=-1, round=1, is_founding=True)
    founder = Node("c", tuple(THREE), [], HardState(1, "a", is_founding=True), 1)
    wiped = Node("c", tuple(THREE), [], HardState(is_founding=True), 1)

    founder.step(Received("a", late))
    wiped.step(Received("a", late))

    assert founder.saved == HardState(1, "a")
    assert wiped.saved.incarnation != 0
    assert not wiped.saved.is_founding


def test_acknowledgements_are_forgotten_when_the_incarnation_changes(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    leader.step(Propose(2, 2))
    cluster.deliver()
    progress = leader.raft.state.leader.progress["c"]
    assert progress.match_index == 2
    cluster.isolate("c")
    cluster.tick(100)

    leader.step(Received("c", HeartbeatResponse(1, leader.raft.state.leader.round, incarnation=77)))
    assert progress.match_index == -1

    # A late answer of the incarnation before the wipe does not undo that.
    leader.step(Received("c", PushAccepted(1, match_index=2)))
    assert (progress.match_index, progress.incarnation) == (-1, 77)
