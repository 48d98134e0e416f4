"""A follower that lacks an entry which it acknowledged in this term gives up its vote; no other node does (ADR 29)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from dledger.core.events import EntriesLost, PeerUnreachable, Propose, Received, SaveHardState, Send, Tick
from dledger.core.messages import Heartbeat, HeartbeatResponse, Push, PushAccepted, PushRefused, ResetLog, VoteRequest
from dledger.types import UNKNOWN_TERM, HardState
from tests.unit.dledger.core.conftest import GROUP, Group, Node, membership_of

if TYPE_CHECKING:
    from collections.abc import Callable

TERMS = [1, 1, 1, 2, 2]
OWN = 77
THREE: dict[str, list[int]] = {"a": [], "b": [], "c": []}


# ------------------------------------------------------------------------------------------------------ the follower


def follower_of(terms: list[int]) -> Node:
    """Return node b of three, with incarnation `OWN`, in term 5."""
    node = Node("b", ("a", "b", "c"), terms, HardState(5, None, incarnation=OWN), seed=1)
    node.step(Tick(10))
    return node


def probe(prev_index: int, prev_term: int, acknowledged_by: int | None = OWN, term: int = 5) -> Push:
    return Push(term, prev_index, prev_term, 0, None, group_id=GROUP, acknowledged_by=acknowledged_by)


@pytest.mark.parametrize(("prev_index", "prev_term"), [(9, 5), (5, 2), (4, 3), (1, 3)])
def test_a_node_without_an_entry_that_it_acknowledged_gives_up_its_vote(prev_index: int, prev_term: int) -> None:
    node = follower_of(TERMS)

    effects = node.step(Received("a", probe(prev_index, prev_term)))

    (answer,) = [effect.message for effect in effects if isinstance(effect, Send)]
    assert answer.incarnation not in (0, OWN)
    assert answer == HeartbeatResponse(5, 0, answer.incarnation)
    assert effects[0] == SaveHardState(5, None, is_founding=False, incarnation=answer.incarnation)
    assert EntriesLost("a", prev_index, 4) in effects
    assert node.terms == TERMS


def test_its_answer_reports_the_health_of_its_disk() -> None:
    node = follower_of(TERMS)
    node.raft.state.is_disk_full = True

    effects = node.step(Received("a", probe(9, 5)))

    assert [effect.message.is_healthy for effect in effects if isinstance(effect, Send)] == [False]


def test_afterwards_its_earlier_vote_cannot_be_requested() -> None:
    node = follower_of(TERMS)
    node.step(Received("a", probe(9, 5)))
    node.raft.state.leader_id = None
    node.raft.state.role_state.contact_ms = -10_000

    effects = node.step(Received("c", VoteRequest(6, False, 9, 5, voter_incarnation=OWN, group_id=GROUP)))

    assert [effect.message.is_granted for effect in effects if isinstance(effect, Send)] == [False]


@pytest.mark.parametrize("acknowledged_by", [None, 0, OWN + 1], ids=["unknown", "founder's disk", "another disk"])
def test_an_acknowledgement_of_no_or_another_incarnation_costs_nothing(acknowledged_by: int | None) -> None:
    node = follower_of(TERMS)

    node.step(Received("a", probe(9, 5, acknowledged_by)))
    node.step(Received("a", probe(4, 3, acknowledged_by)))

    assert kept_its_vote(node)
    assert node.seen(Send)[-1].message == PushRefused(5, 4, 4, 2, 3)


def test_the_incarnation_0_of_a_founder_is_one_like_any_other() -> None:
    node = follower_of(TERMS)
    node.raft.state.incarnation = 0

    node.step(Received("a", probe(9, 5, 0)))

    assert node.raft.state.incarnation != 0


def test_acknowledgements_before_a_sync_prove_no_loss() -> None:
    node = follower_of(TERMS)
    node.raft.state.is_flush_sync = False

    node.step(Received("a", probe(9, 5)))

    assert kept_its_vote(node)


@pytest.mark.parametrize("prev_index", [4, 3])
def test_a_term_that_the_leader_no_longer_knows_proves_no_loss(prev_index: int) -> None:
    node = follower_of(TERMS)

    node.step(Received("a", probe(prev_index, UNKNOWN_TERM)))

    assert kept_its_vote(node)


def test_a_node_that_has_the_entry_or_deleted_it_keeps_its_vote() -> None:
    node = follower_of(TERMS)
    node.raft.state.commit_index = 3
    node.delete_before(3)

    for prev_index, prev_term in ((4, 2), (3, 2), (2, 1), (2, 9), (1, 9)):
        node.step(Received("a", probe(prev_index, prev_term)))

    assert kept_its_vote(node)


def test_a_node_that_keeps_committed_entries_against_the_leader_keeps_its_vote() -> None:
    node = follower_of(TERMS)
    node.raft.state.commit_floor = 4

    node.step(Received("a", probe(4, 3)))

    assert kept_its_vote(node)
    assert node.seen(Send)[-1].message.is_contradicting


def test_an_acknowledgement_of_an_earlier_term_costs_nothing() -> None:
    node = follower_of(TERMS)
    node.step(Received("c", Heartbeat(6, -1, 1, group_id=GROUP)))

    node.step(Received("a", probe(9, 5)))

    assert kept_its_vote(node)


def test_an_empty_disk_is_detected_as_before() -> None:
    node = Node("b", ("a", "b", "c"), [], HardState(is_founding=True), seed=1)

    node.step(Received("a", probe(9, 5, 0)))

    assert node.raft.state.incarnation != 0
    assert not node.seen(EntriesLost)


def kept_its_vote(node: Node) -> bool:
    return node.raft.state.incarnation == OWN and not node.seen(EntriesLost)


# ------------------------------------------------------------------------------------------------------- the leader


def probed_after_a_break(cluster: Group, peer: str = "b") -> Push:
    """Break the connection to `peer`; return the probe that follows."""
    leader = cluster["a"]
    cluster.deliver()
    leader.step(PeerUnreachable(peer))
    leader.outbox.clear()
    answer = HeartbeatResponse(leader.raft.term, leader.raft.state.leader.round, cluster[peer].raft.state.incarnation)
    leader.step(Received(peer, answer))
    (push,) = [message for target, message in leader.outbox if target == peer and isinstance(message, Push)]
    assert push.span is None
    return push


@pytest.fixture
def led(group: Callable[..., Group]) -> Group:
    """Return three nodes led by a, with three entries everywhere."""
    cluster = group(THREE)
    cluster.campaign("a").step(Propose(2, 2))
    cluster.tick(200)
    return cluster


def test_a_probe_names_the_incarnation_that_acknowledged_its_entry(led: Group) -> None:
    push = probed_after_a_break(led)

    assert (push.prev_index, push.acknowledged_by) == (2, 0)


def test_a_leader_that_has_no_acknowledgement_names_none(group: Callable[..., Group]) -> None:
    cluster = group({"a": [1, 1], "b": [1, 1], "c": [1, 1]})
    cluster.campaign("a", only=lambda _sender, _peer, message: not isinstance(message, Push))

    pushes = [push for push in cluster["a"].seen(Send) if isinstance(push.message, Push)]

    assert [push.message.acknowledged_by for push in pushes] == [None, None]


def test_a_probe_of_an_entry_above_the_match_index_names_none(led: Group) -> None:
    led.cut = {("a", "b")}
    led["a"].step(Propose(4, 4))
    led.deliver()
    progress = led["a"].raft.state.leader.progress["b"]
    progress.probe(progress.next_index)
    led["a"].outbox.clear()
    led["a"].step(Received("b", HeartbeatResponse(1, 1)))

    (push,) = [message for target, message in led["a"].outbox if target == "b"]

    assert (push.prev_index, progress.match_index, push.acknowledged_by) == (6, 2, None)


def test_a_node_that_no_majority_could_readmit_is_not_asked(led: Group) -> None:
    progress = led["a"].raft.state.leader.progress["c"]

    progress.contact_ms = led.now_ms - led.config.max_election_timeout_ms
    assert probed_after_a_break(led).acknowledged_by is None

    progress.contact_ms = led.now_ms
    assert probed_after_a_break(led).acknowledged_by == 0

    progress.incarnation = 5
    assert probed_after_a_break(led).acknowledged_by is None


def test_of_two_nodes_that_are_probed_at_once_neither_is_asked(led: Group) -> None:
    led["a"].step(PeerUnreachable("c"))

    assert probed_after_a_break(led).acknowledged_by is None


def test_in_a_group_of_two_no_node_is_asked(group: Callable[..., Group]) -> None:
    cluster = group({"a": [], "b": []})
    cluster.campaign("a")
    cluster.tick(200)

    push = probed_after_a_break(cluster)

    assert (push.prev_index, push.acknowledged_by) == (0, None)


def test_a_learner_and_a_voter_that_does_not_count_are_not_asked(led: Group) -> None:
    led["a"].raft.state.incarnations["b"] = 9
    assert probed_after_a_break(led).acknowledged_by is None

    members = [membership_of(("a", "c", "d"), ("b",), index=-1)]
    led["a"].raft.state.memberships[:] = members
    led["a"].raft.state.voters = ("a", "c")
    led["a"].raft.state.incarnations = {"a": 0, "c": 0}
    assert probed_after_a_break(led).acknowledged_by is None


# -------------------------------------------------------------------------------------------------------- the group


def test_a_node_on_an_old_copy_has_no_vote_until_a_majority_without_it_readmits_it(led: Group) -> None:
    old = led["b"]
    led.nodes["b"] = Node("b", ("a", "b", "c"), old.terms[:1], old.saved, seed=3)
    led["b"].raft.state.now_ms = led.now_ms
    led["a"].step(PeerUnreachable("b"))

    led.tick(300)

    incarnation = led["b"].raft.state.incarnation
    assert incarnation != 0
    assert [loss.last_index for loss in led["b"].seen(EntriesLost)] == [0]
    assert led["b"].terms == led["a"].terms
    assert [node.raft.state.incarnations["b"] for node in led.nodes.values()] == [incarnation] * 3
    assert led["a"].raft.is_counted("b")


def test_no_delayed_message_costs_a_correct_node_its_vote(led: Group) -> None:
    """All messages are delivered once more, in any order that tests earlier probes after later states."""
    delivered: list[tuple[str, str, Push | ResetLog | PushRefused | PushAccepted]] = []

    def note(sender: str, peer: str, message: object) -> bool:
        if isinstance(message, (Push, ResetLog, PushRefused, PushAccepted)):
            delivered.append((sender, peer, message))
        return True

    for count in (1, 12, 3):
        led["a"].step(Propose(count, count))
        led["a"].step(PeerUnreachable("b"))
        led["a"].step(Received("b", HeartbeatResponse(1, 1)))
        led.deliver(only=note)
    assert any(isinstance(message, Push) and message.acknowledged_by == 0 for _, _, message in delivered)

    for sender, peer, message in (*reversed(delivered), *delivered):
        led[peer].step(Received(sender, replace(message)))
        led.deliver()

    assert [node.raft.state.incarnation for node in led.nodes.values()] == [0, 0, 0]
    assert not led["b"].seen(EntriesLost)
