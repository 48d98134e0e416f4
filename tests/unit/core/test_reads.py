"""Linearizable reads: an index is given out only by a leader that has shown that it still leads (dissertation §6.4)."""

from __future__ import annotations

from dledger.core.events import Propose, ReadIndex, ReadReady, ReadRefused, Received
from dledger.core.messages import HeartbeatResponse, Push

THREE = {"a": [], "b": [], "c": []}


def test_a_read_waits_for_a_quorum_of_the_next_heartbeat_round(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")

    leader.step(ReadIndex(1))

    assert leader.seen(ReadReady) == []
    cluster.deliver()
    assert leader.seen(ReadReady) == [ReadReady(1, 0)]


def test_many_reads_share_one_round(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    round_before = leader.raft.state.round

    for read_id in range(50):
        leader.step(ReadIndex(read_id))
    cluster.deliver()

    assert [ready.read_id for ready in leader.seen(ReadReady)] == list(range(50))
    assert leader.raft.state.round - round_before <= 2


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


def test_a_follower_refuses_reads(group):
    cluster = group(THREE)
    cluster.campaign("a")

    assert cluster["b"].step(ReadIndex(4)) == [ReadRefused(4)]


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


def test_old_rounds_of_an_earlier_office_do_not_confirm(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    leader.step(ReadIndex(1))
    leader.outbox.clear()

    leader.step(Received("b", HeartbeatResponse(term=0, round=99)))

    assert leader.seen(ReadReady) == []
