"""Listens for clients of the remoting protocol, and bounds their connections.

It accepts by itself, as the frame port does: connections beyond a client's share are closed before anything of them is
read, and those without a first frame are bounded in number and time, TLS handshakes included. A port with TLS looks at
the first byte of a connection, which stays in the socket: that of TLS begins no frame. Clients before version 4.5.1
send messages to the port whose number is smaller by two (the "VIP channel"), so there may be several addresses.

Not here: one connection (`connection`), and what requests mean (`front`).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cluster.remoting.connection import RemotingConnection
from cluster.remoting.limits import RemotingLimits
from dledger.errors import DLedgerError
from dledger.networks import network_of_host
from dledger.peer.unverified_peers import UnverifiedPeers
from dledger.security.contexts import front_context
from dledger.security.peers import TLS_HANDSHAKE
from dledger.security.server_port import PortContexts
from dledger.security.settings import PLAIN
from dledger.service.frames.limits import Closed
from dledger.service.frames.partial_frames import PartialFrames
from dledger.service.frames.turns import FairTurns
from dledger.service.limits.fair_shares import FairShares
from dledger.service.limits.open_connections import peer_of
from dledger.service.limits.unread_answers import UnreadAnswers
from dledger.sockets import accept_all, first_byte, open_listeners

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from cluster.remoting.command import Request, Response
    from cluster.remoting.front import Front, RemotingClient
    from dledger.config import Address
    from dledger.security.server_port import PortSecurity
    from dledger.service.limits.open_connections import OtherEnd

_LOOK_INTERVAL_S: Final = 1.0
_REFUSED_INTERVAL_S: Final = 5.0
# Of the end of a TLS connection whose client does not answer.
_SHUTDOWN_LIMIT_S: Final = 1.0

logger = logging.getLogger(__name__)


class PlainRefused(DLedgerError):
    """A connection without TLS to a port that has it; nothing was read. Its client must use TLS."""


@dataclass(slots=True)
class _Arrival:
    """An accepted socket.

    Attributes:
        accepted: the socket.
        is_taken: the event loop's transport has it, and closes it.
    """

    accepted: socket.socket
    is_taken: bool = False


class RemotingServer:
    """The port of one node, from `start` to `stop`. Construct it in the event loop.

    Args:
        addresses: to listen on, at least one.
        front: answers requests.
        limits: of connections.
        security: of the port: plain, or TLS with the certificates of the moment.
        is_permissive: a port with TLS takes plain connections, too.
        count_limited: gets the name of the bound by which a connection has ended, for metrics.

    Attributes:
        limits: as given.
        turns: of the connections.
        calls, call_bytes: of all requests in flight.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        front: Front,
        limits: RemotingLimits | None = None,
        *,
        security: PortSecurity = PLAIN,
        is_permissive: bool = False,
        count_limited: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._count_limited = count_limited
        self.limits = limits or RemotingLimits()
        self.turns = FairTurns(asyncio.get_running_loop().time)
        self.calls = self.call_bytes = 0
        self._addresses, self._front = addresses, front
        self._security, self._is_permissive = security, is_permissive
        self._contexts: PortContexts | None = None
        # When a refused connection was logged, by the loop's clock, and the number of those refused since.
        self._refused_s, self._refused_count = -_REFUSED_INTERVAL_S, 0
        self._unread = UnreadAnswers(self._end_slow, self.limits.unread_bytes_max)
        self._partial = PartialFrames(self.limits.partial_bytes_max)
        self._arrivals = UnverifiedPeers(self.limits.ungreeted_max, self.limits.ungreeted_address_max)
        # All connections, from accept to end, oldest first, and what each client has of them.
        self._connections: dict[RemotingConnection, None] = {}
        self._shares = FairShares(self.limits.connections_max)
        # Requests in flight, and their bytes, of each client that has some.
        self._of_clients: dict[str, tuple[int, int]] = {}
        self._all_closed = asyncio.Event()
        self._all_closed.set()
        self._opening: set[asyncio.Task[None]] = set()
        self._listeners: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._looking: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: an address cannot be listened on; choose another one.
            dledger.security.errors.CertificateFault: the certificates cannot be used.
        """
        loop = asyncio.get_running_loop()
        self._contexts = PortContexts(self._security, front_context)
        for address in self._addresses:
            try:
                self._listeners += await open_listeners(address.host, address.port)
            except OSError:
                for listener in self._listeners:
                    listener.close()
                raise
        self._accepting = [
            loop.create_task(accept_all(listener, self._accept, self._note_failure)) for listener in self._listeners
        ]

    @property
    def ports(self) -> list[int]:
        """The numbers of the ports, as the system gave them."""
        return [listener.getsockname()[1] for listener in self._listeners]

    async def stop(self, grace_s: float) -> None:
        """Stop listening; requests in flight get `grace_s` seconds, and then a response that this node stops.

        Clients before version 5.1.3 do not notice that a connection was closed, so none is left without a response.
        """
        for task in [*self._accepting, *self._opening]:
            task.cancel()
        if self._accepting:
            await asyncio.wait(self._accepting)
        # A task that was cancelled before its first step has not closed its own.
        for listener in self._listeners:
            listener.close()
        self._arrivals.close(DLedgerError("the server stops"))
        calls = self._tasks()
        if calls:
            await asyncio.wait(calls, timeout=grace_s)
        calls = self._tasks()
        for task in calls:
            task.cancel()
        if calls:
            await asyncio.wait(calls)
        for connection in list(self._connections):
            connection.finish(Closed.STOPPED)
        if self._connections:
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self._all_closed.wait()
        # The last responses of clients that read slowly are given up.
        for connection in list(self._connections):
            connection.abort()
        await self._all_closed.wait()
        if self._looking is not None:
            self._looking.cancel()

    async def answer(self, request: Request, client: RemotingClient) -> Response | None:
        """Return the response to a request; None: there is none."""
        return await self._front.answer(request, client)

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for connection in self._connections for task in connection.tasks()]

    # --------------------------------------------------------------------------------------------------- connections

    def _accept(self, accepted: socket.socket, host: str) -> None:
        client = network_of_host(host)
        if not self._shares.take(client, 1):
            self._count_limited(f"remoting_{Closed.CROWDED}")
            accepted.close()
            return
        connection = RemotingConnection(self, client)
        self._connections[connection] = None
        self._all_closed.clear()
        arrival = _Arrival(accepted)
        connection.opening = opening = asyncio.get_running_loop().create_task(self._open(connection, arrival))
        self._opening.add(opening)
        # A task that is cancelled before its first step runs no `finally`.
        opening.add_done_callback(lambda task: self._opened(task, connection, arrival))
        self._arrivals.add(connection, client)
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_INTERVAL_S, self._look)

    async def _open(self, connection: RemotingConnection, arrival: _Arrival) -> None:
        """Let a connection pass the TLS handshake, if it has one; `_look` ends it if that lasts too long."""
        loop = asyncio.get_running_loop()
        try:
            context = await self._context_of(arrival.accepted)
            timeouts: dict[str, float] = {}
            if context is not None:
                timeouts = {"ssl_handshake_timeout": self.limits.greeting_s, "ssl_shutdown_timeout": _SHUTDOWN_LIMIT_S}
            arrival.is_taken = True
            await loop.connect_accepted_socket(lambda: connection, arrival.accepted, ssl=context, **timeouts)
        except (PlainRefused, ssl.SSLError) as error:
            self._note_refused(connection.client, str(error))
        except (OSError, DLedgerError, ValueError) as error:
            logger.debug("remoting_not_opened client=%s reason=%s", connection.client, error)

    async def _context_of(self, accepted: socket.socket) -> ssl.SSLContext | None:
        """Return the TLS context of a connection; None: it is plain.

        Raises:
            PlainRefused: it is plain, and must not be.
            OSError: it has ended.
            dledger.security.errors.CertificateFault: the certificates of the moment cannot be used.
        """
        assert self._contexts is not None, "set by start"
        context = self._contexts.current()
        if context is None or await first_byte(accepted) == TLS_HANDSHAKE:
            return context
        if not self._is_permissive:
            text = "expected TLS: start the client with -Dtls.enable=true, or set rocketmq_remoting_tls = permissive"
            raise PlainRefused(text)
        return None

    def _note_refused(self, client: str, reason: str) -> None:
        """Log a connection that is refused, at most once in some seconds: clients dial again and again."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._refused_s < _REFUSED_INTERVAL_S:
            self._refused_count += 1
            return
        logger.warning("remoting_refused client=%s reason=%r not_logged=%d", client, reason, self._refused_count)
        self._refused_s, self._refused_count = now_s, 0

    def _opened(self, task: asyncio.Task[None], connection: RemotingConnection, arrival: _Arrival) -> None:
        self._opening.discard(task)
        if not arrival.is_taken:
            arrival.accepted.close()
        if not connection.is_made:
            self.on_closed(connection, None)

    def _note_failure(self, error: OSError) -> None:
        logger.warning("remoting_port_full reason=%r", str(error))

    def _look(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for connection in list(self._connections):
            connection.look(now_s)
        self._looking = None
        if self._connections:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_INTERVAL_S, self._look)

    def _end_slow(self, other_end: OtherEnd) -> None:
        for connection in list(self._connections):
            if peer_of(connection.peer) == other_end:
                connection.end(Closed.SLOW)

    # ------------------------------------------------------------------------------------------- of the connections

    def on_spoken(self, connection: RemotingConnection) -> None:
        """A connection has sent its first frame."""
        self._arrivals.discard(connection)

    def has_place(self, client: str) -> bool:
        """Return whether a client may have another request in flight: it has less than what is free for all."""
        calls, size_bytes = self._of_clients.get(client, (0, 0))
        free = self.limits.all_calls_max - self.calls
        return calls < free and size_bytes < self.limits.all_call_bytes_max - self.call_bytes

    def on_begun(self, client: str, size_bytes: int) -> None:
        """Count a request, and its bytes."""
        self._count(client, 1, size_bytes)

    def on_ended(self, client: str, size_bytes: int) -> None:
        """Count it no longer."""
        self._count(client, -1, -size_bytes)

    def _count(self, client: str, calls: int, size_bytes: int) -> None:
        self.calls += calls
        self.call_bytes += size_bytes
        had_calls, had_bytes = self._of_clients.get(client, (0, 0))
        if had_calls + calls:
            self._of_clients[client] = (had_calls + calls, had_bytes + size_bytes)
        else:
            del self._of_clients[client]

    def on_partial(self, connection: RemotingConnection, size_bytes: int) -> None:
        """Bound the bytes of incomplete frames; may end this connection, or another one."""
        self._partial.set(connection, size_bytes)

    def on_unsent(self, connection: RemotingConnection, size_bytes: int) -> None:
        """Bound the bytes of responses that clients do not read."""
        if size_bytes > 0:
            self._unread.begin(connection.peer, size_bytes)
        else:
            self._unread.end(connection.peer, -size_bytes)

    def on_closed(self, connection: RemotingConnection, reason: Closed | None) -> None:
        """Forget a connection."""
        if connection not in self._connections:
            return
        del self._connections[connection]
        self._shares.give_back(connection.client, 1)
        self._partial.set(connection, 0)
        self._arrivals.discard(connection)
        if reason not in (None, Closed.IDLE, Closed.STOPPED):
            self._count_limited(f"remoting_{reason}")
            logger.debug("remoting_connection_ended client=%s reason=%s", connection.address, reason)
        if not self._connections:
            self._all_closed.set()
