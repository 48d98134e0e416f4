"""The port between a broker's services and one replica of its messages.

It has two implementations: the store of a standalone broker (`cluster.replica.standalone`), and a node of a Raft group
(`cluster.replica.replicated`). Services depend only on the port. All methods must be called on the event loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from cluster.protocol.route_table import BrokerNode
    from cluster.state.broker_state import BrokerState
    from cluster.state.commands import Command
    from cluster.state.verdicts import Applied
    from store.access.message_store import MessageStore
    from store.model.commit_log import PutOutcome
    from store.model.message import Host, Message

NO_DIVIDE = -1


class ReadMode(Enum):
    """The consistency of a read.

    Attributes:
        LINEARIZABLE: the read sees everything acknowledged before; a majority confirms the leader.
        LEASE: the same, but the leader may rely on its lease.
        LOCAL: the read sees what this node has applied.
    """

    LINEARIZABLE = "linearizable"
    LEASE = "lease"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """The status of a replica.

    Attributes:
        role: LEADER, FOLLOWER or CANDIDATE; STANDALONE without a group.
        term: term of the group; 0 without one.
        leader_id: empty while none is known.
        leader_address: address of the leader's gRPC services; empty while it is not known.
        is_serving_puts: whether the node accepts puts: it is the leader and has dispatched its log.
        reason: why puts are refused, as text; empty if they are accepted, or if it was not requested.
        behind_bytes: bytes of the log that a leader must dispatch before it accepts puts.
    """

    role: str
    term: int
    leader_id: str
    leader_address: str
    is_serving_puts: bool
    reason: str = ""
    behind_bytes: int = 0

    @property
    def is_leading(self) -> bool:
        """Whether this replica accepts changes: it is the leader, or standalone."""
        return self.role in ("LEADER", "STANDALONE")


@dataclass(frozen=True, slots=True)
class PutLimits:
    """The bounds of one put, beyond which it is always refused.

    Attributes:
        messages_max: number of messages, at least 1.
        size_bytes_max: sum of their bodies.
    """

    messages_max: int
    size_bytes_max: int


class Puts(Protocol):
    """Accepts messages. Valid for one iteration of the event loop: in the next one the node may refuse puts."""

    def begin_put(self, messages: Sequence[Message]) -> asyncio.Future[PutOutcome]:
        """Put messages, in the same iteration of the event loop; the future gets their outcome.

        Raises:
            store.errors.IllegalMessage: nothing was put.
            store.errors.StorageFailed: it is unknown whether anything was put.
            cluster.protocol.errors.RequestFailed: the store has stopped; nothing was put.
        """
        ...

    def begin_prepared_put(self, messages: Sequence[Message]) -> asyncio.Future[PutOutcome]:
        """Put messages of a client, to some of which the broker has added effects; see `begin_put`.

        When the future has the outcome APPENDED, the effects are applied.
        """
        ...

    def begin_own_put(self, messages: Sequence[Message]) -> asyncio.Future[PutOutcome]:
        """Put the broker's own messages, with the effects that they carry; see `MessageStore.put_own`, and `begin_put`.

        When the future has the outcome APPENDED, the effects are applied.
        """
        ...

    async def decide_own_puts(self) -> None:
        """Wait until all earlier own puts are in the log, their effects applied, or certainly never will be.

        Raises:
            as `Replica.change`: it is not known, as long as this node leads in the same term.
        """
        ...


class Replica(Protocol):
    """The messages and the broker state of one node."""

    @property
    def store(self) -> MessageStore:
        """The message store, for reads."""
        ...

    @property
    def state(self) -> BrokerState:
        """The broker state, for reads."""
        ...

    @property
    def store_host(self) -> Host:
        """The store host in the records that this node appends."""
        ...

    @property
    def divided_offset(self) -> int:
        """The end of the base log; `NO_DIVIDE` without one."""
        ...

    @property
    def failure(self) -> asyncio.Future[Exception]:
        """Resolves with the error after which the process must stop."""
        ...

    @property
    def put_limits(self) -> PutLimits:
        """The bounds of one put."""
        ...

    def disk_used_ratio(self) -> float:
        """Return the used share of the store's disk, from 0 to 1; any thread may call it."""
        ...

    def status(self) -> ReplicaStatus:
        """Return the current status of the replica."""
        ...

    @property
    def has_applied_term(self) -> bool:
        """Whether the leader of the term is known and an entry of that term was applied; False without a group.

        Then everything that was acknowledged in earlier terms was applied.
        """
        ...

    def nodes(self) -> tuple[BrokerNode, ...]:
        """Return all nodes whose gRPC addresses are known, this one included."""
        ...

    def is_reachable(self, node_id: str) -> bool:
        """Return whether a node is this one, or connected to it; a node that has ended is not, at once."""
        ...

    def serving_puts(self) -> Puts:
        """Return the port for puts if this node accepts them now; to be called before topics are checked.

        Raises:
            cluster.protocol.errors.RequestFailed: NOT_LEADER, LEADER_NOT_READY, STORE_STOPPED.
        """
        ...

    async def wait(self, topic: str, queue_id: int, offset: int, time_limit_s: float, tags: str | None) -> bool:
        """Wait until a read from `offset` on may find a message; return False after `time_limit_s`."""
        ...

    async def change(self, command: Command) -> Applied:
        """Change the state durably on all replicas; return the result of the command.

        Raises:
            cluster.protocol.errors.RequestFailed: its certainty is whether the state may be changed nevertheless.
            store.errors.StoreError, dledger.errors.DLedgerError: the same, by the table of `cluster.protocol.errors`.
        """
        ...

    async def confirm(self, mode: ReadMode) -> None:
        """Wait until reads on this node satisfy `mode`.

        Raises:
            cluster.protocol.errors.RequestFailed, dledger.errors.DLedgerError: the node cannot guarantee it.
        """
        ...

    def when_flushed(self, listener: Callable[[float], None]) -> None:
        """Call `listener` with the duration of each sync of a plain log, in seconds; from any thread."""
        ...

    def when_status_changes(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change of the status."""
        ...
