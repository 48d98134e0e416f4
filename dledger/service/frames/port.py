"""Listens for clients that call methods by frames, and bounds their connections.

It accepts by itself, as the peer port does, because TLS handshakes cost processor time before the other end is
authenticated: connections without a greeting are bounded in number and time. The certificates of the next connection
are those of gRPC's port.

Not here: one connection (`connection`), and the checks of calls (`dledger.service.guarded_method`).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dledger.errors import DLedgerError
from dledger.frames.codec import encode_methods
from dledger.networks import network_of_host
from dledger.peer.unverified_peers import UnverifiedPeers
from dledger.security.server_port import PortContexts
from dledger.security.settings import PLAIN
from dledger.service.frames.connection import FrameConnection
from dledger.service.frames.limits import Closed, FrameCounts, FrameLimits
from dledger.service.frames.partial_frames import PartialFrames
from dledger.service.frames.turns import FairTurns
from dledger.service.limits.fair_shares import FairShares
from dledger.service.limits.open_connections import peer_of
from dledger.service.limits.unread_answers import UnreadAnswers
from dledger.sockets import accept_all, open_listeners

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from dledger.config import Address
    from dledger.security.server_port import PortSecurity
    from dledger.service.frames.ports import FramedMethod
    from dledger.service.limits.open_connections import OtherEnd

_LOOK_INTERVAL_S: Final = 1.0

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Arrival:
    """An accepted socket.

    Attributes:
        accepted: the socket.
        is_taken: the event loop's transport has it, and closes it.
    """

    accepted: socket.socket
    is_taken: bool = False


class FramePort:
    """The frame port of one server, from `start` to `stop`.

    Args:
        address: to listen on; the server names it to clients.
        security: of all connections: that of gRPC's port.
        limits: of connections.

    Attributes:
        address: as given.
        limits: as given.
        counts: for metrics.
        methods: that may be called; their order is their number.
        methods_frame: lists them.
        call_bytes: of all requests in flight.
        turns: of the connections; from `start` on.
    """

    def __init__(self, address: Address, security: PortSecurity = PLAIN, limits: FrameLimits | None = None) -> None:
        self.address = address
        self.limits = limits or FrameLimits()
        self.counts = FrameCounts()
        self.methods: Sequence[FramedMethod] = ()
        self.methods_frame = b""
        self.call_bytes = 0
        self._security = security
        self._contexts: PortContexts | None = None
        self._unread = UnreadAnswers(self._end_slow, self.limits.unread_bytes_max)
        self._partial = PartialFrames(self.limits.partial_bytes_max)
        self._arrivals = UnverifiedPeers(self.limits.ungreeted_max, self.limits.ungreeted_address_max)
        # All connections, from accept to end, oldest first, and what each client has of them.
        self._connections: dict[FrameConnection, None] = {}
        self._shares = FairShares(self.limits.connections_max)
        self._listeners: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._looking: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Event = asyncio.Event()
        self._is_stopped = False

    async def start(self, methods: Sequence[FramedMethod]) -> None:
        """Listen.

        Args:
            methods: that may be called.

        Raises:
            OSError: the address cannot be listened on; choose another one.
            dledger.security.errors.CertificateFault: the certificates cannot be used.
        """
        loop = asyncio.get_running_loop()
        self.turns = FairTurns(loop.time)
        self.methods = tuple(methods)
        self.methods_frame = encode_methods([each.guarded.path for each in methods])
        self._contexts = PortContexts(self._security)
        self._listeners = await open_listeners(self.address.host, self.address.port)
        self._accepting = [
            loop.create_task(accept_all(listener, self._accept, self._note_failure)) for listener in self._listeners
        ]

    async def stop(self, grace_s: float) -> None:
        """Stop listening; calls in flight get `grace_s` seconds."""
        self._is_stopped = True
        for task in self._accepting:
            task.cancel()
        if self._accepting:
            await asyncio.wait(self._accepting)
        # A task that was cancelled before its first step has not closed its own.
        for listener in self._listeners:
            listener.close()
        self._arrivals.close(DLedgerError("the server stops"))
        for connection in self._connections:
            connection.drain(Closed.STOPPED)
        calls = [task for connection in self._connections for task in connection.tasks()]
        if calls:
            await asyncio.wait(calls, timeout=grace_s)
        # Answers of calls that ended together are written in the next iteration.
        await asyncio.sleep(0)
        calls = [task for connection in self._connections for task in connection.tasks()]
        for connection in list(self._connections):
            connection.finish(Closed.STOPPED)
        if self._connections:
            await self._all_closed.wait()
        for task in calls:
            task.cancel()
        if calls:
            await asyncio.wait(calls)
        if self._looking is not None:
            self._looking.cancel()

    # --------------------------------------------------------------------------------------------------- connections

    def _accept(self, accepted: socket.socket, host: str) -> None:
        client = network_of_host(host)
        if not self._shares.take(client, 1):
            self.counts.closed[Closed.CROWDED] += 1
            accepted.close()
            return
        connection = FrameConnection(self, client)
        self._connections[connection] = None
        self._all_closed.clear()
        arrival = _Arrival(accepted)
        connection.opening = asyncio.get_running_loop().create_task(self._open(connection, arrival))
        # A task that is cancelled before its first step runs no `finally`.
        connection.opening.add_done_callback(lambda _: self._opened(connection, arrival))
        self._arrivals.add(connection, client)
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_INTERVAL_S, self._look)

    async def _open(self, connection: FrameConnection, arrival: _Arrival) -> None:
        """Let a connection pass the TLS handshake, if there is one."""
        loop, timeout_s = asyncio.get_running_loop(), self.limits.greeting_s
        try:
            assert self._contexts is not None
            context = self._contexts.current()
            timeouts = {} if context is None else {"ssl_handshake_timeout": timeout_s, "ssl_shutdown_timeout": 1.0}
            arrival.is_taken = True
            await loop.connect_accepted_socket(lambda: connection, arrival.accepted, ssl=context, **timeouts)
        except (OSError, DLedgerError, ValueError) as error:
            logger.debug("frame_handshake_failed client=%s reason=%s", connection.client, error)

    def _opened(self, connection: FrameConnection, arrival: _Arrival) -> None:
        if not arrival.is_taken:
            arrival.accepted.close()
        if not connection.is_made:
            self._forget(connection, connection.reason or Closed.HANDSHAKE)

    def _note_failure(self, error: OSError) -> None:
        logger.warning("frame_port_full address=%s reason=%r", self.address, str(error))

    def _look(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for connection in list(self._connections):
            connection.look(now_s)
        self._looking = None
        if self._connections:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_INTERVAL_S, self._look)

    def _forget(self, connection: FrameConnection, reason: Closed | None) -> None:
        if connection not in self._connections:
            return
        del self._connections[connection]
        self._shares.give_back(connection.client, 1)
        self._partial.set(connection, 0)
        self._arrivals.discard(connection)
        if reason is not None:
            self.counts.closed[reason] += 1
        if not self._connections:
            self._all_closed.set()

    def _end_slow(self, other_end: OtherEnd) -> None:
        for connection in list(self._connections):
            if peer_of(connection.peer) == other_end:
                connection.end(Closed.SLOW)

    # ------------------------------------------------------------------------------------------- of the connections

    def on_greeted(self, connection: FrameConnection) -> None:
        """Count a connection that speaks the protocol."""
        self._arrivals.discard(connection)
        self.counts.connections += 1

    def on_begun(self, size_bytes: int) -> None:
        """Count a call, and the bytes of its request."""
        self.call_bytes += size_bytes
        self.counts.calls += 1

    def on_ended(self, size_bytes: int) -> None:
        """Count the bytes of a request no longer."""
        self.call_bytes -= size_bytes

    def on_partial(self, connection: FrameConnection, size_bytes: int) -> None:
        """Bound the bytes of incomplete frames; may end this connection, or another one."""
        self._partial.set(connection, size_bytes)

    def on_unsent(self, connection: FrameConnection, size_bytes: int) -> None:
        """Bound the bytes of answers that clients do not read."""
        if size_bytes > 0:
            self._unread.begin(connection.peer, size_bytes)
        else:
            self._unread.end(connection.peer, -size_bytes)

    def on_closed(self, connection: FrameConnection, reason: Closed | None) -> None:
        """Forget a connection."""
        if connection in self._connections and connection.is_greeted:
            self.counts.connections -= 1
        self._forget(connection, reason)
