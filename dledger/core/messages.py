"""The messages between nodes, in the core's representation.

Sender and receiver are not part of a message: they come with the event (`Received`) or the effect (`Send`). Terms: a
message always carries its sender's current term, except a pre-vote request, which carries the term that the sender
would have as a candidate (dissertation §9.6). `group_id`, in messages of leaders and candidates: the group id in the
sender's log (`Membership.group_id`); a node of another group drops the message (`core.trust`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dledger.types import NO_GROUP, MembershipEntry, SnapshotInfo, Span


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """Ask for a vote, or (pre-vote) whether one would be given (Raft §5.2, §5.4.1; dissertation §9.6).

    Attributes:
        is_transfer: the leader asked the sender to campaign (dissertation §3.10): voters do not require that the leader
            has timed out.
        voter_incarnation: the incarnation of the receiver that has a vote, as far as the sender knows: a receiver with
            another one was wiped since, and its earlier votes and acknowledgements are lost.
        life: a random number of the sender's process, echoed in the answer: a candidate that was wiped may reach a term
            of an earlier process again, whose votes were for another log.
    """

    term: int
    is_pre_vote: bool
    last_index: int
    last_term: int
    is_transfer: bool = False
    voter_incarnation: int = 0
    life: int = 0
    group_id: int = NO_GROUP


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """Answer a vote request. A granted pre-vote echoes the request's term; a refused one carries the voter's.

    Attributes:
        is_founding: the voter's disk was empty (`HardState.is_founding`): it may have lost votes and acknowledgements.
        life: that of the request.
    """

    term: int
    is_pre_vote: bool
    is_granted: bool
    is_founding: bool = False
    life: int = 0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Show that the leader is alive. `commit_index` is at most the receiver's match index.

    Attributes:
        is_founding: this leader's election founded the group, and the receiver has given no other votes or
            acknowledgements yet: a founding receiver becomes a full member.
        renews_lease: the leader may serve reads by lease because of the answers to this round, so the receiver must not
            vote for another node within the shortest election timeout, even if the leader's process has ended. Leaders
            of earlier versions always rely on it.
    """

    term: int
    commit_index: int
    round: int
    is_founding: bool = False
    group_id: int = NO_GROUP
    renews_lease: bool = True


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    """Echo the round: the sender still followed the leader in this term when it received the round.

    Attributes:
        incarnation: of the sender (`HardState.incarnation`).
        is_healthy: its disk neither stalls nor is full; the leadership is not transferred to an unhealthy node.
        is_unmatched: the heartbeat's commit index exceeds what the sender has compared with this leader's log: it was
            restarted after it acknowledged those entries, and waits for a probe.
    """

    term: int
    round: int
    incarnation: int = 0
    is_healthy: bool = True
    is_unmatched: bool = False


@dataclass(frozen=True, slots=True)
class Push:
    """Carry entries (AppendEntries of the paper, DLedger's PUSH).

    `span` is None in a probe, which only asks whether the logs agree at `prev_index`. `payload` holds the encoded
    entries, `span.length` bytes as stored in the leader's file; in a `Send` effect it is None, and the driver reads it
    from the store. `prev_term` may be `UNKNOWN_TERM`: the leader no longer has that entry. `memberships` is never sent:
    the receiver's driver finds them in the payload. `is_founding`: see `Heartbeat`.

    `acknowledged_by`: the incarnation of the receiver that acknowledged the entry at `prev_index` in this term; None:
    not known. A receiver that has this incarnation and lacks the entry has lost it, and gives up its vote (ADR 29).
    """

    term: int
    prev_index: int
    prev_term: int
    commit_index: int
    span: Span | None
    payload: bytes | None = None
    is_founding: bool = False
    memberships: tuple[MembershipEntry, ...] = ()
    group_id: int = NO_GROUP
    acknowledged_by: int | None = None


@dataclass(frozen=True, slots=True)
class PushAccepted:
    """The follower's log equals the leader's up to `match_index`, and that is durable there.

    `incarnation` is the sender's (`HardState.incarnation`).
    """

    term: int
    match_index: int
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class PushRefused:
    """The push did not match the follower's log, or could not be stored.

    Attributes:
        rejected_prev_index: `prev_index` of the push, so that the leader recognises late answers.
        last_index: the follower's last index.
        conflict_term: the follower's term at `rejected_prev_index`; -1 when it has no entry there.
        conflict_first_index: the follower's first index of `conflict_term`; -1 without one.
        is_disk_full: the entries match, but do not fit on the disk now.
        is_corrupt: the bytes of the entries contradict their headers, or the push.
        is_contradicting: the follower knows that its own, different entries are committed, and truncates nothing.
    """

    term: int
    rejected_prev_index: int
    last_index: int
    conflict_term: int
    conflict_first_index: int
    is_disk_full: bool = False
    is_corrupt: bool = False
    is_contradicting: bool = False


@dataclass(frozen=True, slots=True)
class TimeoutNow:
    """Ask the receiver, which has every entry, to start an election at once (dissertation §3.10)."""

    term: int
    group_id: int = NO_GROUP


@dataclass(frozen=True, slots=True)
class ReadIndexRequest:
    """Ask the leader for an index up to which the sender may serve a linearizable read (dissertation §6.4).

    `read_id` is chosen by the sender, and echoed. No other process of the sender may use it: an answer to a request of
    an earlier process does not cover later acknowledgements.
    """

    term: int
    read_id: int


@dataclass(frozen=True, slots=True)
class ReadIndexResponse:
    """Answer `ReadIndexRequest`; `index` -1: no longer the leader, ask again."""

    term: int
    read_id: int
    index: int


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """Carry `length` bytes of a snapshot from `offset`; in a `Send` effect `payload` is None, the driver reads it."""

    term: int
    snapshot: SnapshotInfo
    offset: int
    length: int
    payload: bytes | None = None
    group_id: int = NO_GROUP


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """The number of received bytes of the snapshot up to entry `index`; all of them: it is verified and durable."""

    term: int
    index: int
    received_bytes: int


@dataclass(frozen=True, slots=True)
class ResetLog:
    """Restart the log of the receiver, which lacks entries that the leader deleted, at the start of the leader's log.

    The receiver answers with `PushAccepted(match_index=begin_index - 1)` when that is durable.

    Attributes:
        begin_index, begin_position: where the leader's log begins; everything before was committed. In a `Send` effect
            the position is -1, and the driver takes it from the store.
        prev_term: term of the entry before, or one not below it; `NO_TERM` before index 0.
        membership: the newest one that the leader knows to be committed, and the index of its entry; the entry may be
            in the log that follows.
        snapshot_index: last entry in the snapshot that was sent before; -1 without one.
        prev_chain_crc: chain checksum of the entry before, so that the header of the first entry is verified like any
            other; -1 when the leader no longer knows it. In a `Send` effect it is -1, and the driver takes it from the
            store.
        commit_index: the leader's: the receiver keeps its old log until the new one is committed up to here.
    """

    term: int
    begin_index: int
    begin_position: int
    prev_term: int
    membership: MembershipEntry
    snapshot_index: int = -1
    prev_chain_crc: int = -1
    commit_index: int = -1
    group_id: int = NO_GROUP


Message = (
    VoteRequest
    | VoteResponse
    | Heartbeat
    | HeartbeatResponse
    | Push
    | PushAccepted
    | PushRefused
    | TimeoutNow
    | ReadIndexRequest
    | ReadIndexResponse
    | SnapshotChunk
    | SnapshotProgress
    | ResetLog
)
# Only a leader sends these.
LEADERS_MESSAGES: Final = (Heartbeat, Push, TimeoutNow, SnapshotChunk, ResetLog)
# These carry the group id.
Grouped = VoteRequest | Heartbeat | Push | TimeoutNow | SnapshotChunk | ResetLog
GROUPED: Final = (VoteRequest, *LEADERS_MESSAGES)
