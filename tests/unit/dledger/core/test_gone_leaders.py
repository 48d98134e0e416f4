"""A leader whose process has probably ended: its followers campaign soon, one after the other, and break no lease."""

from __future__ import annotations

import pytest

from dledger.core.events import PeerGone, Propose, ReadIndex, ReadReady, Received, Tick
from dledger.core.messages import Heartbeat, VoteRequest, VoteResponse
from dledger.types import Role

THREE = {"a": [], "b": [], "c": []}
FIVE = {"a": [], "b": [], "c": [], "d": [], "e": []}


def led_by_a(group, logs):
    cluster = group(logs)
    cluster.campaign("a")
    cluster.tick(100)
    return cluster


def kill(cluster, node_id):
    """End a process: its host refuses connections, and every other node learns of it."""
    del cluster.nodes[node_id]
    for node in cluster.nodes.values():
        node.step(PeerGone(node_id))


@pytest.mark.parametrize("logs", [THREE, FIVE])
def test_group_elects_the_next_voter_soon_after_the_leaders_process_has_ended(group, logs):
    cluster = led_by_a(group, logs)

    kill(cluster, "a")
    cluster.tick(30)

    assert cluster.leaders == ["b"]
    assert cluster["b"].raft.term == 2


def test_next_voter_campaigns_half_a_heartbeat_interval_later_if_the_first_one_does_not_win(group):
    cluster = led_by_a(group, FIVE)

    del cluster.nodes["b"]
    kill(cluster, "a")
    cluster.tick(60)
    too_early = cluster.leaders
    cluster.tick(20)

    assert too_early == []
    assert cluster.leaders == ["c"]


def test_voter_with_entries_that_the_first_candidate_lacks_wins_in_its_turn(group):
    cluster = led_by_a(group, THREE)
    cluster.isolate("b")
    cluster["a"].step(Propose(1, 1))
    cluster.deliver()
    cluster.heal()

    kill(cluster, "a")
    cluster.tick(100)

    assert cluster.leaders == ["c"]


def test_end_of_another_process_than_the_leaders_changes_nothing(group):
    cluster = led_by_a(group, THREE)
    before = cluster["b"].raft.state.follower.deadline_ms

    cluster["b"].step(PeerGone("c"))

    assert cluster["b"].raft.state.follower.deadline_ms == before
    assert not cluster["b"].raft.state.follower.is_leader_gone


def test_message_of_the_leader_shows_that_it_lives(group):
    cluster = led_by_a(group, THREE)
    follower = cluster["b"]
    follower.step(PeerGone("a"))
    state = follower.raft.state

    follower.step(Received("a", Heartbeat(term=1, commit_index=0, round=99)))

    assert not state.follower.is_leader_gone
    assert state.follower.deadline_ms >= cluster.now_ms + cluster.config.min_election_timeout_ms


def test_living_leader_that_one_follower_cannot_reach_stays_leader(group):
    cluster = led_by_a(group, THREE)
    cluster.cut |= {("a", "b"), ("b", "a")}

    cluster["b"].step(PeerGone("a"))
    cluster.tick(400)

    assert cluster["b"].raft.role is Role.CANDIDATE
    assert (cluster.leaders, cluster["c"].raft.term) == (["a"], 1)


def test_living_leader_without_connections_to_any_follower_is_replaced_and_serves_no_read_by_lease(group):
    cluster = led_by_a(group, THREE)
    leader = cluster["a"]
    cluster.isolate("a")

    for follower in ("b", "c"):
        cluster[follower].step(PeerGone("a"))
    cluster.tick(30)
    leader.step(ReadIndex(1, is_lease_allowed=True))

    assert cluster["b"].raft.role is Role.LEADER
    assert leader.seen(ReadReady) == []


@pytest.mark.parametrize("logs", [THREE, FIVE])
def test_no_node_is_elected_before_the_lease_of_a_living_leader_ends(group, logs):
    """The leader lives, but all its connections have ended: it still serves reads by lease."""
    cluster = led_by_a(group, logs)
    leader = cluster["a"]
    leader.step(ReadIndex(1, is_lease_allowed=True))
    cluster.deliver()
    cluster.isolate("a")
    lost_at_ms = cluster.now_ms
    followers = [node for node in cluster.nodes.values() if node is not leader]
    for follower in followers:
        follower.step(PeerGone("a"))

    served = 0
    while not any(follower.raft.role is Role.LEADER for follower in followers):
        served += ReadReady(2, 0) in leader.step(ReadIndex(2, is_lease_allowed=True))
        cluster.tick(10)
    waited_ms = cluster.now_ms - lost_at_ms

    assert served > 10
    assert cluster.config.min_election_timeout_ms <= waited_ms <= cluster.config.min_election_timeout_ms + 30
    assert ReadReady(3, 0) not in leader.step(ReadIndex(3, is_lease_allowed=True))


def test_follower_that_renewed_a_lease_grants_no_pre_vote_and_no_vote_before_its_end(group):
    cluster = led_by_a(group, THREE)
    follower = cluster["b"]
    follower.step(Received("a", Heartbeat(term=1, commit_index=0, round=99, renews_lease=True)))
    follower.step(PeerGone("a"))
    follower.outbox.clear()
    end_ms = cluster.now_ms + cluster.config.min_election_timeout_ms
    pre_vote = VoteRequest(term=2, is_pre_vote=True, last_index=9, last_term=1)
    vote = VoteRequest(term=2, is_pre_vote=False, last_index=9, last_term=1)

    # The clock alone, so that the follower does not campaign itself.
    follower.raft.pass_time(end_ms - 1)
    follower.step(Received("c", pre_vote))
    follower.step(Received("c", vote))
    early = [message.is_granted for _, message in follower.outbox if isinstance(message, VoteResponse)]
    follower.raft.pass_time(end_ms)
    follower.step(Received("c", pre_vote))
    follower.step(Received("c", vote))
    granted = [message.is_granted for _, message in follower.outbox if isinstance(message, VoteResponse)]

    assert early == [False]
    assert granted == [False, True, True]


def test_repeated_reports_do_not_delay_the_campaign(group):
    cluster = led_by_a(group, THREE)
    follower = cluster["b"]
    follower.step(PeerGone("a"))
    deadline_ms = follower.raft.state.follower.deadline_ms

    follower.step(Tick(cluster.now_ms + 10))
    follower.step(PeerGone("a"))

    assert follower.raft.state.follower.deadline_ms == deadline_ms
