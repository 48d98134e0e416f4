"""Followers that are lost or stall, found by comparing a leader's view with that of before."""

from __future__ import annotations

from dledger.node.watching.events import EventKind
from dledger.node.watching.stalls import PeerChange, PeerView, StallWatch

LIMIT_MS = 1_000


def view(match_index=5, *, sent_bytes=0, lacks_entries=True, is_live=True):
    return PeerView((match_index, sent_bytes), lacks_entries, is_live, "the cause")


def test_a_follower_that_acknowledges_nothing_for_the_limit_stalls_and_resumes_with_the_next_entry():
    watch = StallWatch(LIMIT_MS)

    assert watch.look(0, {"b": view()}) == []
    assert watch.look(LIMIT_MS - 1, {"b": view()}) == []
    assert not watch.is_stalled("b")
    assert watch.look(LIMIT_MS, {"b": view()}) == [PeerChange(EventKind.PUSH_STALLED, "b", "the cause")]
    assert watch.is_stalled("b")
    assert watch.look(LIMIT_MS + 1, {"b": view()}) == []
    assert watch.look(LIMIT_MS + 2, {"b": view(6)}) == [PeerChange(EventKind.PUSH_RESUMED, "b", None)]
    assert not watch.is_stalled("b")


def test_a_follower_with_all_entries_never_stalls_and_time_counts_from_the_first_that_it_lacks():
    watch = StallWatch(LIMIT_MS)

    assert watch.look(0, {"b": view(lacks_entries=False)}) == []
    assert watch.look(9 * LIMIT_MS, {"b": view(lacks_entries=False)}) == []
    assert watch.look(10 * LIMIT_MS - 1, {"b": view()}) == []
    assert [change.kind for change in watch.look(10 * LIMIT_MS, {"b": view()})] == [EventKind.PUSH_STALLED]


def test_bytes_of_a_snapshot_are_progress():
    watch = StallWatch(LIMIT_MS)

    for number in range(10):
        assert watch.look(number * (LIMIT_MS - 1), {"b": view(-1, sent_bytes=number)}) == []


def test_a_follower_that_answers_no_more_is_lost_once_and_back_once():
    watch = StallWatch(LIMIT_MS)
    lost, live = view(lacks_entries=False, is_live=False), view(lacks_entries=False)

    assert [watch.look(now_ms, {"b": each}) for now_ms, each in enumerate((live, lost, lost, live, live))] == [
        [],
        [PeerChange(EventKind.PEER_LOST, "b", None)],
        [],
        [PeerChange(EventKind.PEER_BACK, "b", None)],
        [],
    ]


def test_removed_followers_and_those_of_an_earlier_leadership_are_forgotten():
    watch = StallWatch(LIMIT_MS)
    watch.look(0, {"b": view(), "c": view()})
    watch.look(LIMIT_MS, {"b": view(), "c": view()})

    assert watch.look(LIMIT_MS, {"b": view()}) == []
    assert (watch.is_stalled("b"), watch.is_stalled("c")) == (True, False)
    watch.forget()
    assert not watch.is_stalled("b")
    assert watch.look(2 * LIMIT_MS, {"b": view()}) == []
