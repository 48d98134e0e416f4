"""What nodes say to one another, as the core sees it.

Sender and receiver are not part of a message: they come with the event (`Received`) or the effect (`Send`).
Terms: a message always carries its sender's current term, except a pre-vote request, which carries the term that
the sender would have if it stood for election (dissertation §9.6).
"""

from __future__ import annotations

from dataclasses import dataclass

from dledger.types import Span


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """Ask for a vote, or (pre-vote) whether one would be given (Raft §5.2, §5.4.1; dissertation §9.6)."""

    term: int
    is_pre_vote: bool
    last_index: int
    last_term: int


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """Answer a vote request. A granted pre-vote echoes the request's term; a refused one carries the voter's."""

    term: int
    is_pre_vote: bool
    is_granted: bool


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Show that the leader lives. `commit_index` never exceeds what the receiver is known to hold."""

    term: int
    commit_index: int
    round: int


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    """Echo the round: in this term the sender still followed the leader when the round reached it."""

    term: int
    round: int


@dataclass(frozen=True, slots=True)
class Push:
    """Carry entries (AppendEntries of the paper, DLedger's PUSH).

    `span` is None in a probe, which only asks whether the logs agree at `prev_index`. `payload` holds the encoded
    entries, `span.length` bytes as they stand in the leader's file; in a `Send` effect it is None, and the driver
    reads it from the store.
    """

    term: int
    prev_index: int
    prev_term: int
    commit_index: int
    span: Span | None
    payload: bytes | None = None


@dataclass(frozen=True, slots=True)
class PushAccepted:
    """The follower's log equals the leader's up to `match_index`, and that is durable there."""

    term: int
    match_index: int


@dataclass(frozen=True, slots=True)
class PushRefused:
    """The push did not fit, or could not be taken.

    Attributes:
        rejected_prev_index: `prev_index` of the push, so that the leader can tell late answers.
        last_index: the follower's last index.
        conflict_term: the follower's term at `rejected_prev_index`; -1 when it has no entry there.
        conflict_first_index: the first index that the follower holds of `conflict_term`; -1 without one.
        is_disk_full: the entries would fit, but there is no room for them now.
    """

    term: int
    rejected_prev_index: int
    last_index: int
    conflict_term: int
    conflict_first_index: int
    is_disk_full: bool = False


Message = VoteRequest | VoteResponse | Heartbeat | HeartbeatResponse | Push | PushAccepted | PushRefused
