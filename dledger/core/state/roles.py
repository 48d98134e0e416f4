"""The state of a node in its role: one object for each role, replaced at every transition (`core.transitions`).

So no state of a role can outlive it by mistake: a node that becomes leader again has no progress of its followers yet,
and a follower of a new leader has compared no entry with it. State that outlives a role is in `core.state`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from dledger.types import NO_INDEX, Role

if TYPE_CHECKING:
    from dledger.core.state.progress import Progress


@dataclass(slots=True)
class AskedRead:
    """A follower's read that waits for the leader's read index; -1 until the leader has answered.

    `read_id` is the caller's; the request to the leader has another id, which no other process of this node uses.
    """

    read_id: int
    deadline_ms: int
    index: int = NO_INDEX


@dataclass(slots=True)
class PendingRead:
    """A linearizable read that waits for heartbeat `round` to be answered by a quorum and for `index` to commit.

    `peer` asked for it; None: this node's caller did.
    """

    read_id: int
    index: int
    round: int
    peer: str | None = None


@dataclass(slots=True)
class Change:
    """A membership change that was requested; done when `index` is committed."""

    request_id: int
    index: int


@dataclass(slots=True)
class Follower:
    """A node that follows a leader, or waits for one.

    Attributes:
        matched_index: the log equals the leader's up to here.
        deadline_ms: when the node becomes a candidate, unless a message of a leader arrives before.
        contact_ms: when the leader's last message arrived.
        lease_end_ms: until then the leader may serve reads by lease because of this node's answers.
        is_leader_gone: the leader's process has probably ended, and no message of it arrived since that was reported.
        is_needed: a candidate counts this node among the voters and has a shorter log, so that it cannot win without
            this node, although by its own log this node is not a voter.
        owes_acknowledgement: the leader has no acknowledgement yet that everything up to `matched_index` is durable.
        asked_reads: reads that wait for the leader's answer, or for its read index to commit here, by the id of the
            request to the leader.
        heartbeat_round: of the last heartbeat of this leader; 0 before the first one.
    """

    role: ClassVar[Role] = Role.FOLLOWER
    # In `[commit_index, log.last_index]`; a new follower begins with the commit index, because nothing else of its log
    # was compared with the new leader's.
    matched_index: int
    deadline_ms: int
    contact_ms: int
    # Never decreases. At most one shortest election timeout after `contact_ms`.
    lease_end_ms: int = 0
    # Only while a leader is known.
    is_leader_gone: bool = False
    is_needed: bool = False
    # Only while a leader is known and `persisted_index < matched_index`.
    owes_acknowledgement: bool = False
    # Empty without a leader. Keys are in `(life, last_asked_id]`.
    asked_reads: dict[int, AskedRead] = field(default_factory=dict)
    # A new follower begins with 0: another leader counts its own rounds.
    heartbeat_round: int = 0


@dataclass(slots=True)
class Candidate:
    """A node that requests votes or pre-votes.

    Attributes:
        is_pre_vote: it only requests pre-votes.
        is_asked_to_campaign: the leader transfers its leadership to it.
        deadline_ms: when it repeats the requests.
        votes: the voters that granted theirs.
        founding_votes: those of them that are founding.
    """

    role: ClassVar[Role] = Role.CANDIDATE
    is_pre_vote: bool
    # Never in a pre-vote: a transfer skips it.
    is_asked_to_campaign: bool
    deadline_ms: int
    # `founding_votes <= votes <= voters`: votes of non-voters are not counted.
    votes: set[str] = field(default_factory=set)
    founding_votes: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Leader:
    """A node that leads its term.

    Attributes:
        founders: the voters, if its election founded the group.
        term_start_index: index of its no-op; once that is committed, the leader knows of all earlier commits.
        preferred_due_ms: when to check for a preferred leader again.
        preferred_pause_ms: the pause after a failed transfer to a preferred leader; 0: none has failed.
        progress: its view of each follower.
        heartbeat_due_ms, round: the next heartbeat, and the number of the last one.
        lease_wanted_until_ms: until then rounds renew the lease, because reads by lease were requested.
        renews_lease: the last round does.
        round_times: when the latest rounds began, from which the lease is computed.
        is_lease_void: a follower was asked to campaign in this term, which may be elected without waiting for a
            timeout.
        reads: pending reads.
        change: the membership change whose request waits for an answer.
    """

    role: ClassVar[Role] = Role.LEADER
    # Emptied by the first change of members.
    founders: frozenset[str]
    # The first entry of this term; no read is served and no change begun before it is committed (Raft §8).
    term_start_index: int
    preferred_due_ms: int
    preferred_pause_ms: int = 0
    # One for each other member, never for this node; also for removed members until they are informed (`leaves_ms`).
    progress: dict[str, Progress] = field(default_factory=dict)
    heartbeat_due_ms: int = 0
    round: int = 0
    lease_wanted_until_ms: int = 0
    # The same for all heartbeats of a round, also for those that are sent again with another commit index.
    renews_lease: bool = False
    # Consecutive rounds that renew the lease, the last one is `round`; at most 64 are kept. Empty if the last round
    # does not: a follower may have received only that one, so no earlier round counts any more.
    round_times: deque[tuple[int, int]] = field(default_factory=deque)
    # Never reset in a term: the target of a transfer may campaign at any time, without waiting for a timeout.
    is_lease_void: bool = False
    # Each `index` is at least `term_start_index`; each `round` at most one above `round`.
    reads: list[PendingRead] = field(default_factory=list)
    # Its `index` is that of the last membership, which is not committed: one change at a time.
    change: Change | None = None


RoleState = Follower | Candidate | Leader
