"""Keeps the last events of a node, for all watchers together.

The memory is bounded whatever the number of watchers and however slow they are: each has only the sequence number of
the last event that it was given, and learns the number of events that were overwritten before it read them.

Not here: times and waiting; the caller passes a clock, and a function that wakes the watchers.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from dledger.core.events import (
    Observation,
    TransferBegun,
    TransferEnded,
    TransitionCause,
    Transitioned,
    VoteAnswered,
    VoteReceived,
)
from dledger.node.watching.events import EventDetails, EventKind, NodeEvent
from dledger.types import NO_INDEX, MembershipEntry, Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.fs.retention_rules import ClockReading

# A failover takes some ten events on each node, so this is a history of hours, or of minutes with a node that asks for
# pre-votes all the time. About 300 bytes each.
EVENTS_MAX: Final = 4_096
_NO_DETAILS: Final = EventDetails()
_BEGUN: Final = {
    TransitionCause.PRE_VOTE: EventKind.PRE_VOTE_BEGUN,
    TransitionCause.VOTE: EventKind.ELECTION_BEGUN,
    TransitionCause.ELECTED: EventKind.ELECTED,
}


class EventRecorder:
    """The last events of one node. Loop thread only.

    Args:
        read_clocks: wall clock and monotonic clock.
        wake: called after each event.
        role, term, leader_id: of the node now.
        events_max: the number of events that are kept.
    """

    def __init__(
        self,
        read_clocks: Callable[[], ClockReading],
        wake: Callable[[], None],
        *,
        role: Role = Role.FOLLOWER,
        term: int = 0,
        leader_id: str | None = None,
        events_max: int = EVENTS_MAX,
    ) -> None:
        self._read_clocks = read_clocks
        self._wake = wake
        # As of the last transition. The core's own state is already that after the whole step.
        self._role, self._term, self._leader_id = role, term, leader_id
        # Sequence numbers are consecutive; the last one is `last_sequence`.
        self._events: deque[NodeEvent] = deque(maxlen=events_max)
        self.last_sequence = 0

    # --------------------------------------------------------------------------------------------------------- input

    def observe(self, observation: Observation) -> None:
        """Record a transition, a vote or a transfer."""
        match observation:
            case Transitioned():
                self._transition(observation)
            case VoteAnswered(peer_id, term, is_pre_vote, is_granted):
                self._add(EventKind.VOTE_ANSWERED, EventDetails(peer_id, term, is_pre_vote, is_granted))
            case VoteReceived(peer_id, term, is_pre_vote, is_granted):
                self._add(EventKind.VOTE_RECEIVED, EventDetails(peer_id, term, is_pre_vote, is_granted))
            case TransferBegun(target):
                self._add(EventKind.TRANSFER_BEGUN, EventDetails(target))
            case TransferEnded(target, leader_id):
                self._add(EventKind.TRANSFER_ENDED, EventDetails(target, is_granted=target == leader_id))

    def membership(self, entry: MembershipEntry, *, is_committed: bool) -> None:
        """Record the members in force."""
        details = EventDetails(
            index=None if entry.index == NO_INDEX else entry.index,
            members=entry.membership.members,
            is_committed=is_committed,
        )
        self._add(EventKind.MEMBERSHIP_CHANGED, details)

    def truncated(self, first_index: int) -> None:
        """Record that entries from `first_index` on were truncated here."""
        self._add(EventKind.LOG_TRUNCATED, EventDetails(index=first_index))

    def reset(self, begin_index: int) -> None:
        """Record that the log was set aside and begins at `begin_index`."""
        self._add(EventKind.LOG_RESET, EventDetails(index=begin_index))

    def peer(self, kind: EventKind, peer_id: str, cause: str | None = None) -> None:
        """Record a change of a follower, as its leader sees it."""
        self._add(kind, EventDetails(peer_id, cause=cause))

    # -------------------------------------------------------------------------------------------------------- output

    def after(self, sequence: int, count_max: int) -> list[NodeEvent]:
        """Return the next events after `sequence`, at least 0, in order; a gap first if some are not kept any more.

        Args:
            sequence: of the last event that the watcher has, at most `last_sequence`.
            count_max: of events besides the gap.
        """
        assert 0 <= sequence <= self.last_sequence, (sequence, self.last_sequence)
        first_kept = self.last_sequence - len(self._events) + 1
        found: list[NodeEvent] = []
        if sequence < first_kept - 1:
            found.append(self._gap(sequence, first_kept - 1))
            sequence = first_kept - 1
        begin = sequence + 1 - first_kept
        end = min(begin + count_max, len(self._events))
        # A deque has no slices; events at its end, which watchers usually ask for, are found at once.
        found += [self._events[number] for number in range(begin, end)]
        return found

    def _gap(self, sequence: int, last_lost: int) -> NodeEvent:
        details = EventDetails(lost_count=last_lost - sequence)
        return NodeEvent(last_lost, EventKind.GAP, None, None, self._role, self._term, self._leader_id, details)

    # --------------------------------------------------------------------------------------------------------- parts

    def _transition(self, transition: Transitioned) -> None:
        before = self._leader_id
        self._role, self._term, self._leader_id = transition.role, transition.term, transition.leader_id
        kind = _BEGUN.get(transition.cause)
        if kind is not None:
            self._add(kind, _NO_DETAILS)
            return
        cause = EventDetails(cause=transition.cause.value)
        if transition.origin is Role.CANDIDATE:
            self._add(EventKind.ELECTION_LOST, cause)
        elif transition.origin is Role.LEADER:
            self._add(EventKind.STEPPED_DOWN, cause)
        elif transition.leader_id is not None:
            self._add(EventKind.LEADER_SEEN, _NO_DETAILS)
        elif transition.cause is TransitionCause.LEADER_LOST:
            self._add(EventKind.LEADER_LOST, EventDetails(before, cause=transition.cause.value))
        else:
            self._add(EventKind.TERM_RAISED, _NO_DETAILS)

    def _add(self, kind: EventKind, details: EventDetails) -> None:
        clocks = self._read_clocks()
        self.last_sequence += 1
        event = NodeEvent(
            self.last_sequence,
            kind,
            int(clocks.wall_s * 1_000),
            int(clocks.monotonic_s * 1_000),
            self._role,
            self._term,
            self._leader_id,
            details,
        )
        self._events.append(event)
        self._wake()
