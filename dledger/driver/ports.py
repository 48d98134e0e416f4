"""The ports of the driver; the node implements them in production, the simulator in simulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.core.events import EntriesLost, MessageRejected, Observation, RoleChanged
    from dledger.core.messages import Message
    from dledger.entries.store import CorruptPush, EntriesTicket
    from dledger.errors import ResponseCode
    from dledger.types import MembershipEntry, SnapshotInfo


@dataclass(eq=False, slots=True)
class Proposal:
    """Bodies to append as consecutive entries.

    Attributes:
        bodies: at least one; each becomes one entry.
        stamp_at: position in each body at which the store writes its physical offset (entry position + 48, 8 bytes
            big-endian) before checksums are taken; None: nowhere. Source: DLedger `AppendHook` as RocketMQ uses it.
        channel: of the entries; 0 unless they are a broker's internal records (`commitlog.record.system_records`).
        token: for the owner; the driver does not use it.
    """

    bodies: Sequence[bytes]
    stamp_at: int | None = None
    channel: int = 0
    token: Any = None


class Transport(Protocol):
    """Sends messages to peers; never blocks; may lose, delay, duplicate or reorder them."""

    def send(self, peer: str, message: Message) -> None:
        """Send `message` to `peer`; a `Push` with a span and a `SnapshotChunk` carry their payload."""


class Syncer(Protocol):
    """Makes written entries durable outside the driver's batches."""

    def start(self, ticket: EntriesTicket) -> None:
        """Run `ticket.sync()` soon, in any thread; afterwards the owner must call `Driver.synced(ticket)`."""


class Memberships(Protocol):
    """Keeps the memberships of the log."""

    def save(self, entries: Sequence[MembershipEntry]) -> None:
        """Save the memberships of the log durably; the first is committed.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """


class Snapshots(Protocol):
    """Stores snapshots of the state machine; reads and writes them in chunks."""

    def read_chunk(self, snapshot: SnapshotInfo, offset: int, length: int) -> bytes | None:
        """Return a chunk of a snapshot; None: the snapshot is deleted or damaged."""

    def write_chunk(self, snapshot: SnapshotInfo, offset: int, payload: bytes) -> int:
        """Write the next chunk of an incoming snapshot; return the number of bytes received (0: disk full).

        Raises:
            store.errors.StorageFailed: the node must stop.
        """

    def finish(self, snapshot: SnapshotInfo) -> bool:
        """Verify an incoming snapshot and make it durable; False: it is damaged and was dropped.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """


class Observer(Protocol):
    """Receives the outcome of proposals and reads, and changes of the node's role, term and leader."""

    def on_appended(self, proposal: Proposal, first_index: int, term: int, positions: list[int]) -> None:
        """The proposal was appended to this node's log; it is not yet committed."""

    def on_refused(self, proposal: Proposal, code: ResponseCode) -> None:
        """The proposal was refused and nothing of it was written."""

    def on_commit(self, commit_index: int) -> None:
        """All entries up to `commit_index` are committed."""

    def on_truncated(self, first_index: int) -> None:
        """The log was truncated from `first_index` on."""

    def on_reset(self, begin_index: int, snapshot_index: int) -> None:
        """The whole log was dropped and restarts empty.

        The state machine continues from the snapshot up to `snapshot_index`; -1: without one.
        """

    def on_role(self, change: RoleChanged) -> None:
        """The role, term or leader has changed."""

    def on_observation(self, observation: Observation) -> None:
        """A transition, a vote or a transfer; it changes nothing that another method does not report."""

    def on_membership(self, memberships: Sequence[MembershipEntry]) -> None:
        """The log contains these memberships; the first is committed, the last one in force."""

    def on_request_ended(self, request_id: int, code: ResponseCode, message: str) -> None:
        """A transfer or a membership change ended."""

    def on_read_ready(self, read_id: int, index: int) -> None:
        """A linearizable read may be served up to `index`."""

    def on_read_refused(self, read_id: int) -> None:
        """A linearizable read cannot be served here."""

    def on_entries_lost(self, loss: EntriesLost) -> None:
        """This node lacks entries that it acknowledged to the leader, and gave up its vote."""

    def on_message_rejected(self, message: MessageRejected) -> None:
        """A message was dropped because no correct node of this group can have sent it."""

    def on_corrupt_push(self, peer: str, error: CorruptPush) -> None:
        """A peer sent entries whose bytes do not match their description; they were dropped."""

    def on_corrupt_push_refused(self, peer: str, index: int) -> None:
        """A peer could not verify the entries from `index` on that this node sent; they are sent again later."""
