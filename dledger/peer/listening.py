"""The peer port of a node: listens, and turns each accepted socket into a connection, secured as in the settings.

A plain port is the event loop's own server. A secured port has an accept loop of its own. It reads the first byte,
refuses connections that the settings do not allow, and bounds the handshakes in progress, and how often one address
begins them, because they cost processor time before the other side is authenticated. Each connection uses the current
certificates, so a change of files needs no new listener.

Not here: connections after the handshake, whose greeting is bounded by their owner
(`dledger.peer.unverified_peers`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from dledger.errors import DLedgerError
from dledger.peer import connection as peer_connection
from dledger.peer.dialing import SHUTDOWN_TIMEOUT_S
from dledger.peer.handshake_rate import HandshakeRate
from dledger.peer.refusals import Refusal, Refusals
from dledger.peer.unverified_peers import UnverifiedPeers
from dledger.security.peers import PeerKind
from dledger.sockets import accept_all, first_byte, open_listeners

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from dledger.config import NodeConfig
    from dledger.peer.connection import PeerConnection
    from dledger.security.peers import PeerSecurity

HANDSHAKES_MAX: Final = 64
HANDSHAKES_PER_ADDRESS_MAX: Final = 8

logger = logging.getLogger(__name__)


class PeerPort:
    """Listens at one address from `start` to `close`.

    Args:
        config: own address and identity.
        security: which kinds of connections are accepted.
        new_connection: creates the protocol object of a connection; it gets the time of the event loop's clock by which
            the greeting must have arrived, None: its usual time from then on.

    Attributes:
        refusals: of connections that this node accepted and then refused.
    """

    def __init__(
        self, config: NodeConfig, security: PeerSecurity, new_connection: Callable[[float | None], PeerConnection]
    ) -> None:
        self.refusals = Refusals()
        self._config = config
        self._address = config.self_address
        self._security = security
        self._new_connection = new_connection
        self._server: asyncio.Server | None = None
        # Those of a port that accepts by itself.
        self._listeners: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._arrivals = UnverifiedPeers(HANDSHAKES_MAX, HANDSHAKES_PER_ADDRESS_MAX)
        self._rate = HandshakeRate()

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be listened on; choose another one.
        """
        loop, address = asyncio.get_running_loop(), self._address
        if self._security.is_plain:
            self._server = await loop.create_server(lambda: self._new_connection(None), address.host, address.port)
            return
        self._listeners = await open_listeners(address.host, address.port)
        self._accepting = [
            loop.create_task(accept_all(listener, self._accept, self._note_failure)) for listener in self._listeners
        ]

    def close(self) -> None:
        """Stop listening, and end all handshakes."""
        if self._server is not None:
            self._server.close()
        for task in self._accepting:
            task.cancel()
        self._arrivals.close(DLedgerError(""))

    async def wait_closed(self) -> None:
        """Wait until nothing of the port is left; after `close`."""
        if self._server is not None:
            await self._server.wait_closed()
        if self._accepting:
            await asyncio.wait(self._accepting)
        # A task that was cancelled before its first step has not closed its own.
        for listener in self._listeners:
            listener.close()

    def _accept(self, accepted: socket.socket, host: str) -> None:
        if not self._rate.may_begin(host, asyncio.get_running_loop().time()):
            accepted.close()
            self.refusals.note(Refusal.CROWDED, host, "too many handshakes a second")
            return
        self._arrivals.add(_Arrival(self, accepted, host), host)

    def _note_failure(self, error: OSError) -> None:
        logger.warning("peer_port_full address=%s reason=%r", self._address, str(error))

    async def admit(self, arrival: _Arrival) -> None:
        """Let a connection pass the handshake, or refuse it; its task calls this.

        Raises:
            asyncio.CancelledError: it was refused for another one; its socket is closed.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + peer_connection.HELLO_TIMEOUT_S
        try:
            async with asyncio.timeout_at(deadline):
                kind = self._security.kind_of(await first_byte(arrival.accepted))
                if kind is None:
                    self.refusals.note(Refusal.INSECURE, arrival.host, f"expected {self._security.kind}")
                    return
                await self._connect(arrival, kind, deadline)
        except TimeoutError:
            self.refusals.note(Refusal.SILENT, arrival.host, "no handshake in time")
        except (OSError, DLedgerError) as error:
            self.refusals.note(Refusal.HANDSHAKE, arrival.host, str(error))
        except asyncio.CancelledError:
            if arrival.reason:
                self.refusals.note(Refusal.CROWDED, arrival.host, arrival.reason)
            raise
        finally:
            self._arrivals.discard(arrival)
            arrival.release()

    async def _connect(self, arrival: _Arrival, kind: PeerKind, deadline: float) -> None:
        loop, accepted = asyncio.get_running_loop(), arrival.taken()
        if kind is PeerKind.PLAIN:
            await loop.connect_accepted_socket(lambda: self._new_connection(deadline), accepted)
            return
        if kind is PeerKind.SECRET:
            # Imported here, because other kinds do not need the package cryptography.
            from dledger.peer.sealed import SealedProtocol  # noqa: PLC0415
            from dledger.peer.sealing import AcceptorsGreeting  # noqa: PLC0415

            greeting = AcceptorsGreeting(self._security.secrets(), self._config.group, self._config.self_id)
            _, sealed = await loop.connect_accepted_socket(
                lambda: SealedProtocol(lambda: self._new_connection(deadline), greeting), accepted
            )
            await sealed.open()
            self._rate.prove(arrival.host)
            return
        await loop.connect_accepted_socket(
            lambda: self._new_connection(deadline),
            accepted,
            ssl=self._security.contexts().accepting,
            ssl_handshake_timeout=peer_connection.HELLO_TIMEOUT_S,
            ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
        )
        # The other side has a certificate of the authority.
        self._rate.prove(arrival.host)


class _Arrival:
    """An accepted socket before its handshake has ended, and the task that does it."""

    def __init__(self, port: PeerPort, accepted: socket.socket, host: str) -> None:
        self.accepted = accepted
        self.host = host
        # Why it is ended for another one; empty: it is not.
        self.reason = ""
        # Until the event loop's transport has the socket.
        self._is_own = True
        self._task = asyncio.get_running_loop().create_task(port.admit(self))
        # A task that is cancelled before its first step runs no `finally`.
        self._task.add_done_callback(lambda _: self.release())

    def taken(self) -> socket.socket:
        """Return the socket, which the caller closes."""
        self._is_own = False
        return self.accepted

    def release(self) -> None:
        """Close the socket unless it was taken."""
        if self._is_own:
            self.accepted.close()

    def close(self, error: DLedgerError) -> None:
        """End the handshake."""
        self.reason = str(error)
        self._task.cancel()
