"""What the core shows of elections and transfers, in order, for observers."""

from __future__ import annotations

from dataclasses import replace

from dledger.core.events import (
    DiskHealth,
    Received,
    Tick,
    TransferBegun,
    TransferEnded,
    TransferLeadership,
    TransitionCause,
    Transitioned,
    VoteAnswered,
    VoteReceived,
)
from dledger.core.messages import Heartbeat, VoteResponse
from dledger.types import Role

THREE = {"a": [], "b": [], "c": []}
SHOWN = (Transitioned, VoteAnswered, VoteReceived, TransferBegun, TransferEnded)


def shown_by(node):
    return [effect for effect in node.effects if isinstance(effect, SHOWN)]


def causes_of(node):
    return [transition.cause for transition in node.seen(Transitioned)]


def test_each_step_of_an_election_is_shown_with_the_votes_that_decided_it(group):
    cluster = group(THREE)
    candidate = cluster.campaign("a", only=lambda sender, receiver, _: "c" not in {sender, receiver})

    assert shown_by(candidate) == [
        Transitioned(TransitionCause.PRE_VOTE, Role.FOLLOWER, Role.CANDIDATE, 0, None),
        VoteReceived("b", 1, is_pre_vote=True, is_granted=True),
        Transitioned(TransitionCause.VOTE, Role.CANDIDATE, Role.CANDIDATE, 1, None),
        VoteReceived("b", 1, is_pre_vote=False, is_granted=True),
        Transitioned(TransitionCause.ELECTED, Role.CANDIDATE, Role.LEADER, 1, "a"),
    ]
    assert shown_by(cluster["b"]) == [
        VoteAnswered("a", 1, is_pre_vote=True, is_granted=True),
        Transitioned(TransitionCause.NEWER_TERM, Role.FOLLOWER, Role.FOLLOWER, 1, None),
        VoteAnswered("a", 1, is_pre_vote=False, is_granted=True),
        Transitioned(TransitionCause.LEADER_SEEN, Role.FOLLOWER, Role.FOLLOWER, 1, "a"),
    ]


def test_all_transitions_of_one_step_are_shown(group):
    alone = group({"a": []}).campaign("a")

    assert causes_of(alone) == [TransitionCause.PRE_VOTE, TransitionCause.VOTE, TransitionCause.ELECTED]


def test_a_refused_vote_is_shown_and_one_for_an_earlier_process_is_not(group):
    node = group(THREE)["a"]
    node.step(Tick(10_000))
    refused = VoteResponse(term=0, is_pre_vote=True, is_granted=False, life=node.raft.state.life)

    node.step(Received("b", replace(refused, life=refused.life + 1)))
    assert not node.seen(VoteReceived)
    node.step(Received("b", refused))

    assert node.seen(VoteReceived) == [VoteReceived("b", 1, is_pre_vote=True, is_granted=False)]
    assert node.raft.role is Role.CANDIDATE


def test_a_pre_vote_that_no_node_answers_is_shown_each_time_it_is_repeated(group):
    cluster = group(THREE)
    cluster.isolate("a")
    node = cluster.campaign("a")
    node.step(Tick(node.raft.state.candidate.deadline_ms))

    assert causes_of(node) == [TransitionCause.PRE_VOTE, TransitionCause.PRE_VOTE]


def test_the_reason_for_which_a_leader_steps_down_is_shown(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.isolate("a")
    cluster.tick(4_000)
    assert causes_of(leader).count(TransitionCause.QUORUM_LOST) == 1

    other = group(THREE).campaign("a")
    other.step(DiskHealth(is_stalled=True, is_stalling=True))
    assert causes_of(other)[-1] is TransitionCause.DISK_STALLED


def test_begin_and_end_of_a_transfer_are_shown_with_the_leader_that_was_elected(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.tick(100)

    leader.step(TransferLeadership(1, "b"))
    cluster.deliver()

    transfers = [each for each in shown_by(leader) if isinstance(each, TransferBegun | TransferEnded)]
    assert transfers == [TransferBegun("b"), TransferEnded("b", "b")]


def test_a_transfer_that_times_out_is_shown_without_a_leader(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.tick(100)
    cluster.isolate("b")

    leader.step(TransferLeadership(1, "b"))
    cluster.tick(leader.config.max_election_timeout_ms)

    assert leader.seen(TransferEnded) == [TransferEnded("b", None)]


def test_messages_of_a_steady_leader_are_not_shown(group):
    follower = group(THREE)["b"]
    follower.step(Received("a", Heartbeat(term=1, commit_index=-1, round=1)))
    shown = shown_by(follower)

    for number in range(2, 9):
        follower.step(Received("a", Heartbeat(term=1, commit_index=-1, round=number)))

    assert (
        shown == shown_by(follower) == [Transitioned(TransitionCause.NEWER_TERM, Role.FOLLOWER, Role.FOLLOWER, 1, "a")]
    )
