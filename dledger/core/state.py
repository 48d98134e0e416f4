"""The state of one node's consensus, in one place, and the two ways out of it: effects and messages.

The functions of `election`, `leader`, `follower` and `transitions` are the only writers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dledger.core.config import RaftConfig
from dledger.core.events import Effect, Send
from dledger.core.log_tail import LogTail
from dledger.core.messages import Message
from dledger.core.progress import Progress
from dledger.core.quorum import quorum_of
from dledger.types import NO_INDEX, Role, Span

# (first_index, last_index_max, size_bytes_max) -> the longest span from first_index that one push can carry.
Fit = Callable[[int, int, int], Span]
# (begin, end) -> a number in [begin, end), from a generator that the owner seeded.
Draw = Callable[[int, int], int]


@dataclass(slots=True)
class PendingRead:
    """A linearizable read that waits for heartbeat `round` to be answered by a quorum and for `index` to commit."""

    read_id: int
    index: int
    round: int


@dataclass(slots=True)
class State:
    """All that one node's consensus remembers.

    Attributes:
        self_id, voters, others: who we are, all voters in a fixed order, and those that are not us.
        term, voted_for: the hard state (Raft figure 2).
        commit_index: last index known to be committed; never falls.
        written_index: last index that the store holds and that may be pushed.
        persisted_index: last index that is durable here.
        now_ms: time of the last tick.
        election_deadline_ms: when a follower or candidate stands (again) for election.
        leader_contact_ms: when the known leader last showed itself; meaningless while `leader_id` is None.
        matched_index: follower: our log equals the leader's up to here.
        owes_acknowledgement: follower: the leader has not been told yet that all of that is durable.
        is_pre_vote, votes: candidate: which question is open, and who said yes.
        term_start_index: leader: index of our no-op; what was committed before it is known once it is committed.
        heartbeat_due_ms, round, reads: leader: the next heartbeat, its number, reads that wait for an answer.
    """

    config: RaftConfig
    self_id: str
    voters: tuple[str, ...]
    log: LogTail
    fit: Fit
    draw: Draw
    term: int
    voted_for: str | None
    others: tuple[str, ...] = ()
    role: Role = Role.FOLLOWER
    leader_id: str | None = None
    commit_index: int = NO_INDEX
    written_index: int = NO_INDEX
    persisted_index: int = NO_INDEX
    now_ms: int = 0
    election_deadline_ms: int = 0
    leader_contact_ms: int = 0
    matched_index: int = NO_INDEX
    owes_acknowledgement: bool = False
    is_pre_vote: bool = False
    votes: set[str] = field(default_factory=set)
    progress: dict[str, Progress] = field(default_factory=dict)
    term_start_index: int = NO_INDEX
    heartbeat_due_ms: int = 0
    round: int = 0
    reads: list[PendingRead] = field(default_factory=list)
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
