"""The events of one node that a console shows. Pure data; `dledger.service.watch` sends them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dledger.types import Member, Role


class EventKind(Enum):
    """What happened; the numbers are those of `WatchEventKind` in proto/dledger/v1/watch.proto."""

    GAP = 1
    PRE_VOTE_BEGUN = 2
    ELECTION_BEGUN = 3
    ELECTED = 4
    ELECTION_LOST = 5
    STEPPED_DOWN = 6
    LEADER_SEEN = 7
    LEADER_LOST = 8
    TERM_RAISED = 9
    VOTE_ANSWERED = 10
    VOTE_RECEIVED = 11
    TRANSFER_BEGUN = 12
    TRANSFER_ENDED = 13
    MEMBERSHIP_CHANGED = 14
    PUSH_STALLED = 15
    PUSH_RESUMED = 16
    PEER_LOST = 17
    PEER_BACK = 18
    LOG_TRUNCATED = 19
    LOG_RESET = 20


@dataclass(frozen=True, slots=True)
class EventDetails:
    """What an event says besides its kind; None where it does not apply.

    Attributes:
        peer_id: the other node: a candidate, a voter, the target of a transfer, a follower.
        vote_term: of votes, the term for which the candidate asked.
        is_pre_vote: of votes.
        is_granted: of votes; of the end of a transfer: the target leads.
        cause: text for people.
        index: of the entry with the members, or the first one that was truncated, or begins the log.
        members: those in force.
        is_committed: the entry with the members is known to be committed.
        lost_count: of a gap, the number of lost events.
    """

    peer_id: str | None = None
    vote_term: int | None = None
    is_pre_vote: bool | None = None
    is_granted: bool | None = None
    cause: str | None = None
    index: int | None = None
    members: tuple[Member, ...] = ()
    is_committed: bool | None = None
    lost_count: int | None = None


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One event of one node.

    Attributes:
        sequence: ascending without gaps, from 1 for each process; of a gap: that of the last lost event.
        kind: what happened.
        wall_ms: milliseconds since 1970; None: a gap.
        monotonic_ms: milliseconds of a monotonic clock of any origin; None: a gap.
        role, term, leader_id: of the node after the event; a leader that is not known is None.
        details: of this kind.
    """

    sequence: int
    kind: EventKind
    wall_ms: int | None
    monotonic_ms: int | None
    role: Role
    term: int
    leader_id: str | None
    details: EventDetails
