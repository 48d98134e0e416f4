"""One replica of a broker: the port between its services and the store of messages.

Two implementations: a store of one machine (`cluster.replica.standalone`), and a node of a Raft group. Services know
only this. Everything belongs to the event loop.
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
    """How new a read must be.

    Attributes:
        LINEARIZABLE: it covers all that was acknowledged before; a majority confirms the leader.
        LEASE: the same, but a leader may trust its lease.
        LOCAL: it covers what this node knows.
    """

    LINEARIZABLE = "linearizable"
    LEASE = "lease"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """The status of a replica.

    Attributes:
        role: LEADER, FOLLOWER, CANDIDATE; STANDALONE without a group.
        term: of the group; 0 without one.
        leader_id: empty while none is known.
        leader_address: of its gRPC services; empty while it is not known.
        is_serving_puts: it is the leader, and everything in the log is dispatched.
        reason: why puts are not served, for people; empty when they are, and when it was not requested.
        behind_bytes: of the log that must be dispatched before puts are served, on a leader.
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
        """Whether this replica is asked for changes."""
        return self.role in ("LEADER", "STANDALONE")


class Puts(Protocol):
    """Takes messages. Obtained for one iteration of the event loop: in the next one the node may not serve puts."""

    def begin_put(self, messages: Sequence[Message]) -> asyncio.Future[PutOutcome]:
        """Put messages, in the same iteration of the event loop; the future returns their outcome.

        Raises:
            store.errors.IllegalMessage: nothing was put.
            store.errors.StorageFailed: whether anything was put is not known.
            cluster.protocol.errors.RequestFailed: the store has stopped; nothing was put.
        """
        ...


class Replica(Protocol):
    """Messages and broker state of one node."""

    @property
    def store(self) -> MessageStore:
        """For reading."""
        ...

    @property
    def state(self) -> BrokerState:
        """For reading."""
        ...

    @property
    def store_host(self) -> Host:
        """The store host in the records that this node appends."""
        ...

    @property
    def divided_offset(self) -> int:
        """The end of the files from before the group; `NO_DIVIDE` without such files."""
        ...

    @property
    def failure(self) -> asyncio.Future[Exception]:
        """Ends with the error after which the process must stop."""
        ...

    def disk_used_ratio(self) -> float:
        """Return the used share of the store's disk, from 0 to 1; any thread may call it."""
        ...

    def status(self) -> ReplicaStatus:
        """Return the current status of the replica."""
        ...

    def nodes(self) -> tuple[BrokerNode, ...]:
        """Return all nodes whose gRPC services are known, this one among them."""
        ...

    def serving_puts(self) -> Puts:
        """Return the port for puts if this node accepts them now: before, its topics may be out of date.

        Raises:
            cluster.protocol.errors.RequestFailed: NOT_LEADER, LEADER_NOT_READY, STORE_STOPPED.
        """
        ...

    async def wait(self, topic: str, queue_id: int, offset: int, time_limit_s: float, tags: str | None) -> bool:
        """Wait until a read from `offset` on may find a message; return False after `time_limit_s`."""
        ...

    async def change(self, command: Command) -> Applied:
        """Change the state, durably, on all replicas; return what became of the command.

        Raises:
            cluster.protocol.errors.RequestFailed: it says whether the state may be changed all the same.
            store.errors.StoreError, dledger.errors.DLedgerError: likewise, by the table of `cluster.protocol.errors`.
        """
        ...

    async def confirm(self, mode: ReadMode) -> None:
        """Return when what is read here now is as new as `mode` asks for.

        Raises:
            cluster.protocol.errors.RequestFailed, dledger.errors.DLedgerError: it cannot be promised.
        """
        ...

    def when_flushed(self, listener: Callable[[float], None]) -> None:
        """Call `listener` with the duration of each sync of a plain log, in seconds; from any thread."""
        ...

    def when_status_changes(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever the status has changed."""
        ...
