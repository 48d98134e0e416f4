"""Events of watched nodes as text and as plain values."""

from __future__ import annotations

import pytest

from dledger.client.watch_text import event_text, kind_name, plain_fields
from dledger.v1.member_pb2 import Member
from dledger.v1.watch_pb2 import WatchEvent, WatchEventKind, WatchPeer, WatchState

MEMBERS = [Member(id="n0", is_voter=True), Member(id="n1")]


@pytest.mark.parametrize(
    ("kind", "fields", "text"),
    [
        ("GAP", {"lost_count": 7}, "7 events are lost"),
        ("PRE_VOTE_BEGUN", {"term": 4}, "asks for pre-votes for term 5"),
        ("ELECTION_BEGUN", {"term": 5}, "is candidate in term 5"),
        ("ELECTED", {"term": 5}, "leads term 5"),
        ("ELECTION_LOST", {"cause": "why"}, "is no longer candidate: why"),
        ("STEPPED_DOWN", {}, "is no longer leader"),
        ("LEADER_SEEN", {"term": 5, "leader_id": "n2"}, "follows n2 in term 5"),
        ("LEADER_LOST", {"peer_id": "n2"}, "gets no messages of n2"),
        ("LEADER_LOST", {}, "gets no messages of a leader"),
        (
            "VOTE_ANSWERED",
            {"peer_id": "n1", "vote_term": 5, "is_pre_vote": True, "is_granted": True},
            "gives n1 its pre-vote for term 5",
        ),
        ("VOTE_ANSWERED", {"peer_id": "n1", "vote_term": 5}, "refuses n1 its vote for term 5"),
        ("VOTE_RECEIVED", {"peer_id": "n1", "vote_term": 5, "is_granted": True}, "gets the vote for term 5 of n1"),
        ("VOTE_RECEIVED", {"peer_id": "n1", "vote_term": 5}, "does not get the vote for term 5 of n1"),
        ("TRANSFER_ENDED", {"peer_id": "n1", "is_granted": True}, "transferred its leadership to n1"),
        ("TRANSFER_ENDED", {"peer_id": "n1"}, "did not transfer its leadership to n1"),
        ("MEMBERSHIP_CHANGED", {"members": MEMBERS, "index": 9}, "has members n0 (n1) by entry 9, not committed yet"),
        ("MEMBERSHIP_CHANGED", {"members": MEMBERS, "is_committed": True}, "has members n0 (n1) by the settings"),
        ("PUSH_STALLED", {"peer_id": "n1", "cause": "why"}, "n1 receives no entries: why"),
    ],
)
def test_each_event_is_one_line(kind: str, fields: dict[str, object], text: str) -> None:
    event = WatchEvent(kind=WatchEventKind.Value(f"WATCH_EVENT_KIND_{kind}"), **fields)  # type: ignore[arg-type]

    assert event_text(event) == text
    assert kind_name(event) == kind.lower()


@pytest.mark.parametrize("kind", WatchEventKind.values())
def test_every_kind_has_a_text(kind: WatchEventKind.ValueType) -> None:
    text = event_text(WatchEvent(kind=kind, peer_id="n1", index=3))

    assert text
    assert "None" not in text


def test_a_kind_of_a_newer_node_is_shown_by_its_number() -> None:
    event = WatchEvent.FromString(WatchEvent(sequence=1).SerializeToString() + b"\x10\x63")

    assert (kind_name(event), event_text(event)) == ("kind_99", "kind 99")


def test_absent_fields_are_left_out_and_others_are_there_even_if_they_are_zero() -> None:
    plain = plain_fields(WatchState(self_id="7", commit_index=0, peers=[WatchPeer(id="n1", sent_index=5)]))

    assert (plain["self_id"], plain["commit_index"], plain["term"], plain["is_disk_full"]) == ("7", 0, 0, False)
    assert not {"last_index", "leader_id", "snapshot_index"} & set(plain)
    peer = plain["peers"][0]
    assert (peer["sent_index"], "match_index" in peer) == (5, False)
