"""The whole contract of the consensus core in one file: events in, effects out.

The core never blocks, reads no clock and does no I/O: the driver feeds it events and executes the effects *in
order*. An effect of one step is done before the next event is fed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any

from dledger.errors import ResponseCode
from dledger.types import NO_GROUP, MembershipEntry, Role, SnapshotInfo

if TYPE_CHECKING:
    from dledger.core.messages import Message, Push, SnapshotChunk

# ---------------------------------------------------------------------------------------------------- events in


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes: `now_ms` on a monotonic clock of any origin; never smaller than the one before."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class Received:
    """A message from a peer arrived."""

    sender: str
    message: Message


@dataclass(frozen=True, slots=True)
class Propose:
    """Append `count` (> 0) new entries if this node leads. `proposal` is opaque and comes back in the effect."""

    proposal: Any
    count: int


@dataclass(frozen=True, slots=True)
class Written:
    """The entries of `AppendProposal` are in the store and can be read: they may be pushed (dissertation §10.2.1)."""

    last_index: int


@dataclass(frozen=True, slots=True)
class Persisted:
    """Entries up to `last_index` are durable here (except those that were truncated since)."""

    last_index: int


@dataclass(frozen=True, slots=True)
class PushNotTaken:
    """The driver could not offer `push` of `sender` to the core: no disk space, or (`is_corrupt`) invalid bytes."""

    sender: str
    push: Push
    is_corrupt: bool = False


@dataclass(frozen=True, slots=True)
class PeerUnreachable:
    """The connection to a peer broke: everything in flight to it may be lost."""

    peer: str


@dataclass(frozen=True, slots=True)
class PeerGone:
    """All connections with `peer` have ended, and its host refuses new ones: its process has probably ended.

    It is no proof: the process may live, but a firewall refuses connections to it, or it has closed its port. It may be
    reported repeatedly.
    """

    peer: str


@dataclass(frozen=True, slots=True)
class ReadIndex:
    """Ask for an index up to which a linearizable read may be served (dissertation §6.4); any member may be asked.

    `is_lease_allowed`: the leader may answer without a round of heartbeats while its lease lasts (§6.4.1).
    """

    read_id: int
    is_lease_allowed: bool = False


@dataclass(frozen=True, slots=True)
class TransferLeadership:
    """Transfer the leadership to `target`; `request_id` comes back in `RequestEnded`."""

    request_id: int
    target: str


class MembershipAction(StrEnum):
    """What `ChangeMembership` does."""

    ADD = "add"
    PROMOTE = "promote"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class ChangeMembership:
    """Add `member_id` (at `address`) as a learner, make a learner a voter, or remove a member."""

    request_id: int
    action: MembershipAction
    member_id: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class DiskHealth:
    """The disk stalls or is full, or has recovered.

    Attributes:
        is_stalled: a sync stalls, or stalled recently.
        is_stalling: a sync stalls now.
        is_full: entries were refused because the disk was full, and it still is.
    """

    is_stalled: bool
    is_stalling: bool = False
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class HeadDeleted:
    """The store deleted all entries before `begin_index`; `prev_term` is the term of the last of them."""

    begin_index: int
    prev_term: int


@dataclass(frozen=True, slots=True)
class SnapshotSaved:
    """The state machine saved its state; it may be sent to followers that need it."""

    snapshot: SnapshotInfo


@dataclass(frozen=True, slots=True)
class SentSnapshotGone:
    """The snapshot that is being sent to `peer` is deleted or damaged: the peer needs another one."""

    peer: str
    snapshot: SnapshotInfo


@dataclass(frozen=True, slots=True)
class SnapshotStored:
    """The last chunk of a snapshot was written: the snapshot is verified and durable, or (not `is_good`) dropped."""

    snapshot: SnapshotInfo
    is_good: bool


Event = (
    Tick
    | Received
    | Propose
    | Written
    | Persisted
    | PushNotTaken
    | PeerUnreachable
    | PeerGone
    | ReadIndex
    | TransferLeadership
    | ChangeMembership
    | DiskHealth
    | HeadDeleted
    | SnapshotSaved
    | SentSnapshotGone
    | SnapshotStored
)

# ---------------------------------------------------------------------------------------------------- effects out


@dataclass(frozen=True, slots=True)
class SaveHardState:
    """Make the hard state durable before any later effect."""

    term: int
    voted_for: str | None
    is_founding: bool = False
    incarnation: int = 0
    founding_group_id: int = NO_GROUP


@dataclass(frozen=True, slots=True)
class AppendProposal:
    """Write the entries of a proposal at `first_index` in `term`; None is the leader's no-op."""

    proposal: Any
    first_index: int
    term: int


@dataclass(frozen=True, slots=True)
class AppendPushed:
    """Write the entries of `push` from `first_index` on; those before it are already in the log."""

    push: Push
    first_index: int


@dataclass(frozen=True, slots=True)
class TruncateFrom:
    """Truncate the log from `first_index` on, durably."""

    first_index: int


@dataclass(frozen=True, slots=True)
class Send:
    """Pass a message to the transport; it may be lost."""

    peer: str
    message: Message


@dataclass(frozen=True, slots=True)
class Commit:
    """Entries up to `commit_index` are committed; `commit_index` only grows."""

    commit_index: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """The proposal was refused: this node does not lead, or is transferring its leadership. Nothing was written."""

    proposal: Any
    code: ResponseCode = ResponseCode.NOT_LEADER


@dataclass(frozen=True, slots=True)
class ReadReady:
    """The read may be served once the entries up to `index` are committed here (they are)."""

    read_id: int
    index: int


@dataclass(frozen=True, slots=True)
class ReadRefused:
    """The read cannot be served: this node does not lead, or lost its leadership before the read was confirmed."""

    read_id: int


@dataclass(frozen=True, slots=True)
class AppendMembership:
    """Write the entry with `entry.membership` at `entry.index` in `term`."""

    entry: MembershipEntry
    term: int


@dataclass(frozen=True, slots=True)
class SaveMemberships:
    """Make the list of the log's memberships durable before any later effect.

    In ascending order of index. The first is committed or the oldest known; the last one is in force.
    """

    memberships: tuple[MembershipEntry, ...]


@dataclass(frozen=True, slots=True)
class RequestEnded:
    """A `TransferLeadership` or `ChangeMembership` ended: code 200, or a failure (`message` is for people)."""

    request_id: int
    code: ResponseCode
    message: str = ""


@dataclass(frozen=True, slots=True)
class WriteSnapshotChunk:
    """Write a chunk of an incoming snapshot; after the last one feed `SnapshotStored`."""

    chunk: SnapshotChunk


@dataclass(frozen=True, slots=True)
class ResetStore:
    """Set the whole log aside, durably, and begin an empty one.

    The state machine continues from the snapshot up to `snapshot_index`; -1: there is none. `prev_chain_crc` is as in
    `ResetLog`. The old log may be deleted once the new one is committed and durable up to `caught_up_index`.
    """

    begin_index: int
    begin_position: int
    prev_term: int
    snapshot_index: int
    prev_chain_crc: int
    caught_up_index: int


class RejectReason(StrEnum):
    """Why a message was rejected (`core.trust`)."""

    TERM = "term"
    INDEX = "index"
    NO_GROUP = "no_group"
    GROUP = "group"
    NON_MEMBER = "stranger"
    SECOND_LEADER = "second_leader"
    COMMITTED = "committed"
    CONTRADICTED = "contradicted"


@dataclass(frozen=True, slots=True)
class MessageRejected:
    """A message of `peer`, of this `kind` and `term`, was dropped; nothing changed; for observers."""

    peer: str
    reason: RejectReason
    kind: str
    term: int


@dataclass(frozen=True, slots=True)
class EntriesLost:
    """This node lacks entries up to `acknowledged_index` that it acknowledged to `leader_id`, and gave up its vote.

    `last_index` is the end of its log. For observers.
    """

    leader_id: str
    acknowledged_index: int
    last_index: int


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """Role, term or known leader changed; for observers."""

    role: Role
    term: int
    leader_id: str | None


class TransitionCause(Enum):
    """The cause of a transition between roles (`core.transitions`)."""

    NEWER_TERM = "a message came of a higher term"
    LEADER_SEEN = "a message came from the leader of the term"
    LEADER_LOST = "no message of a leader, and this node may not campaign"
    PRE_VOTE = "no message of a leader: would the others vote for this node?"
    VOTE = "the others would vote for this node, or the leader asked it to campaign"
    ELECTED = "a majority voted for this node"
    QUORUM_LOST = "too few voters answered for an election timeout"
    DISK_STALLED = "the disk of this node stalls"
    REMOVED = "this node is no longer a voter of the group"


@dataclass(frozen=True, slots=True)
class Transitioned:
    """This node changed from role `origin` to `role`; term and leader are those after it; for observers.

    Unlike `RoleChanged`, which shows the result of a step, there is one for each transition of the step, in order. A
    candidate that repeats its pre-vote makes one, too.
    """

    cause: TransitionCause
    origin: Role
    role: Role
    term: int
    leader_id: str | None


@dataclass(frozen=True, slots=True)
class VoteAnswered:
    """This node answered a vote request, or (pre-vote) whether it would grant one, of `term`; for observers."""

    candidate_id: str
    term: int
    is_pre_vote: bool
    is_granted: bool


@dataclass(frozen=True, slots=True)
class VoteReceived:
    """An answer to the current request of this candidate, for `term`; a granted one counts; for observers."""

    voter_id: str
    term: int
    is_pre_vote: bool
    is_granted: bool


@dataclass(frozen=True, slots=True)
class TransferBegun:
    """This leader transfers its leadership to `target`; for observers."""

    target: str


@dataclass(frozen=True, slots=True)
class TransferEnded:
    """The transfer to `target` ended; `leader_id` was elected, None: no node was, in time; for observers."""

    target: str
    leader_id: str | None


Observation = Transitioned | VoteAnswered | VoteReceived | TransferBegun | TransferEnded

Effect = (
    SaveHardState
    | AppendProposal
    | AppendPushed
    | TruncateFrom
    | Send
    | Commit
    | Refuse
    | ReadReady
    | ReadRefused
    | AppendMembership
    | SaveMemberships
    | RequestEnded
    | WriteSnapshotChunk
    | ResetStore
    | MessageRejected
    | EntriesLost
    | RoleChanged
    | Observation
)
