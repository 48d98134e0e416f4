"""What a node remembers in its role: one object a role, replaced at every transition (`core.transitions`).

So nothing of a role outlives it by oversight: a node that leads again begins with nothing known of the followers, and a
follower of another leader has compared nothing with it yet. What outlives roles is in `core.state`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar

from dledger.core.state.progress import Progress
from dledger.types import NO_INDEX, Role


@dataclass(slots=True)
class AskedRead:
    """A follower's read: the leader was asked for its read index, which is -1 until it has answered.

    `read_id` is its owner's; the leader knows it by another one, which no other life of this node uses.
    """

    read_id: int
    deadline_ms: int
    index: int = NO_INDEX


@dataclass(slots=True)
class PendingRead:
    """A linearizable read that waits for heartbeat `round` to be answered by a quorum and for `index` to commit.

    `peer` asked for it; None: our own owner did.
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
        deadline_ms: when the node becomes a candidate, unless a leader shows itself before.
        contact_ms: when the leader last showed itself.
        is_needed: a candidate counts this node among the voters and has a shorter log, so that it cannot win without
            this node; by the memberships of its own log, this node is no voter.
        owes_acknowledgement: the leader was not answered yet that all up to `matched_index` is durable.
        asked_reads: reads that wait for the leader's answer, or for its read index to commit here, by the id under
            which the leader was asked.
    """

    role: ClassVar[Role] = Role.FOLLOWER
    matched_index: int
    deadline_ms: int
    contact_ms: int
    is_needed: bool = False
    owes_acknowledgement: bool = False
    asked_reads: dict[int, AskedRead] = field(default_factory=dict)


@dataclass(slots=True)
class Candidate:
    """A node that asks for votes, or whether it would get them.

    Attributes:
        is_pre_vote: it only asks whether.
        is_asked_to_stand: the leader handed over to it.
        deadline_ms: when it asks again.
        votes: the voters that said yes.
        founding_votes: those of them that have no past.
    """

    role: ClassVar[Role] = Role.CANDIDATE
    is_pre_vote: bool
    is_asked_to_stand: bool
    deadline_ms: int
    votes: set[str] = field(default_factory=set)
    founding_votes: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Leader:
    """A node that leads its term.

    Attributes:
        founders: the voters, if its election founded the group.
        term_start_index: of its no-op; what was committed before it is known once it is committed.
        preferred_due_ms: when to look for a preferred leader again.
        preferred_pause_ms: the pause after an attempt to hand over to one that failed; 0: none has.
        progress: what it knows of each follower.
        heartbeat_due_ms, round: the next heartbeat, and the number of the last one.
        round_times: when the latest rounds began; for the lease.
        is_lease_void: a follower was asked to campaign in this term, so that silence no longer protects the lease.
        reads: those that wait for an answer.
        change: the membership change whose request waits for an answer.
    """

    role: ClassVar[Role] = Role.LEADER
    founders: frozenset[str]
    term_start_index: int
    preferred_due_ms: int
    preferred_pause_ms: int = 0
    progress: dict[str, Progress] = field(default_factory=dict)
    heartbeat_due_ms: int = 0
    round: int = 0
    round_times: deque[tuple[int, int]] = field(default_factory=deque)
    is_lease_void: bool = False
    reads: list[PendingRead] = field(default_factory=list)
    change: Change | None = None


Office = Follower | Candidate | Leader
