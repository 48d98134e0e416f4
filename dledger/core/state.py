"""The state of one node's consensus, in one place, and the two ways out of it: effects and messages.

The functions of `election`, `leader`, `follower` and `transitions` are the only writers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dledger.core.config import RaftConfig
from dledger.core.events import Effect, Send
from dledger.core.log_tail import LogTail
from dledger.core.messages import Message
from dledger.core.progress import Progress
from dledger.core.quorum import quorum_of
from dledger.types import NO_INDEX, MembershipEntry, Role, SnapshotInfo, Span

# (first_index, last_index_max, size_bytes_max) -> the longest span from first_index that one push can carry.
Fit = Callable[[int, int, int], Span]
# (begin, end) -> a number in [begin, end), from a generator that the owner seeded.
Draw = Callable[[int, int], int]
# Lives are drawn from [1, here): two of them hardly ever come near one another, and ids behind one fit 63 bits.
LIFE_END: Final = 1 << 61


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
class AskedRead:
    """A follower's read: the leader was asked for its read index, which is -1 until it has answered.

    `read_id` is its owner's; the leader knows it by another one, which no other life of this node uses.
    """

    read_id: int
    deadline_ms: int
    index: int = NO_INDEX


@dataclass(slots=True)
class Transfer:
    """A leadership that is being handed to `target`; `request_id` None: we wanted it ourselves."""

    target: str
    request_id: int | None
    deadline_ms: int


@dataclass(slots=True)
class Change:
    """A membership change that somebody asked for; done when `index` is committed."""

    request_id: int
    index: int


@dataclass(slots=True)
class State:
    """All that one node's consensus remembers.

    Attributes:
        self_id: who we are.
        memberships, voters, incarnations: see `core.membership`, which keeps them.
        term, voted_for, is_founding, incarnation: the hard state (`dledger.types.HardState`).
        commit_index: last index known to be committed; never falls.
        written_index: last index that the store holds and that may be pushed.
        persisted_index: last index that is durable here.
        life: a random number of this process, to tell answers to it from those to an earlier one (ADR 17).
        last_asked_id: id of the last read that the leader was asked for; the first one is behind `life`.
        now_ms: time of the last tick.
        quiet_until_ms: we do not vote before: we have just started and may have heard a leader moments ago.
        is_disk_sick: the disk stalls, or did a short while ago.
        is_disk_stalling: it stalls now.
        turns_left_to_others: how often a node with a sick disk could have stood, since it last heard of a leader.
        election_deadline_ms: when a follower or candidate stands (again) for election.
        leader_contact_ms: when the known leader last showed itself; meaningless while `leader_id` is None.
        matched_index: follower: our log equals the leader's up to here.
        owes_acknowledgement: follower: the leader has not been told yet that all of that is durable.
        asked_reads: follower: reads that wait for the leader's answer, or for its read index to commit here, by the id
            under which the leader was asked.
        incoming: follower: a snapshot that is being received, and how much of it is here.
        stored: the snapshot that was received last and is whole.
        is_pre_vote, votes: candidate: which question is open, and who said yes.
        founding_votes: candidate: those of `votes` that have no past.
        is_asked_to_stand: candidate: the leader handed over.
        progress: leader: what it knows of each follower.
        founders: leader: the voters, if its election founded the group.
        term_start_index: leader: index of our no-op; what was committed before it is known once it is committed.
        heartbeat_due_ms, round, reads: leader: the next heartbeat, its number, reads that wait for an answer.
        round_times: leader: when the latest rounds began; for the lease.
        is_lease_void: leader: in this term a follower was asked to stand, so that silence no longer protects us.
        transfer: leader, or one that was until just now: the leadership that it hands on.
        change: leader: the membership change that somebody waits for.
        preferred_due_ms, preferred_pause_ms: leader: when to look for a preferred leader again, and the pause behind
            an attempt that failed.
        snapshot: the newest one that our own state machine saved.
    """

    config: RaftConfig
    self_id: str
    memberships: list[MembershipEntry]
    log: LogTail
    fit: Fit
    draw: Draw
    term: int
    voted_for: str | None
    life: int
    last_asked_id: int
    is_founding: bool = False
    incarnation: int = 0
    voters: tuple[str, ...] = ()
    incarnations: dict[str, int] = field(default_factory=dict)
    role: Role = Role.FOLLOWER
    leader_id: str | None = None
    commit_index: int = NO_INDEX
    written_index: int = NO_INDEX
    persisted_index: int = NO_INDEX
    now_ms: int = 0
    quiet_until_ms: int = 0
    is_disk_sick: bool = False
    is_disk_stalling: bool = False
    turns_left_to_others: int = 0
    election_deadline_ms: int = 0
    leader_contact_ms: int = 0
    matched_index: int = NO_INDEX
    owes_acknowledgement: bool = False
    asked_reads: dict[int, AskedRead] = field(default_factory=dict)
    incoming: tuple[SnapshotInfo, int] | None = None
    stored: SnapshotInfo | None = None
    is_pre_vote: bool = False
    votes: set[str] = field(default_factory=set)
    founding_votes: set[str] = field(default_factory=set)
    is_asked_to_stand: bool = False
    progress: dict[str, Progress] = field(default_factory=dict)
    founders: frozenset[str] = frozenset()
    term_start_index: int = NO_INDEX
    heartbeat_due_ms: int = 0
    round: int = 0
    reads: list[PendingRead] = field(default_factory=list)
    round_times: deque[tuple[int, int]] = field(default_factory=deque)
    is_lease_void: bool = False
    transfer: Transfer | None = None
    change: Change | None = None
    preferred_due_ms: int = 0
    preferred_pause_ms: int = 0
    snapshot: SnapshotInfo | None = None
    effects: list[Effect] = field(default_factory=list)

    @property
    def quorum(self) -> int:
        """How many voters make a majority."""
        return quorum_of(len(self.voters))

    def emit(self, effect: Effect) -> None:
        """Add an effect to those of this step."""
        self.effects.append(effect)

    def send(self, peer: str, message: Message) -> None:
        """Send `message` to `peer` as an effect of this step."""
        self.effects.append(Send(peer, message))
