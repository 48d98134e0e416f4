"""Linearizable reads: only a leader that has confirmed its leadership returns a read index (dissertation §6.4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dledger.core.config import RaftConfig
from dledger.core.events import (
    PeerUnreachable,
    Propose,
    ReadIndex,
    ReadReady,
    ReadRefused,
    Received,
    Send,
    Tick,
    TransferLeadership,
)
from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    Push,
    PushAccepted,
    ReadIndexRequest,
    ReadIndexResponse,
    VoteRequest,
)
from dledger.core.reads import PEER_READS_MAX, READS_MAX, lease_ms_of
from dledger.types import NO_INDEX, Role
from tests.unit.dledger.core.conftest import Node

THREE = {"a": [], "b": [], "c": []}


def test_a_read_waits_for_a_quorum_of_the_next_heartbeat_round(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")

    leader.step(ReadIndex(1))

    assert leader.seen(ReadReady) == []
    cluster.deliver()
    assert leader.seen(ReadReady) == [ReadReady(1, 0)]


def test_a_request_for_a_read_index_deposes_no_leader(group):
    """It has no group id, and the peer port accepts it from any process that claims to be a member."""
    cluster = group(THREE)
    leader = cluster.campaign("a")
    term = leader.raft.term

    assert leader.step(Received("b", ReadIndexRequest(term + 1, 1))) == []

    assert (leader.raft.role, leader.raft.term) == (Role.LEADER, term)


def test_an_answer_to_a_request_for_a_read_index_raises_no_term(group):
    """It may come from a node of another group, started on a wrong directory with the name of the leader."""
    cluster = group(THREE)
    term = cluster.campaign("a").raft.term
    cluster.deliver()
    follower = cluster.nodes["b"]
    follower.step(ReadIndex(1))
    asked_id = follower.raft.state.last_asked_id

    follower.step(Received("a", ReadIndexResponse(term + 1, asked_id, 0)))

    assert follower.seen(ReadRefused) == [ReadRefused(1)]
    assert (follower.raft.term, follower.raft.leader_id) == (term, "a")


def refusals_of(node, peer):
    return [
        each
        for each in node.seen(Send)
        if each.peer == peer and isinstance(each.message, ReadIndexResponse) and each.message.index == NO_INDEX
    ]


def test_reads_of_one_peer_are_bounded_and_the_others_are_still_served(group):
    leader = group(THREE).campaign("a")
    term = leader.raft.term

    for read_id in range(PEER_READS_MAX + 3):
        leader.step(Received("b", ReadIndexRequest(term, read_id)))
    leader.step(Received("c", ReadIndexRequest(term, 1)))

    assert len(leader.raft.state.leader.reads) == PEER_READS_MAX + 1
    assert [each.message.read_id for each in refusals_of(leader, "b")] == [PEER_READS_MAX + n for n in range(3)]
    assert refusals_of(leader, "c") == []


def test_reads_of_all_peers_together_are_bounded(group):
    names = "abcdefg"
    leader = group({name: [] for name in names}).campaign("a")
    term = leader.raft.term

    for peer in names[1:]:
        for read_id in range(PEER_READS_MAX):
            leader.step(Received(peer, ReadIndexRequest(term, read_id)))

    assert len(leader.raft.state.leader.reads) == READS_MAX
    assert len(refusals_of(leader, "g")) == PEER_READS_MAX


def test_a_non_member_is_refused_a_read_index_at_once(group):
    leader = group(THREE).campaign("a")

    leader.step(Received("non-member", ReadIndexRequest(leader.raft.term, 7)))

    assert [each.message.read_id for each in refusals_of(leader, "non-member")] == [7]
    assert leader.raft.state.leader.reads == []


def test_many_reads_share_one_round(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    round_before = leader.raft.state.leader.round

    for read_id in range(50):
        leader.step(ReadIndex(read_id))
    cluster.deliver()

    assert [ready.read_id for ready in leader.seen(ReadReady)] == list(range(50))
    assert leader.raft.state.leader.round - round_before <= 2


def test_answers_to_an_earlier_round_do_not_confirm_a_read(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    leader.step(ReadIndex(1))
    leader.outbox.clear()
    cluster.deliver(only=lambda *_: False)

    assert leader.seen(ReadReady) == []


def test_a_new_leader_serves_no_read_before_its_no_op_commits(group):
    cluster = group({"a": [1, 1], "b": [1, 1], "c": [1, 1]})
    leader = cluster.campaign("a", only=lambda _s, _p, m: not isinstance(m, Push))
    leader.step(ReadIndex(1))
    cluster.deliver(only=lambda _s, _p, m: not isinstance(m, Push))
    assert leader.seen(ReadReady) == []

    cluster.tick(leader.config.max_push_time_out_ms + 200)

    assert leader.seen(ReadReady) == [ReadReady(1, 2)]


def test_a_partitioned_leader_serves_no_read_and_refuses_it_when_it_steps_down(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.isolate("a")
    leader.step(ReadIndex(1))
    cluster.deliver()
    assert leader.seen(ReadReady) == []

    cluster.tick(1_200)

    assert leader.seen(ReadRefused) == [ReadRefused(1)]


def test_a_follower_asks_the_leader_and_waits_for_its_own_commit_index(group):
    cluster = group(THREE, config=replace(group(THREE).config, max_push_time_out_ms=300))
    leader = cluster.campaign("a")
    follower = cluster["b"]
    cluster.tick(200)
    leader.step(Propose(3, 3))
    cluster.deliver(only=lambda sender, peer, message: "b" not in (sender, peer) or isinstance(message, PushAccepted))
    assert (leader.raft.commit_index, follower.raft.commit_index) == (3, 0)

    follower.step(ReadIndex(4))
    cluster.deliver(only=lambda _, __, message: not isinstance(message, Push))
    assert follower.seen(ReadReady) == []

    cluster.tick(500)
    assert follower.seen(ReadReady) == [ReadReady(4, 3)]


def test_reads_of_a_peer_that_was_lost_are_refused_at_once(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster["b"].step(ReadIndex(4))
    _, request = cluster["b"].outbox.popleft()
    leader.step(Received("b", request))
    leader.step(ReadIndex(1))

    assert Send("b", ReadIndexResponse(1, request.read_id, NO_INDEX)) in leader.step(PeerUnreachable("b"))

    assert [(read.peer, read.read_id) for read in leader.raft.state.leader.reads] == [(None, 1)]


def test_each_process_of_a_follower_asks_under_ids_of_its_own(group):
    cluster = group(THREE)
    cluster.campaign("a")
    lives = [cluster["b"], *(Node("b", tuple(THREE), [1], cluster["b"].saved, seed) for seed in range(20, 30))]
    for node in lives:
        node.step(Received("a", Heartbeat(term=1, commit_index=-1, round=1)))
        node.outbox.clear()
        for read_id in (1, 2):
            node.step(ReadIndex(read_id))

    asked = [message.read_id for node in lives for _, message in node.outbox]

    assert len(set(asked)) == 2 * len(lives)
    assert max(asked) < 1 << 63


def test_a_follower_that_gets_no_answer_refuses_the_read(group):
    cluster = group(THREE)
    cluster.campaign("a")
    cluster.cut.add(("b", "a"))
    cluster["b"].step(ReadIndex(4))

    cluster.tick(1_200)

    assert cluster["b"].seen(ReadRefused) == [ReadRefused(4)]


def test_a_follower_without_a_leader_refuses_reads(group):
    assert group(THREE)["b"].step(ReadIndex(4)) == [ReadRefused(4)]


def test_a_lease_serves_reads_without_a_round_and_ends_before_another_node_can_be_elected(group):
    cluster = group(THREE)
    leader = leader_with_lease(cluster)
    cluster.isolate("a")
    role_state = leader.raft.state.leader
    begun_ms = max(ms for number, ms in role_state.round_times if number <= role_state.progress["b"].round)

    leader.step(Tick(begun_ms + lease_ms_of(cluster.config) - 1))
    assert leader.step(ReadIndex(1, is_lease_allowed=True)) == [ReadReady(1, 0)]

    leader.step(Tick(begun_ms + lease_ms_of(cluster.config)))
    leader.step(ReadIndex(2, is_lease_allowed=True))
    assert leader.seen(ReadReady)[-1] == ReadReady(1, 0)


def leader_with_lease(cluster):
    """Return the leader, after a round that renews the lease: the round of a first read that allows it."""
    leader = cluster.campaign("a")
    leader.step(ReadIndex(-1, is_lease_allowed=True))
    cluster.tick(100)
    assert leader.seen(ReadReady) == [ReadReady(-1, 0)]
    return leader


def test_first_read_that_allows_a_lease_takes_a_round_and_the_next_one_none(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.tick(100)

    assert ReadReady(1, 0) not in leader.step(ReadIndex(1, is_lease_allowed=True))
    cluster.deliver()

    assert leader.step(ReadIndex(2, is_lease_allowed=True)) == [ReadReady(2, 0)]


def test_leader_renews_no_lease_once_no_read_has_asked_for_it_for_five_election_timeouts(group):
    cluster = group(THREE)
    leader = leader_with_lease(cluster)
    lease_end_ms = cluster["b"].raft.state.follower.lease_end_ms

    cluster.tick(5 * cluster.config.max_election_timeout_ms)
    renewed_end_ms = cluster["b"].raft.state.follower.lease_end_ms
    cluster.tick(1_000)

    assert renewed_end_ms > lease_end_ms
    assert cluster["b"].raft.state.follower.lease_end_ms == renewed_end_ms
    assert ReadReady(9, 0) not in leader.step(ReadIndex(9, is_lease_allowed=True))


def test_round_without_a_lease_ends_that_of_earlier_rounds(group):
    """A follower may have received only the later round, after which it may vote for another node at any time."""
    cluster = group(THREE)
    leader = leader_with_lease(cluster)
    leader.raft.state.leader.lease_wanted_until_ms = 0
    cluster.tick(100)

    effects = leader.step(ReadIndex(1, is_lease_allowed=True))

    assert ReadReady(1, 0) not in effects


def test_heartbeats_of_one_round_agree_on_the_lease(group):
    """Also those that are sent again with another commit index, after a read has asked for a lease."""
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.tick(100)
    number = leader.raft.state.leader.round
    leader.raft.state.leader.lease_wanted_until_ms = cluster.now_ms + 10_000

    leader.step(Propose(1, 1))
    cluster.deliver()
    for _ in range(2):
        # A commit index is sent by itself if no push has carried it for a tick.
        cluster.now_ms += 1
        leader.step(Tick(cluster.now_ms))
    again = [message for _, message in leader.outbox if isinstance(message, Heartbeat) and message.round == number]

    assert [heartbeat.renews_lease for heartbeat in again] == [False, False]


def test_no_lease_before_the_no_op_commits(group):
    cluster = group(THREE)
    for node in cluster.nodes.values():
        node.is_disk_slow = True
    leader = cluster.campaign("a")
    cluster.tick(100)

    leader.step(ReadIndex(1, is_lease_allowed=True))

    assert leader.seen(ReadReady) == []


def test_no_lease_before_a_follower_has_answered_a_heartbeat(group):
    cluster = group(THREE)
    leader = cluster.campaign("a", only=lambda _sender, _peer, message: not isinstance(message, HeartbeatResponse))

    leader.step(ReadIndex(1, is_lease_allowed=True))

    assert leader.raft.commit_index == 0
    assert leader.seen(ReadReady) == []


def test_no_lease_after_a_follower_was_asked_to_campaign(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.tick(100)
    cluster.isolate("b")

    leader.step(TransferLeadership(1, "b"))
    leader.step(ReadIndex(1, is_lease_allowed=True))

    assert leader.seen(ReadReady) == []


def test_a_node_that_has_just_started_does_not_vote_because_a_leader_may_be_alive(group):
    node = group(THREE)["a"]
    node.raft.state.quiet_until_ms = 500

    node.step(Received("b", VoteRequest(term=1, is_pre_vote=True, last_index=5, last_term=0)))
    assert node.outbox.pop()[1].is_granted is False
    node.step(Tick(500))
    node.step(Received("b", VoteRequest(term=1, is_pre_vote=True, last_index=5, last_term=0)))
    assert node.outbox.pop()[1].is_granted is True


def test_a_single_voter_answers_at_once(group):
    cluster = group({"a": []})
    cluster.tick(1_100)

    assert cluster["a"].step(ReadIndex(1)) == [ReadReady(1, 0)]


def test_a_read_sees_what_was_committed_when_it_began(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    leader.step(Propose(4, 4))
    cluster.deliver()

    leader.step(ReadIndex(1))
    cluster.deliver()

    assert leader.seen(ReadReady) == [ReadReady(1, 4)]


def test_rounds_of_an_earlier_leadership_do_not_confirm(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    leader.step(ReadIndex(1))
    leader.outbox.clear()

    leader.step(Received("b", HeartbeatResponse(term=0, round=99)))

    assert leader.seen(ReadReady) == []


@pytest.mark.parametrize("min_timeout_ms", [20, 80, 150, 500])
@pytest.mark.parametrize("drift_ppm", [0, 10_000, 50_000, 400_000])
def test_lease_ends_before_the_fastest_voter_that_counts_whole_milliseconds_can_vote(min_timeout_ms, drift_ppm):
    """In real time: the leader's clock is as slow, and the voter's as fast, as allowed."""
    config = RaftConfig(
        heart_beat_time_interval_ms=5, min_election_timeout_ms=min_timeout_ms, max_clock_drift_ppm=drift_ppm
    )
    drift = drift_ppm / 1_000_000

    longest_lease_ms = lease_ms_of(config) / (1 - drift)
    earliest_vote_ms = (min_timeout_ms - 1) / (1 + drift)

    assert longest_lease_ms <= earliest_vote_ms
