"""The ports between the parts of a node.

Each part declares the ports that it needs; the composition root (`dledger.node.composition`) passes the parts that
implement them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dledger.config import Address
    from dledger.core.events import Event
    from dledger.driver.driver import Driver
    from dledger.errors import ResponseCode
    from dledger.types import MembershipEntry


class Inbox(Protocol):
    """Queues events for the core."""

    def ask(self, event: Event) -> None:
        """Add an event to the next batch."""


class DriverSteps(Protocol):
    """Runs steps with access to the driver."""

    def soon(self, step: Callable[[Driver], None]) -> None:
        """Run `step` outside of batches, in the next iteration of the loop; an exception stops the node."""


class Peers(Protocol):
    """The connections to other nodes."""

    def set_members(self, addresses: Mapping[str, Address]) -> None:
        """Connect to exactly these members; this node itself may be among them."""


class ClientAddresses(Protocol):
    """The client addresses of the nodes."""

    def client_address_of(self, node_id: str) -> str:
        """Return host:port of a node's LogService; empty until the peer has sent it."""


class KnownPeers(Protocol):
    """The record of members and their directories on this disk."""

    def learn(self, memberships: Sequence[MembershipEntry]) -> None:
        """Record the memberships of the log."""


class Group(Protocol):
    """Receives memberships and the results of requests to change them."""

    def on_membership(self, memberships: Sequence[MembershipEntry]) -> None:
        """The log contains these memberships; the first is committed, the last one in force."""

    def on_request_ended(self, request_id: int, code: ResponseCode, message: str) -> None:
        """A transfer or a membership change ended."""


class Leaders(Protocol):
    """Describes the leader."""

    def not_leader_message(self) -> str:
        """Return a text that names the leader, if known."""


class Answers(Protocol):
    """Answers appends."""

    def on_applied(self, applied_index: int, take_results: Callable[[int, int], list[Any]]) -> None:
        """All entries up to `applied_index` are applied; `take_results` returns the results of a range of entries."""


class CommittedEntriesSink(Protocol):
    """Applies committed entries to the state machine; an exception stops the node."""

    def appended(self, first_index: int, last_index: int) -> None:
        """Keep the results of these entries, for which appends wait."""

    def committed(self, commit_index: int) -> None:
        """All entries up to `commit_index` are committed."""

    def truncated(self, first_index: int) -> None:
        """The log was truncated from `first_index` on."""

    def on_reset(self, begin_index: int, snapshot_index: int) -> None:
        """The log was reset, and begins after a received snapshot."""


class SnapshotRequests(Protocol):
    """The snapshots of the state machine."""

    def request_snapshot(self) -> None:
        """Request a snapshot, which is saved in the background."""


class Core(Protocol):
    """The core's port for retention."""

    @property
    def retention_floor(self) -> int:
        """The first index that the group needs."""

    @property
    def snapshot_index(self) -> int:
        """The last entry in the newest snapshot that the core knows; -1 without one."""

    @property
    def is_disk_stalled(self) -> bool:
        """Whether the disk stalls."""
