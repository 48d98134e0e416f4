"""What is not believed: terms out of bounds, second leaders."""

from __future__ import annotations

import pytest

from dledger.core.events import Distrust, Distrusted, PushNotTaken, Received, SaveHardState, Send, Tick
from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    Push,
    PushAccepted,
    ReadIndexRequest,
    ResetLog,
    SnapshotChunk,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.types import TERM_JUMP_MAX, TERM_MAX, Role, SnapshotInfo, Span
from tests.unit.core.conftest import membership_of

THREE = {"a": [], "b": [], "c": []}


def messages_of(term: int):
    """Return a message of each kind that could raise a term."""
    return [
        VoteRequest(term, is_pre_vote=False, last_index=100, last_term=term, is_transfer=True),
        VoteResponse(term, is_pre_vote=False, is_granted=False),
        Heartbeat(term, commit_index=-1, round=1),
        HeartbeatResponse(term, round=1),
        Push(term, prev_index=0, prev_term=1, commit_index=0, span=None),
        PushAccepted(term, match_index=0),
        TimeoutNow(term),
        ReadIndexRequest(term, read_id=1),
        ResetLog(term, 500, 50_000, 1, membership_of("c", index=400)),
        SnapshotChunk(term, SnapshotInfo(9, 1, 10, 0), 0, 10, b"0123456789"),
    ]


@pytest.mark.parametrize("node_id", ["a", "b"])
def test_a_second_leader_of_a_term_is_not_believed_and_stops_nobody(group, node_id):
    cluster = group(THREE)
    cluster.campaign("a")
    cluster.deliver()
    node = cluster[node_id]
    node.outbox.clear()
    lie = Push(term=1, prev_index=0, prev_term=1, commit_index=1, span=Span(1, 1, 1, 100, 100), payload=b"")
    reset = ResetLog(1, 500, 50_000, 1, membership_of("c", index=400))

    for message in (Heartbeat(1, 0, 7), lie, TimeoutNow(1), reset):
        effects = node.step(Received("c", message))

        assert effects == [Distrusted("c", Distrust.SECOND_LEADER, type(message).__name__, 1)]
    assert node.raft.leader_id == "a"
    assert node.terms == [1]
    assert not node.outbox


def test_refusal_of_a_full_disk_goes_to_no_second_leader(group):
    cluster = group(THREE)
    cluster.campaign("a")
    cluster.deliver()
    lie = Push(term=1, prev_index=0, prev_term=1, commit_index=1, span=Span(1, 1, 1, 100, 100), payload=b"")

    assert cluster["b"].step(PushNotTaken("c", lie)) == []


@pytest.mark.parametrize("node_id", ["a", "b"])
@pytest.mark.parametrize("term", [TERM_MAX + 1, (1 << 63) - 1, 1 + TERM_JUMP_MAX + 1])
def test_a_term_that_no_election_reached_is_neither_taken_nor_saved(group, node_id, term):
    cluster = group(THREE)
    cluster.campaign("a")
    cluster.deliver()
    node = cluster[node_id]

    for message in messages_of(term):
        effects = node.step(Received("c", message))

        assert effects == [Distrusted("c", Distrust.TERM, type(message).__name__, term)]
    assert node.saved.term == 1
    assert cluster["a"].raft.role is Role.LEADER


def test_a_term_within_the_bounds_is_taken(group):
    cluster = group(THREE)
    cluster.campaign("a")
    cluster.deliver()

    cluster["b"].step(Received("c", Heartbeat(1 + TERM_JUMP_MAX, commit_index=-1, round=1)))

    assert cluster["b"].saved.term == 1 + TERM_JUMP_MAX


def test_in_the_last_term_nobody_stands(group):
    """The next one could be saved, and never be sent."""
    cluster = group(THREE, terms={"b": TERM_MAX})
    node = cluster["b"]

    for message in (Tick(100_000), Received("a", Heartbeat(TERM_MAX, -1, 1)), Received("a", TimeoutNow(TERM_MAX))):
        effects = node.step(message)

        assert not [effect for effect in effects if isinstance(effect, SaveHardState)]
        assert not [e for e in effects if isinstance(e, Send) and isinstance(e.message, VoteRequest)]
    assert node.saved.term == TERM_MAX
