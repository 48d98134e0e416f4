"""The node that the client uses as the leader."""

from __future__ import annotations

import pytest

from dledger.client.endpoints import LeaderTracker, is_enough, parse_endpoints, pick_leader, refusal_without_leader
from dledger.errors import ResponseCode
from dledger.v1.log_pb2 import LeaderHint, StatusResponse


def answer(role: str, term: int, leader: str = "", code: int = 200) -> StatusResponse:
    return StatusResponse(code=code, role=role, term=term, leader=LeaderHint(address=leader))


@pytest.mark.parametrize("text", ["a:1,b:2", " a:1 , b:2,", ["a:1", "b:2", "a:1"]])
def test_endpoints_are_read_once_each_and_in_order(text: str | list[str]) -> None:
    assert ("a:1", "b:2") == parse_endpoints(text)


@pytest.mark.parametrize("text", ["", " , ", "a", "a:", ":1", "a:x", "a:0", "a:65536", "a:1,b"])
def test_bad_endpoint_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="endpoint"):
        parse_endpoints(text)


def test_leader_of_the_highest_term_wins_over_one_that_was_cut_off() -> None:
    answers = {"a:1": answer("LEADER", 3), "b:2": answer("LEADER", 4), "c:3": answer("FOLLOWER", 4, "b:2")}

    assert "b:2" == pick_leader(answers)


def test_answer_of_the_leader_has_precedence_over_a_hint_of_the_same_term() -> None:
    answers = {"a:1": answer("FOLLOWER", 4, "inside:2"), "b:2": answer("LEADER", 4)}

    assert "b:2" == pick_leader(answers)


def test_without_a_leader_there_is_none() -> None:
    answers = {"a:1": answer("FOLLOWER", 4), "b:2": "b:2 is not reachable", "c:3": answer("LEADER", 9, code=400)}

    assert None is pick_leader(answers)


def test_majority_that_names_a_leader_is_enough() -> None:
    one = {"a:1": answer("LEADER", 3)}

    assert not is_enough(one, asked=3)
    assert not is_enough({**one, "b:2": "b:2 is not reachable"}, asked=3)
    assert is_enough({**one, "b:2": answer("FOLLOWER", 3)}, asked=3)
    assert is_enough(one, asked=1)


def test_refusal_names_the_answer_of_every_node() -> None:
    refusal = refusal_without_leader({"a:1": answer("CANDIDATE", 4), "b:2": "b:2 is not reachable (refused)"})

    assert ResponseCode.NETWORK_ERROR == refusal.code
    assert "a:1 is CANDIDATE of term 4 and knows no leader; b:2 is not reachable (refused)" in refusal.message


def test_wrong_group_everywhere_is_refused_permanently() -> None:
    refusal = refusal_without_leader({"a:1": answer("", 0, code=400), "b:2": "b:2 is not reachable"})

    assert ResponseCode.UNKNOWN_GROUP == refusal.code
    assert not refusal.is_retriable


def test_hint_of_a_refusal_is_followed_and_remembered() -> None:
    tracker = LeaderTracker("a:1,b:2")
    tracker.follow("a:1")
    tracker.observe("a:1", ResponseCode.NOT_LEADER, "c:3")

    assert "c:3" == tracker.leader
    assert ("a:1", "b:2", "c:3") == tracker.addresses


@pytest.mark.parametrize("hint", ["", "a:1"])
def test_refusal_without_a_usable_hint_makes_the_leader_unknown(hint: str) -> None:
    tracker = LeaderTracker("a:1,b:2")
    tracker.follow("a:1")
    tracker.observe("a:1", ResponseCode.NOT_LEADER, hint)

    assert None is tracker.leader


def test_busy_leader_is_kept_and_one_without_a_quorum_is_not() -> None:
    tracker = LeaderTracker("a:1,b:2")
    tracker.follow("a:1")
    tracker.observe("a:1", ResponseCode.LEADER_PENDING_FULL)
    assert "a:1" == tracker.leader

    tracker.observe("a:1", ResponseCode.WAIT_QUORUM_ACK_TIMEOUT)
    assert None is tracker.leader


def test_failure_of_another_node_leaves_the_leader_alone() -> None:
    tracker = LeaderTracker("a:1,b:2")
    tracker.follow("a:1")
    tracker.forget("b:2")

    assert "a:1" == tracker.leader


def test_node_must_answer_again_after_a_failure() -> None:
    tracker = LeaderTracker("a:1,b:2")
    assert not tracker.has_answered("a:1")
    tracker.observe("a:1", ResponseCode.NOT_LEADER)
    assert tracker.has_answered("a:1")
    tracker.follow("a:1")

    tracker.failed("a:1")

    assert not tracker.has_answered("a:1")
    assert None is tracker.leader
