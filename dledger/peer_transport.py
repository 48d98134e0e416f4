"""The transport port over TCP: four connections to every peer, each message on the one it belongs to.

Every node dials every other node twice: one connection for bulk (pushes), one for control (heartbeats and votes),
so that these never queue behind bulk. An answer goes back on the connection that its request came by:

| message                                | travels on the connection that      |
| -------------------------------------- | ----------------------------------- |
| VoteRequest, Heartbeat                 | this node dialled for control       |
| Push                                   | this node dialled for bulk          |
| VoteResponse, HeartbeatResponse        | the peer dialled for control        |
| PushAccepted, PushRefused              | the peer dialled for bulk           |

Not here: retries of messages (the core's business), batching of events (`dledger.node`).

Invariants: `send` never blocks and never calls the listener; memory per connection is bounded, beyond the bound
messages are dropped and the peer is reported unreachable once, until it has taken what waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass, field
from typing import Protocol

from dledger.config import NodeConfig
from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    Message,
    Push,
    PushAccepted,
    PushRefused,
    VoteRequest,
    VoteResponse,
)
from dledger.errors import DLedgerError
from dledger.peer_connection import PeerConnection
from dledger.peer_dialer import Dialer
from dledger.peer_handshake import Handshake, PeerRefused

logger = logging.getLogger(__name__)

# Slots of a link, one for each connection between this node and one peer.
_DIALLED_CONTROL, _DIALLED_BULK, _ACCEPTED_CONTROL, _ACCEPTED_BULK = range(4)

_SLOT_OF: dict[type[Message], int] = {
    VoteRequest: _DIALLED_CONTROL,
    Heartbeat: _DIALLED_CONTROL,
    Push: _DIALLED_BULK,
    VoteResponse: _ACCEPTED_CONTROL,
    HeartbeatResponse: _ACCEPTED_CONTROL,
    PushAccepted: _ACCEPTED_BULK,
    PushRefused: _ACCEPTED_BULK,
}

# Heartbeats are a few dozen bytes; so many unsent ones mean that the peer has stopped.
_CONTROL_BUFFER_SIZE_BYTES_MAX = 64 * 1024
# Connections that have not greeted yet, from anywhere; more are closed at once.
_STRANGERS_MAX = 64
# Different complaints that are remembered so as not to repeat them in the log.
_COMPLAINTS_MAX = 256


class PeerListener(Protocol):
    """Hears what comes from peers, in calls from the event loop."""

    def on_messages(self, sender: str, messages: list[Message]) -> None:
        """Hear all messages that one read from `sender` brought; there is at least one."""

    def on_unreachable(self, peer: str) -> None:
        """Hear that pushes under way to `peer` may be lost."""


@dataclass(slots=True)
class _Link:
    """All connections between this node and one peer."""

    slots: list[PeerConnection | None] = field(default_factory=lambda: [None] * 4)
    client_address: str = ""
    is_reported_unreachable: bool = False


class PeerTransport:
    """Framed TCP to all peers.

    Args:
        config: addresses and identity.
        listener: hears of messages and of broken connections.
    """

    def __init__(self, config: NodeConfig, listener: PeerListener) -> None:
        self.dropped_messages_count = 0
        self._config = config
        self._listener = listener
        self._handshake = Handshake(config)
        self._links = {peer_id: _Link() for peer_id in config.other_ids}
        self._dialers: dict[tuple[str, bool], Dialer] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._strangers: set[PeerConnection] = set()
        self._complaints: set[tuple[str, str]] = set()
        self._server: asyncio.Server | None = None
        self._is_stopped = False
        # What the window of pushes lets the core have under way fits; only more than that is dropped.
        raft = config.raft
        self._bulk_buffer_size_bytes_max = max(raft.max_push_window * raft.max_push_size_bytes, 8 << 20)

    async def start(self) -> None:
        """Listen, and begin to dial all peers in the background.

        Raises:
            OSError: the address cannot be listened on; choose another one.
        """
        loop = asyncio.get_running_loop()
        address = self._config.self_address
        self._server = await loop.create_server(self._accept, address.host, address.port)
        for peer_id in self._config.other_ids:
            for is_bulk in (False, True):
                dialer = self._new_dialer(peer_id, is_bulk)
                self._dialers[peer_id, is_bulk] = dialer
                self._tasks.append(loop.create_task(dialer.run()))

    def abort(self) -> None:
        """Fall silent at once: end all connections, dial and listen no more; the listener hears nothing more."""
        self._is_stopped = True
        for task in self._tasks:
            task.cancel()
        ended = DLedgerError("this node stops")
        for link in self._links.values():
            for connection in filter(None, link.slots):
                connection.close(ended)
            link.slots = [None] * 4
        for connection in list(self._strangers):
            connection.close(ended)
        if self._server is not None:
            self._server.close()

    async def stop(self) -> None:
        """Abort, and wait until everything has ended."""
        self.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def send(self, peer: str, message: Message) -> None:
        """Send `message` to `peer` if it can be reached now; else it is lost."""
        link = self._links[peer]
        slot = _SLOT_OF[type(message)]
        connection = link.slots[slot]
        if connection is not None and connection.send(message):
            if slot == _DIALLED_BULK:
                link.is_reported_unreachable = False
            return
        self.dropped_messages_count += 1
        if slot == _DIALLED_BULK and connection is not None and not link.is_reported_unreachable:
            link.is_reported_unreachable = True
            asyncio.get_running_loop().call_soon(self._report_unreachable, peer)

    def client_address_of(self, peer: str) -> str:
        """Return host:port of the peer's LogService; empty while it has not told us."""
        link = self._links.get(peer)
        return link.client_address if link else ""

    def is_connected_to(self, peer: str) -> bool:
        """Return whether both connections that this node dials to `peer` are open."""
        slots = self._links[peer].slots
        return slots[_DIALLED_CONTROL] is not None and slots[_DIALLED_BULK] is not None

    # ----------------------------------------------------------------------------------------- from the connections

    def on_open(self, connection: PeerConnection) -> None:
        """Use a connection whose two ends agreed; it replaces an older one of the same kind."""
        self._strangers.discard(connection)
        peer_id = connection.peer_id
        link = self._links[peer_id]
        link.client_address = connection.client_address
        slot = _slot_of(connection)
        older, link.slots[slot] = link.slots[slot], connection
        if older is not None:
            older.close(DLedgerError("replaced by a newer connection"))
        self._complaints = {complaint for complaint in self._complaints if complaint[0] != peer_id}
        logger.info("peer_connected peer=%s dialled=%s bulk=%s", peer_id, connection.is_dialled, connection.is_bulk)

    def on_messages(self, connection: PeerConnection, messages: list[Message]) -> None:
        """Hand on what a peer sent."""
        link = self._links[connection.peer_id]
        if link.slots[_slot_of(connection)] is not connection:
            return
        self._listener.on_messages(connection.peer_id, messages)

    def on_closed(self, connection: PeerConnection, error: DLedgerError) -> None:
        """Forget a connection; its pushes, or the answers to them, may be lost."""
        self._strangers.discard(connection)
        if self._is_stopped:
            return
        peer_id = connection.peer_id
        self._complain(peer_id, connection, error)
        link = self._links.get(peer_id)
        if link is not None and link.slots[_slot_of(connection)] is connection:
            link.slots[_slot_of(connection)] = None
            if connection.is_dialled and connection.is_bulk:
                self._report_unreachable(peer_id)
        if connection.is_dialled:
            self._dialers[peer_id, connection.is_bulk].ended()

    # -------------------------------------------------------------------------------------------------------- parts

    def _accept(self) -> PeerConnection:
        connection = PeerConnection(self._handshake, self, buffer_size_bytes_max=self._bulk_buffer_size_bytes_max)
        self._strangers.add(connection)
        if len(self._strangers) > _STRANGERS_MAX:
            full = DLedgerError(f"more than {_STRANGERS_MAX} connections that have not greeted")
            asyncio.get_running_loop().call_soon(connection.close, full)
        return connection

    def _new_dialer(self, peer_id: str, is_bulk: bool) -> Dialer:
        size_bytes_max = self._bulk_buffer_size_bytes_max if is_bulk else _CONTROL_BUFFER_SIZE_BYTES_MAX
        return Dialer(
            self._config.peer(peer_id).address,
            lambda: PeerConnection(
                self._handshake, self, buffer_size_bytes_max=size_bytes_max, dialled=(peer_id, is_bulk)
            ),
            lambda error: self._log_once(peer_id, str(error)),
            seed=random.randrange(1 << 32),
        )

    def _report_unreachable(self, peer_id: str) -> None:
        if not self._is_stopped:
            self._listener.on_unreachable(peer_id)

    def _complain(self, peer_id: str, connection: PeerConnection, error: DLedgerError) -> None:
        side = "we dialled" if connection.is_dialled else "it dialled"
        kind = "refused" if isinstance(error, PeerRefused) else type(error).__name__
        self._log_once(peer_id, f"{kind} ({side}): {error}")

    def _log_once(self, peer_id: str, text: str) -> None:
        """Log a complaint once until the peer connects; a node that is down for a day fills no disk."""
        complaint = (peer_id, text)
        if complaint in self._complaints or len(self._complaints) >= _COMPLAINTS_MAX:
            return
        self._complaints.add(complaint)
        logger.warning("peer_not_connected peer=%r reason=%r", peer_id, text)


def _slot_of(connection: PeerConnection) -> int:
    if connection.is_dialled:
        return _DIALLED_BULK if connection.is_bulk else _DIALLED_CONTROL
    return _ACCEPTED_BULK if connection.is_bulk else _ACCEPTED_CONTROL
