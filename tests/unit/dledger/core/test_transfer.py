"""Leadership transfer (dissertation §3.10; DLedger `leadershipTransfer`, `preferredLeaderIds`)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from dledger.core.events import DiskHealth, Propose, Received, Refuse, RequestEnded, Tick, TransferLeadership
from dledger.core.messages import Push, TimeoutNow
from dledger.errors import ResponseCode
from dledger.types import Role

THREE = {"a": [], "b": [], "c": []}


def ended(node):
    return [(effect.request_id, effect.code) for effect in node.seen(RequestEnded)]


def test_leadership_moves_to_a_caught_up_follower_without_waiting_for_a_timeout(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.tick(100)

    leader.step(TransferLeadership(1, "b"))
    cluster.deliver()

    assert cluster.leaders == ["b"]
    assert ended(leader) == [(1, ResponseCode.SUCCESS)]


def test_appends_are_refused_during_a_transfer_and_continue_after_it_fails(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.tick(100)
    cluster.isolate("b")

    leader.step(TransferLeadership(1, "b"))
    leader.step(Propose(5, 5))
    assert leader.seen(Refuse) == [Refuse(5, ResponseCode.LEADER_TRANSFERRING)]
    cluster.tick(leader.config.max_election_timeout_ms)
    leader.step(Propose(1, 1))
    cluster.deliver()

    assert ended(leader) == [(1, ResponseCode.TAKE_LEADERSHIP_FAILED)]
    assert leader.raft.commit_index == 1


def test_target_is_asked_to_campaign_only_when_it_has_every_entry_of_the_leader(group):
    cluster = group(THREE, config=replace(group(THREE).config, max_push_time_out_ms=300))
    leader = cluster.campaign("a")
    cluster.tick(100)
    leader.step(Propose(3, 3))
    cluster.deliver(only=lambda _, peer, message: not (peer == "b" and isinstance(message, Push)))
    leader.step(TransferLeadership(1, "b"))
    assert not any(isinstance(message, TimeoutNow) for _, message in leader.outbox)

    # The lost pushes are sent again.
    cluster.tick(leader.config.max_push_time_out_ms)

    assert cluster.leaders == ["b"]
    assert cluster["b"].raft.last_index == 4


def test_transfer_to_a_follower_that_lacks_too_much_is_refused(group):
    config = replace(group(THREE).config, max_leadership_transfer_wait_index=2)
    cluster = group(THREE, config=config)
    leader = cluster.campaign("a")
    cluster.tick(100)
    leader.step(Propose(3, 3))
    cluster.deliver(only=lambda _, peer, message: not (peer == "b" and isinstance(message, Push)))

    leader.step(TransferLeadership(1, "b"))

    assert ended(leader) == [(1, ResponseCode.FALL_BEHIND_TOO_MUCH)]


def test_transfer_to_a_dead_node_or_a_non_member_or_from_a_follower_is_refused(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.isolate("b")
    cluster.tick(600)

    leader.step(TransferLeadership(1, "b"))
    leader.step(TransferLeadership(2, "x"))
    cluster["c"].step(TransferLeadership(3, "c"))
    leader.step(TransferLeadership(4, "a"))

    assert ended(leader) == [
        (1, ResponseCode.TAKE_LEADERSHIP_FAILED),
        (2, ResponseCode.UNKNOWN_MEMBER),
        (4, ResponseCode.SUCCESS),
    ]
    assert ended(cluster["c"]) == [(3, ResponseCode.NOT_LEADER)]


def test_refused_transfer_names_the_one_cause(group):
    def cause(prepare):
        cluster = group(THREE)
        leader = cluster.campaign("a")
        cluster.tick(100)
        prepare(cluster, leader)
        leader.step(TransferLeadership(1, "b"))
        cluster.tick(leader.config.max_election_timeout_ms)
        (refused,) = leader.seen(RequestEnded)
        assert refused.code is ResponseCode.TAKE_LEADERSHIP_FAILED
        return refused.message

    def die(cluster, _leader):
        cluster.isolate("b")
        cluster.tick(600)

    def stall(cluster, _leader):
        cluster["b"].step(DiskHealth(is_stalled=True))
        cluster.tick(100)

    def lag(cluster, leader):
        leader.step(Propose(3, 3))
        cluster.isolate("b")

    assert "b has not answered for 500 ms or longer" == cause(die)
    assert "b reports that its disk accepts no appends" == cause(stall)
    silent = "b stopped answering; it did not become leader within 1000 ms"
    assert silent == cause(lag)
    assert silent == cause(lambda cluster, _: cluster.isolate("b"))


def test_only_the_leader_of_the_term_can_ask_a_follower_to_campaign(group):
    cluster = group(THREE)
    cluster.campaign("a")
    term = cluster["b"].raft.term

    cluster["b"].step(Received("c", TimeoutNow(term)))
    cluster["b"].step(Received("a", TimeoutNow(term - 1)))

    assert cluster["b"].raft.role is Role.FOLLOWER


def test_preferred_leader_takes_over_when_it_is_stable_and_keeps_the_leadership(group):
    config = replace(group(THREE).config, preferred_leader_ids=("c",))
    cluster = group(THREE, config=config)
    cluster.campaign("a")

    cluster.tick(2_500)
    assert cluster.leaders == ["c"]
    term = cluster["c"].raft.term

    cluster.tick(10_000)
    assert (cluster.leaders, cluster["c"].raft.term) == (["c"], term)


def test_leadership_does_not_go_to_a_preferred_leader_that_stalls_or_lags(group):
    config = replace(group(THREE).config, preferred_leader_ids=("c",))
    cluster = group(THREE, config=config)
    cluster.campaign("a")
    cluster["c"].step(DiskHealth(is_stalled=True))

    cluster.tick(5_000)
    assert cluster.leaders == ["a"]

    cluster["c"].step(DiskHealth(is_stalled=False))
    cluster["c"].is_disk_slow = True
    cluster["a"].step(Propose(1, 1))
    cluster.tick(5_000)
    assert cluster.leaders == ["a"]


def test_a_failed_automatic_transfer_is_retried_after_growing_pauses(group):
    config = replace(group(THREE).config, preferred_leader_ids=("c",), preferred_leader_interval_ms=100)
    cluster = group(THREE, config=config)
    leader = cluster.campaign("a")
    cluster.tick(60)
    began = []
    was_transferring = False
    for _ in range(1_000):
        cluster.now_ms += 10
        for node in cluster.nodes.values():
            node.step(Tick(cluster.now_ms))
        cluster.deliver(only=lambda _, __, message: not isinstance(message, TimeoutNow))
        is_transferring = leader.raft.state.transfer is not None
        if is_transferring and not was_transferring:
            began.append(cluster.now_ms)
        was_transferring = is_transferring

    pauses = [later - earlier for earlier, later in pairwise(began)]
    assert len(pauses) >= 3
    assert pauses == sorted(pauses)
    assert pauses[-1] > pauses[0]


def test_leader_with_a_stalled_disk_transfers_and_is_not_elected_until_it_recovers(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.tick(100)

    leader.step(DiskHealth(is_stalled=True))
    cluster.deliver()
    assert len(cluster.leaders) == 1
    assert cluster.leaders != ["a"]

    cluster.isolate(cluster.leaders[0])
    cluster.tick(5_000)
    assert leader.raft.role is not Role.LEADER


def test_node_with_a_stalled_disk_lets_others_campaign_first(group):
    cluster = group(THREE)
    cluster.campaign("b")
    cluster["a"].step(DiskHealth(is_stalled=True))
    cluster.isolate("b")

    cluster.campaign("a")

    assert cluster["a"].raft.role is Role.FOLLOWER


def test_nodes_whose_disks_all_stalled_briefly_elect_a_leader_at_once(group):
    cluster = group(THREE)
    cluster.campaign("a")
    cluster.tick(100)
    for node in cluster.nodes.values():
        node.step(DiskHealth(is_stalled=True, is_stalling=True))
    cluster.deliver()
    cluster.tick(20_000)
    assert cluster.leaders == [], "while they stall no node campaigns, however long"

    for node in cluster.nodes.values():
        node.step(DiskHealth(is_stalled=True, is_stalling=False))
    config = cluster.config
    cluster.tick(config.max_election_timeout_ms)
    assert cluster.leaders == [], "nodes with a healthy disk campaign first"
    cluster.tick(6 * config.max_election_timeout_ms)
    (leader,) = cluster.leaders

    cluster[leader].step(DiskHealth(is_stalled=True, is_stalling=True))
    assert cluster[leader].raft.role is not Role.LEADER, "it leads until its disk stalls again"


# --------------------------------------------------------------------------------------------------------- full disks


def test_leader_with_a_full_disk_transfers_to_the_most_advanced_voter_with_space(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster["b"].step(DiskHealth(is_stalled=False, is_full=True))
    cluster.tick(100)

    leader.step(DiskHealth(is_stalled=False, is_full=True))
    cluster.deliver()

    assert cluster.leaders == ["c"]
    assert leader.raft.role is Role.FOLLOWER
    assert leader.raft.is_disk_full


def test_leader_stays_and_accepts_appends_that_fit_while_all_voters_are_full(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    for node in ("b", "c"):
        cluster[node].step(DiskHealth(is_stalled=False, is_full=True))
    cluster.tick(100)
    leader.step(DiskHealth(is_stalled=False, is_full=True))

    cluster.tick(5_000)

    assert cluster.leaders == ["a"]
    assert leader.raft.term == 1
    leader.step(Propose(1, 1))
    cluster.deliver()
    assert leader.seen(Refuse) == []
    assert leader.raft.commit_index == 1


def test_leader_with_a_full_disk_transfers_as_soon_as_a_voter_has_space_again(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    for node in ("b", "c"):
        cluster[node].step(DiskHealth(is_stalled=False, is_full=True))
    cluster.tick(100)
    leader.step(DiskHealth(is_stalled=False, is_full=True))
    cluster.tick(2_000)
    assert cluster.leaders == ["a"]

    cluster["c"].step(DiskHealth(is_stalled=False))
    cluster.tick(leader.config.preferred_leader_interval_ms + 200)

    assert cluster.leaders == ["c"]


def test_leadership_is_never_transferred_to_a_node_with_a_full_disk(group):
    cluster = group(THREE, config=replace(group(THREE).config, preferred_leader_ids=("a",)))
    leader = cluster.campaign("a")
    cluster.tick(100)
    leader.step(DiskHealth(is_stalled=False, is_full=True))
    cluster.deliver()
    (other,) = cluster.leaders
    assert other != "a"

    cluster.tick(5_000)
    cluster[other].step(TransferLeadership(1, "a"))
    assert ended(cluster[other]) == [(1, ResponseCode.TAKE_LEADERSHIP_FAILED)]
    assert cluster.leaders == [other]

    leader.step(DiskHealth(is_stalled=False))
    cluster.tick(3 * leader.config.preferred_leader_interval_ms)
    assert cluster.leaders == ["a"]


def test_only_voter_stays_leader_with_a_full_disk(group):
    cluster = group({"a": []})
    leader = cluster.campaign("a")

    leader.step(DiskHealth(is_stalled=False, is_full=True))
    cluster.tick(3_000)

    assert cluster.leaders == ["a"]
