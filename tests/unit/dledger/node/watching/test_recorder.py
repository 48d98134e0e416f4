"""The last events of a node: what each observation becomes, their order and bound, and gaps of slow readers."""

from __future__ import annotations

import pytest

from dledger.core.events import (
    TransferBegun,
    TransferEnded,
    TransitionCause,
    Transitioned,
    VoteAnswered,
    VoteReceived,
)
from dledger.node.watching.events import EventDetails, EventKind
from dledger.node.watching.recorder import EventRecorder
from dledger.types import Member, Membership, MembershipEntry, Role
from store.fs.retention_rules import ClockReading

F, C, L = Role.FOLLOWER, Role.CANDIDATE, Role.LEADER
CLOCK = ClockReading(wall_s=1_700_000_000.5, monotonic_s=12.25, hour=3)


class Recorder:
    """A recorder with a fixed clock; `wakes` counts how often it woke its watchers."""

    def __init__(self, events_max=100):
        self.wakes = 0
        self.recorder = EventRecorder(lambda: CLOCK, self.wake, term=4, events_max=events_max)

    def wake(self):
        self.wakes += 1

    def kinds(self, *observations):
        begin = self.recorder.last_sequence
        for observation in observations:
            self.recorder.observe(observation)
        return [event.kind for event in self.recorder.after(begin, 1_000)]


def changed(cause, origin, role, term=5, leader_id=None):
    return Transitioned(cause, origin, role, term, leader_id)


def test_an_election_is_recorded_from_the_pre_vote_to_the_leader():
    kinds = Recorder().kinds(
        changed(TransitionCause.PRE_VOTE, F, C, term=4),
        VoteReceived("b", 5, is_pre_vote=True, is_granted=True),
        changed(TransitionCause.VOTE, C, C),
        VoteReceived("b", 5, is_pre_vote=False, is_granted=True),
        changed(TransitionCause.ELECTED, C, L, leader_id="a"),
    )

    begun = [EventKind.PRE_VOTE_BEGUN, EventKind.VOTE_RECEIVED, EventKind.ELECTION_BEGUN, EventKind.VOTE_RECEIVED]
    assert kinds == [*begun, EventKind.ELECTED]


@pytest.mark.parametrize(
    ("transition", "kind", "cause"),
    [
        (changed(TransitionCause.LEADER_SEEN, C, F, leader_id="b"), EventKind.ELECTION_LOST, True),
        (changed(TransitionCause.DISK_STALLED, C, F), EventKind.ELECTION_LOST, True),
        (changed(TransitionCause.NEWER_TERM, L, F, leader_id="b"), EventKind.STEPPED_DOWN, True),
        (changed(TransitionCause.QUORUM_LOST, L, F), EventKind.STEPPED_DOWN, True),
        (changed(TransitionCause.NEWER_TERM, F, F, leader_id="b"), EventKind.LEADER_SEEN, False),
        (changed(TransitionCause.NEWER_TERM, F, F), EventKind.TERM_RAISED, False),
        (changed(TransitionCause.LEADER_LOST, F, F), EventKind.LEADER_LOST, True),
    ],
)
def test_the_end_of_a_role_is_named_after_the_role_and_has_its_cause(transition, kind, cause):
    recorder = Recorder().recorder
    recorder.observe(transition)

    event = recorder.after(0, 1)[0]
    assert (event.kind, event.role, event.term, event.leader_id) == (kind, F, 5, transition.leader_id)
    assert event.details.cause == (transition.cause.value if cause else None)


def test_the_leader_that_was_lost_is_named():
    recorder = Recorder().recorder
    recorder.observe(changed(TransitionCause.LEADER_SEEN, F, F, leader_id="b"))
    recorder.observe(changed(TransitionCause.LEADER_LOST, F, F))

    assert recorder.after(1, 1)[0].details.peer_id == "b"


def test_votes_and_transfers_name_the_other_node_and_the_result():
    recorder = Recorder().recorder
    recorder.observe(VoteAnswered("b", 7, is_pre_vote=True, is_granted=False))
    recorder.observe(TransferBegun("c"))
    recorder.observe(TransferEnded("c", "c"))
    recorder.observe(TransferEnded("c", "b"))
    recorder.observe(TransferEnded("c", None))

    vote, *transfers = recorder.after(0, 10)
    assert (vote.kind, vote.details) == (EventKind.VOTE_ANSWERED, EventDetails("b", 7, True, False))
    assert [(event.kind, event.details.peer_id, event.details.is_granted) for event in transfers] == [
        (EventKind.TRANSFER_BEGUN, "c", None),
        (EventKind.TRANSFER_ENDED, "c", True),
        (EventKind.TRANSFER_ENDED, "c", False),
        (EventKind.TRANSFER_ENDED, "c", False),
    ]
    assert (vote.role, vote.term, vote.leader_id) == (F, 4, None), "a vote changes no role"


def test_members_from_the_settings_have_no_index():
    recorder = Recorder().recorder
    members = (Member("a"), Member("b", is_voter=False))
    recorder.membership(MembershipEntry(-1, Membership(members)), is_committed=True)
    recorder.membership(MembershipEntry(9, Membership(members)), is_committed=False)

    details = [event.details for event in recorder.after(0, 10)]
    assert [(each.index, each.is_committed, each.members) for each in details] == [
        (None, True, members),
        (9, False, members),
    ]


def test_each_event_has_a_number_and_both_clocks_and_wakes_the_watchers():
    given = Recorder()
    given.recorder.truncated(17)
    given.recorder.reset(40)
    given.recorder.peer(EventKind.PEER_LOST, "b")

    events = given.recorder.after(0, 10)
    assert [(event.sequence, event.wall_ms, event.monotonic_ms) for event in events] == [
        (number, 1_700_000_000_500, 12_250) for number in (1, 2, 3)
    ]
    assert given.wakes == 3


def test_a_reader_that_is_too_slow_gets_a_gap_with_the_number_of_lost_events():
    recorder = Recorder(events_max=3).recorder
    for index in range(10):
        recorder.truncated(index)

    gap, *kept = recorder.after(2, 10)

    assert (gap.kind, gap.sequence, gap.details.lost_count) == (EventKind.GAP, 7, 5)
    assert (gap.wall_ms, gap.monotonic_ms) == (None, None)
    assert [event.details.index for event in kept] == [7, 8, 9]
    assert [event.kind for event in recorder.after(7, 10)] == [EventKind.LOG_TRUNCATED] * 3, "7 is the last lost one"


def test_a_gap_alone_is_followed_by_the_rest_at_the_next_read():
    recorder = Recorder(events_max=3).recorder
    for index in range(10):
        recorder.truncated(index)

    found = recorder.after(0, 2)
    assert [event.sequence for event in found] == [7, 8, 9]
    assert [event.sequence for event in recorder.after(found[-1].sequence, 2)] == [10]
    assert recorder.after(10, 2) == []
