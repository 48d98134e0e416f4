"""The whole contract of the consensus core on one screen: events in, effects out.

The core never blocks, reads no clock and does no I/O: the driver feeds it events and executes the effects *in
order*. An effect of one step is done before the next event is fed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dledger.core.messages import Message, Push
from dledger.types import Role

# ---------------------------------------------------------------------------------------------------- events in


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes: `now_ms` on a monotonic clock of any origin; never smaller than the one before."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class Received:
    """A message of a peer arrived."""

    sender: str
    message: Message


@dataclass(frozen=True, slots=True)
class Propose:
    """Append `count` (> 0) new entries if this node leads. `proposal` is opaque and comes back in the effect."""

    proposal: Any
    count: int


@dataclass(frozen=True, slots=True)
class Written:
    """What `AppendProposal` asked for is in the store and can be read back: it may be pushed (dissertation §10.2.1)."""

    last_index: int


@dataclass(frozen=True, slots=True)
class Persisted:
    """Entries up to `last_index` are durable here (as far as they have not been cut off since)."""

    last_index: int


@dataclass(frozen=True, slots=True)
class PushNotTaken:
    """The driver could not offer `push` of `sender` to the core because the disk has no room for it."""

    sender: str
    push: Push


@dataclass(frozen=True, slots=True)
class PeerUnreachable:
    """The connection to a peer broke: whatever was under way to it may be lost."""

    peer: str


@dataclass(frozen=True, slots=True)
class ReadIndex:
    """Ask for an index up to which a linearizable read may be served (dissertation §6.4)."""

    read_id: int


Event = Tick | Received | Propose | Written | Persisted | PushNotTaken | PeerUnreachable | ReadIndex

# ---------------------------------------------------------------------------------------------------- effects out


@dataclass(frozen=True, slots=True)
class SaveHardState:
    """Make term and vote durable before any later effect."""

    term: int
    voted_for: str | None


@dataclass(frozen=True, slots=True)
class AppendProposal:
    """Write the entries of a proposal at `first_index` in `term`; None stands for the leader's no-op."""

    proposal: Any
    first_index: int
    term: int


@dataclass(frozen=True, slots=True)
class AppendPushed:
    """Write the entries of `push` from `first_index` on; those before it are already here."""

    push: Push
    first_index: int


@dataclass(frozen=True, slots=True)
class TruncateFrom:
    """Cut the entry at `first_index` and all behind it, durably."""

    first_index: int


@dataclass(frozen=True, slots=True)
class Send:
    """Hand a message to the transport; it may be lost."""

    peer: str
    message: Message


@dataclass(frozen=True, slots=True)
class Commit:
    """Entries up to `commit_index` are committed; `commit_index` only grows."""

    commit_index: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """The proposal was not taken: this node does not lead. Nothing of it was written."""

    proposal: Any


@dataclass(frozen=True, slots=True)
class ReadReady:
    """The read may be served once the entries up to `index` are committed here (they are)."""

    read_id: int
    index: int


@dataclass(frozen=True, slots=True)
class ReadRefused:
    """The read cannot be served: this node does not lead, or lost its leadership while it asked."""

    read_id: int


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """Role, term or known leader changed; for observers."""

    role: Role
    term: int
    leader_id: str | None


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
    | RoleChanged
)
