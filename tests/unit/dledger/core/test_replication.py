"""Replication and commit: the paper's figures 7 and 8, and DLedger's ways of losing entries."""

from __future__ import annotations

import random

import pytest

from dledger.core.config import RaftConfig
from dledger.core.events import (
    AppendPushed,
    Commit,
    PeerUnreachable,
    Persisted,
    Propose,
    PushNotTaken,
    Received,
    Refuse,
    Send,
    Tick,
    TruncateFrom,
)
from dledger.core.messages import Heartbeat, HeartbeatResponse, Push, PushAccepted, PushRefused
from dledger.errors import InvariantBroken
from dledger.types import UNKNOWN_TERM, Role, Span
from tests.unit.dledger.core.conftest import ENTRY_SIZE

THREE = {"a": [], "b": [], "c": []}


def pushes_to(node, peer):
    return [m for p, m in node.outbox if p == peer and isinstance(m, Push)]


def test_a_proposal_is_committed_on_every_follower(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")

    leader.step(Propose(3, 3))
    cluster.deliver()
    cluster.tick(20)

    assert [node.raft.commit_index for node in cluster.nodes.values()] == [3, 3, 3]
    assert [node.terms for node in cluster.nodes.values()] == [[1, 1, 1, 1]] * 3


def test_a_follower_refuses_proposals(group):
    cluster = group(THREE)
    cluster.campaign("a")

    assert cluster["b"].step(Propose(1, 1)) == [Refuse(1)]


def test_a_push_leaves_before_the_leader_has_synced(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")

    leader.step(Propose(1, 1))

    assert pushes_to(leader, "b")[-1].span == Span(1, 1, 1, 100, 100)
    assert leader.raft.state.persisted_index == 0


def test_a_follower_acknowledges_only_what_is_durable(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    follower = cluster["b"]
    follower.is_disk_slow = True
    leader.step(Propose(1, 1))
    push = pushes_to(leader, "b")[-1]

    assert [e for e in follower.step(Received("a", push)) if isinstance(e, Send)] == []
    assert follower.step(Persisted(1)) == [Send("a", PushAccepted(term=1, match_index=1))]


def test_an_acknowledgement_is_sent_once_and_again_for_a_repeated_push(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    follower = cluster["b"]
    leader.step(Propose(1, 1))
    push = pushes_to(leader, "b")[-1]
    cluster.deliver()

    effects = follower.step(Received("a", push))

    assert effects == [Send("a", PushAccepted(term=1, match_index=1))]
    assert follower.terms == [1, 1]


def test_nothing_commits_on_the_leaders_disk_alone(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster["b"].is_disk_slow = cluster["c"].is_disk_slow = True
    leader.step(Propose(1, 1))
    cluster.deliver()

    assert leader.raft.commit_index == 0


def test_the_leaders_own_disk_is_one_vote_and_may_be_the_slow_one(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    leader.is_disk_slow = True

    leader.step(Propose(1, 1))
    cluster.deliver()

    assert leader.raft.commit_index == 1
    assert leader.raft.state.persisted_index == 0


def test_figure_8_an_entry_of_an_old_term_is_not_committed_by_counting(group):
    cluster = group({"a": [1, 2], "b": [1, 2], "c": [1], "d": [1], "e": [1, 3]})
    leader = cluster.campaign("a")
    assert leader.raft.term == 3
    fresh = group({"a": [1, 2], "b": [1], "c": [1]})
    candidate = fresh["a"]
    fresh.isolate("c")
    fresh.now_ms = 1_000
    candidate.step(Tick(1_000))
    fresh.deliver(only=lambda _s, _p, m: not isinstance(m, Push) or m.span is None or m.span.term == 2)

    # The entry of term 2 is on a and b, a majority; only with the no-op of term 3 does it commit.
    assert fresh["b"].terms == [1, 2]
    assert candidate.raft.role is Role.LEADER
    assert candidate.raft.commit_index == -1

    fresh.tick(candidate.config.max_push_time_out_ms + 200)

    assert candidate.raft.commit_index == 2


@pytest.mark.parametrize(
    "follower",
    [
        pytest.param([1, 1, 1, 4, 4, 5, 5, 6, 6], id="a: one entry missing"),
        pytest.param([1, 1, 1, 4], id="b: six entries missing"),
        pytest.param([1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6], id="c: one extra entry"),
        pytest.param([1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7], id="d: two extra entries of a later term"),
        pytest.param([1, 1, 1, 4, 4, 4, 4], id="e: missing and extra"),
        pytest.param([1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3], id="f: two terms that never committed"),
    ],
)
def test_figure_7_every_follower_log_becomes_the_leaders(group, follower):
    ours = [1, 1, 1, 4, 4, 5, 5, 6, 6, 6]
    cluster = group({"a": ours, "b": follower, "c": ours}, terms={"a": 7, "b": 7, "c": 7})

    cluster.campaign("a")

    assert cluster.leaders == ["a"]
    assert cluster["b"].terms == cluster["a"].terms == [*ours, 8]


def test_conflicts_are_found_by_term_not_entry_by_entry(group):
    cluster = group({"a": [1] + [3] * 500, "b": [1] + [2] * 400, "c": [1] + [3] * 500})
    leader = cluster.campaign("a")

    probes = [e for e in leader.seen(Send) if e.peer == "b" and isinstance(e.message, Push) and e.message.span is None]

    assert cluster["b"].terms == cluster["a"].terms
    assert len(probes) <= 3


def test_dledger_w1_only_the_conflicting_suffix_is_cut(group):
    cluster = group({"a": [1] * 10, "b": [1] * 11, "c": [1] * 10}, terms={"a": 1, "b": 1, "c": 1})
    cluster.isolate("b")
    leader = cluster.campaign("a")
    cluster.heal()
    leader.step(PeerUnreachable("b"))
    cluster.tick(300)

    assert cluster["b"].seen(TruncateFrom) == [TruncateFrom(10)]
    assert cluster["b"].terms == [1] * 10 + [2]


def test_dledger_w0_a_first_time_leader_cuts_nothing_that_matches(group):
    cluster = group(THREE)
    cluster.campaign("a")
    cluster["a"].step(Propose(20, 20))
    cluster.deliver()
    cluster.campaign("b")

    assert cluster["b"].raft.role is Role.LEADER
    assert [node.seen(TruncateFrom) for node in cluster.nodes.values()] == [[], [], []]


def test_a_committed_entry_is_never_cut_the_node_stops_instead(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    leader.step(Propose(5, 5))
    cluster.deliver()
    cluster.tick(20)
    follower = cluster["b"]
    lie = Push(term=9, prev_index=1, prev_term=1, commit_index=1, span=Span(2, 2, 9, 200, 100), payload=b"")

    with pytest.raises(InvariantBroken, match=r"entry 2 of term 9.*committed it in term 1"):
        follower.step(Received("c", lie))

    assert follower.terms == [1] * 6


def test_dledger_w2_a_late_push_of_a_deposed_leader_changes_nothing(group):
    cluster = group(THREE)
    cluster.campaign("a")
    late = Push(term=1, prev_index=0, prev_term=1, commit_index=0, span=Span(1, 1, 1, 100, 100), payload=b"")
    cluster.campaign("b")
    before = list(cluster["c"].terms)

    effects = cluster["c"].step(Received("a", late))

    assert cluster["c"].terms == before
    assert not [e for e in effects if isinstance(e, (AppendPushed, TruncateFrom))]


def test_the_window_bounds_the_pushes_in_flight_to_a_peer(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.isolate("b")
    leader.outbox.clear()

    for _ in range(10):
        leader.step(Propose(1, 1))

    assert len(pushes_to(leader, "b")) == leader.config.max_push_window


def test_a_push_is_bounded_in_bytes_and_never_spans_two_terms(group):
    cluster = group({"a": [1] * 15 + [2] * 15, "b": [], "c": [1] * 15 + [2] * 15})
    leader = cluster.campaign("a")

    spans = [
        e.message.span for e in leader.seen(Send) if e.peer == "b" and isinstance(e.message, Push) and e.message.span
    ]

    assert cluster["b"].terms == leader.terms
    assert [(s.first_index, s.last_index) for s in spans] == [(0, 9), (10, 14), (15, 24), (25, 29), (30, 30)]


def test_dledger_331_lost_pushes_and_lost_answers_are_repaired_by_the_timeout(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    for lost in (Push, PushAccepted):
        leader.step(Propose(2, 2))
        cluster.deliver(only=lambda s, p, m, kind=lost: not (isinstance(m, kind) and "b" in (s, p)))
    assert leader.raft.match_index_of("b") == 0

    cluster.tick(leader.config.max_push_time_out_ms + 100)

    assert leader.raft.match_index_of("b") == 4
    assert cluster["b"].terms == leader.terms


def test_duplicated_and_reordered_pushes_leave_the_log_correct(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    for _ in range(3):
        leader.step(Propose(1, 1))
    first, second, third = pushes_to(leader, "b")
    follower = cluster["b"]

    for push in (third, first, first, third, second, third, first):
        follower.step(Received("a", push))

    assert follower.terms == [1, 1, 1, 1]
    assert follower.seen(TruncateFrom) == []


def test_dledger_61_a_wiped_follower_of_an_idle_leader_gets_the_log_again(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    leader.step(Propose(25, 25))
    cluster.deliver()
    old = cluster["b"]
    cluster.nodes["b"] = type(old)("b", ("a", "b", "c"), [], old.saved, seed=3)
    leader.step(PeerUnreachable("b"))

    cluster.tick(500)

    assert cluster["b"].terms == leader.terms
    # The entry after the 25 readmits it: it acknowledged entries, which its disk has lost.
    assert cluster["b"].raft.commit_index == 26


def test_a_follower_with_a_full_disk_is_asked_again_after_a_pause_and_stays_a_follower(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    follower = cluster["b"]
    leader.step(Propose(1, 1))
    push = pushes_to(leader, "b")[-1]
    leader.outbox.clear()

    refusal = next(e for e in follower.step(PushNotTaken("a", push)) if isinstance(e, Send)).message
    leader.step(Received("b", refusal))

    assert refusal.is_disk_full
    assert leader.outbox == type(leader.outbox)()
    cluster.tick(300)
    assert follower.terms == leader.terms
    assert cluster.leaders == ["a"]


def test_a_late_refusal_does_not_change_the_leaders_progress(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    leader.step(Propose(5, 5))
    cluster.deliver()
    late = PushRefused(term=1, rejected_prev_index=0, last_index=-1, conflict_term=-1, conflict_first_index=-1)

    assert leader.step(Received("b", late)) == []
    assert leader.raft.match_index_of("b") == 5


def test_a_peer_that_claims_more_than_the_leader_has_is_not_counted(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.isolate("a")
    leader.step(Propose(1, 1))
    leader.sync()

    leader.step(Received("b", PushAccepted(term=1, match_index=999)))

    assert leader.raft.commit_index == 0


def test_commit_index_never_exceeds_the_followers_log(group):
    follower = group(THREE)["b"]

    follower.step(Received("a", Heartbeat(term=1, commit_index=10, round=1)))

    assert follower.raft.commit_index == -1
    assert follower.seen(Commit) == []


def test_a_heartbeat_commits_nothing_that_was_not_compared_with_its_sender(group):
    cluster = group({"a": [1, 1], "b": [1, 1, 1], "c": [1, 1]})
    follower = cluster["b"]

    effects = follower.step(Received("a", Heartbeat(term=2, commit_index=2, round=1)))

    assert Commit(2) not in effects
    assert effects[-2] == Send("a", HeartbeatResponse(2, 1, is_unmatched=True))
    follower.step(Received("a", Push(2, prev_index=1, prev_term=1, commit_index=1, span=None)))
    answer = follower.step(Received("a", Heartbeat(term=2, commit_index=1, round=2)))
    assert answer == [Send("a", HeartbeatResponse(2, 2))]
    assert follower.raft.commit_index == 1


def test_a_follower_that_forgot_what_it_compared_is_probed_by_an_idle_leader(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    leader.step(Propose(2, 2))
    cluster.tick(200)
    follower = cluster["b"]
    assert follower.raft.commit_index == 2

    # It was restarted with the same disk, and the leader detected no broken connection.
    again = type(follower)("b", tuple(THREE), follower.terms, follower.saved, 3)
    cluster.nodes["b"] = again
    again.step(Tick(cluster.now_ms))
    cluster.tick(300)

    assert again.raft.commit_index == 2
    assert not leader.raft.state.leader.progress["b"].is_probing


def test_a_term_that_the_leader_does_not_know_any_more_agrees_only_with_what_is_committed(group):
    follower = group({"a": [1] * 4, "b": [1] * 4, "c": [1] * 4})["b"]
    follower.step(Received("a", Push(2, prev_index=1, prev_term=1, commit_index=1, span=None)))
    assert follower.raft.commit_index == 1

    committed = follower.step(Received("a", Push(2, prev_index=1, prev_term=UNKNOWN_TERM, commit_index=1, span=None)))
    later = follower.step(Received("a", Push(2, prev_index=2, prev_term=UNKNOWN_TERM, commit_index=2, span=None)))

    assert committed == [Send("a", PushAccepted(2, match_index=1))]
    assert [type(effect.message) for effect in later if isinstance(effect, Send)] == [PushRefused]
    assert follower.raft.commit_index == 1


def deliver_in_random_order(cluster, seed, count_max):
    """Deliver messages of one instant in random order; return the number delivered until none is left."""
    draw = random.Random(seed).randrange
    in_flight = []
    for count in range(count_max):
        for node in cluster.nodes.values():
            node.sync()
            in_flight += [(node.id, *sent) for sent in node.outbox]
            node.outbox.clear()
        if not in_flight:
            return count
        sender, peer, message = in_flight.pop(draw(len(in_flight)))
        cluster[peer].step(Received(sender, message))
    return count_max


@pytest.mark.parametrize("seed", range(4))
def test_messages_that_overtake_one_another_start_no_storm_of_pushes(group, seed):
    """Each refusal of an old window started another window at once: 100,000 messages in one instant (seed 107300)."""
    cluster = group(THREE, config=RaftConfig(max_push_size_bytes=ENTRY_SIZE, max_push_window=64))
    leader = cluster.campaign("a")
    for _ in range(500):
        leader.step(Propose(1, 1))

    count = deliver_in_random_order(cluster, seed, 5_000)

    assert count < 2_000
    cluster.tick(500)
    assert [node.terms for node in cluster.nodes.values()] == [leader.terms] * 3
    assert [node.raft.commit_index for node in cluster.nodes.values()] == [500] * 3


def test_a_push_that_was_lost_is_repeated_without_a_pause(group):
    cluster = group(THREE, config=RaftConfig(max_push_size_bytes=ENTRY_SIZE, max_push_window=64))
    leader = cluster.campaign("a")
    for _ in range(20):
        leader.step(Propose(1, 1))
    lost = []

    def is_not_the_first(sender, peer, message):
        if peer == "b" and isinstance(message, Push) and message.span is not None and not lost:
            lost.append(message)
            return False
        return True

    cluster.deliver(only=is_not_the_first)

    assert lost
    assert [node.terms for node in cluster.nodes.values()] == [leader.terms] * 3
