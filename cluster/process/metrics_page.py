"""The pages `/metrics`, `/healthz` and `/readyz`, served over HTTP or HTTPS by a separate thread.

A slow reader delays neither the log nor others.

Concurrent connections, bytes of a request, and the duration of a connection are bounded, so that a client that sends or
reads nothing costs a few kilobytes for a few seconds. Each connection serves one request. Handshakes of TLS have their
own bound: clients that end none cannot end the exchanges of scrapers, which with `metrics_tls = "mutual"` have shown a
certificate.

Not here: the metrics (`dledger.metrics`, `cluster.broker.metrics`); health (`cluster.process.health`); certificates
(`dledger.security.credentials`).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from prometheus_client.exposition import choose_encoder

from cluster.process.health import LoopSilent
from cluster.process.loop_thread import LoopThread
from cluster.process.page_metrics import CROWDED, HANDSHAKE, SILENT, PageMetrics
from cluster.process.tasks import end_tasks
from dledger.security.errors import CertificateRevoked
from dledger.security.revoked import CurrentRevoked, nothing_revoked
from dledger.sockets import accept_all, open_listeners

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Iterator

    from prometheus_client import CollectorRegistry

    from cluster.process.health import Health
    from dledger.config import Address

    # Returns the context of the next connection; the page's thread calls it.
    CurrentContext = Callable[[], ssl.SSLContext]

# Maximum concurrent connections; a scraper uses one. Above it the oldest connection is closed.
CONNECTIONS_MAX: Final = 32
# Maximum concurrent handshakes, in addition; above it the oldest one is ended.
HANDSHAKES_MAX: Final = 32
EXCHANGE_LIMIT_S: Final = 10.0
_REQUEST_SIZE_BYTES_MAX: Final = 8 << 10
_HEAD_END: Final = b"\r\n\r\n"
_METRICS: Final = frozenset({"/", "/metrics"})
_HEALTHY: Final = "/healthz"
_READY: Final = "/readyz"
_UNAVAILABLE: Final = "503 Service Unavailable"
# Of the formats of Prometheus.
_VERSIONS: Final = frozenset({"0.0.1", "0.0.4", "1.0.0"})
# How often a refused connection is logged.
_LOG_INTERVAL_S: Final = 5.0

logger = logging.getLogger(__name__)


@contextmanager
def metrics_page(
    address: Address | None,
    registry: CollectorRegistry,
    *,
    tls: CurrentContext | None = None,
    revoked: CurrentRevoked = nothing_revoked,
    health: Health | None = None,
    exchange_limit_s: float = EXCHANGE_LIMIT_S,
) -> Iterator[None]:
    """Serve the metrics of `registry`, and the health of the process, while the block runs.

    Args:
        address: address to listen on; None: do nothing.
        registry: registry of the metrics, read in the page's thread at each request; the page adds its own.
        tls: returns the context of the next connection; it must not wait. None: plain HTTP.
        revoked: returns the certificates of scrapers that are refused now.
        health: of the process; None: there are no pages about it.
        exchange_limit_s: limit of the duration of one connection, with its handshake.

    Raises:
        OSError: the address cannot be listened on.
    """
    if address is None:
        yield
        return
    thread = LoopThread("metrics")
    page = _Page(registry, tls, revoked, health, exchange_limit_s)
    try:
        thread.run(page.start(address))
        registry.register(page.metrics)
        try:
            yield
        finally:
            registry.unregister(page.metrics)
            thread.run(page.stop())
    finally:
        thread.close()


class _Connection:
    """An accepted connection, and the task that serves it."""

    def __init__(self, accepted: socket.socket, host: str) -> None:
        self.host = host
        self.task: asyncio.Task[None] | None = None
        # None: the handshake has not ended.
        self.writer: asyncio.StreamWriter | None = None
        self._socket: socket.socket | None = accepted

    def taken(self) -> socket.socket:
        """Return the socket, which the caller closes."""
        accepted, self._socket = self._socket, None
        assert accepted is not None
        return accepted

    def end(self) -> None:
        """End the connection; unsent data is discarded."""
        # Not in the task, because a task that is cancelled immediately never starts.
        if self.task is not None:
            self.task.cancel()
        if self.writer is not None:
            self.writer.transport.abort()
        if self._socket is not None:
            self._socket.close()


class _Page:
    """Serves each connection in its own task. For use by one event loop."""

    def __init__(
        self,
        registry: CollectorRegistry,
        tls: CurrentContext | None,
        revoked: CurrentRevoked,
        health: Health | None,
        exchange_limit_s: float,
    ) -> None:
        self.metrics = PageMetrics()
        self._health = health
        self._revoked = revoked
        self._registry = registry
        self._tls = tls
        self._exchange_limit_s = exchange_limit_s
        self._accepting: list[asyncio.Task[None]] = []
        # Both in order of arrival: connections in their handshake, and those after it.
        self._handshakes: dict[_Connection, None] = {}
        self._exchanges: dict[_Connection, None] = {}
        self._logged_at_s: float | None = None

    async def start(self, address: Address) -> None:
        try:
            listeners = await open_listeners(address.host, address.port)
        except OSError as error:
            raise OSError(error.errno, f"metrics_address {error.strerror}") from error
        self._accepting = [
            asyncio.create_task(accept_all(listener, self._accept, self._note_failure)) for listener in listeners
        ]

    async def stop(self) -> None:
        await end_tasks(self._accepting)
        tasks = [each.task for each in (*self._handshakes, *self._exchanges) if each.task is not None]
        for connection in (*self._handshakes, *self._exchanges):
            connection.end()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, accepted: socket.socket, host: str) -> None:
        connection = _Connection(accepted, host)
        self._add(self._handshakes, connection, HANDSHAKES_MAX)
        connection.task = asyncio.create_task(self._serve(connection))
        connection.task.add_done_callback(lambda _: self._forget(connection))

    def _forget(self, connection: _Connection) -> None:
        self._handshakes.pop(connection, None)
        self._exchanges.pop(connection, None)
        connection.end()

    def _note_failure(self, error: OSError) -> None:
        logger.warning("metrics_page_full reason=%r", str(error))

    async def _serve(self, connection: _Connection) -> None:
        """Read one request, answer it, and close; a client that is too slow or disconnects gets no answer."""
        try:
            async with asyncio.timeout(self._exchange_limit_s):
                reader, writer = await self._connect(connection)
                # A client that ends its side, sends too much, or is gone.
                with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                    writer.write(await self._response_to(await reader.readuntil(_HEAD_END)))
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        # OSError includes TimeoutError and ssl.SSLError.
        except (OSError, CertificateRevoked) as error:
            self.metrics.count(SILENT if isinstance(error, TimeoutError) else HANDSHAKE)
            if connection.writer is None:
                self._note_refusal(connection.host, error)

    async def _connect(self, connection: _Connection) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Pass the handshake, if there is one, and return both directions of the connection.

        Raises:
            OSError: the handshake failed.
            CertificateRevoked: of the certificate that the client presented.
        """
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(_REQUEST_SIZE_BYTES_MAX, loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        times = {"ssl_handshake_timeout": self._exchange_limit_s, "ssl_shutdown_timeout": self._exchange_limit_s}
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            connection.taken(),
            ssl=None if self._tls is None else self._tls(),
            **({} if self._tls is None else times),
        )
        try:
            self._revoked().refuse_peer(transport.get_extra_info("peercert"))
        except CertificateRevoked:
            transport.abort()
            raise
        connection.writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        del self._handshakes[connection]
        self._add(self._exchanges, connection, CONNECTIONS_MAX)
        return reader, connection.writer

    def _add(self, connections: dict[_Connection, None], new: _Connection, count_max: int) -> None:
        """Add a connection; end the oldest if there are too many."""
        connections[new] = None
        if len(connections) > count_max:
            oldest = next(iter(connections))
            del connections[oldest]
            oldest.end()
            self.metrics.count(CROWDED)

    def _note_refusal(self, host: str, error: Exception) -> None:
        """Log why a handshake failed; any client can cause any number of them, so most are not logged."""
        now_s = asyncio.get_running_loop().time()
        if self._logged_at_s is None or now_s - self._logged_at_s >= _LOG_INTERVAL_S:
            self._logged_at_s = now_s
            logger.warning("metrics_refused host=%s reason=%r", host, str(error) or "no handshake in time")

    async def _response_to(self, head: bytes) -> bytes:
        lines = head.decode("latin-1").split("\r\n")
        method, _, target = lines[0].partition(" ")
        path = target.partition(" ")[0].partition("?")[0]
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", "text/plain", b"GET only\n")
        is_body_sent = method == "GET"
        if path in (_HEALTHY, _READY) and self._health is not None:
            status, text = await _state(self._health, is_readiness=path == _READY)
            return _response(status, "text/plain; charset=utf-8", text.encode(), is_body_sent=is_body_sent)
        if path not in _METRICS:
            known = b"the pages are /metrics, /healthz and /readyz\n"
            return _response("404 Not Found", "text/plain", known, is_body_sent=is_body_sent)
        encode, kind = choose_encoder(_known_formats(headers.get("accept", "")))
        return _response("200 OK", kind, encode(self._registry), is_body_sent=is_body_sent)


async def _state(health: Health, *, is_readiness: bool) -> tuple[str, str]:
    """Return the status and the text of the page about health, or of that about readiness."""
    try:
        reasons = await health.asked()
    except LoopSilent as error:
        return _UNAVAILABLE, f"not alive: {error}\n"
    if is_readiness and reasons:
        return _UNAVAILABLE, "".join(f"not ready: {reason}\n" for reason in reasons)
    return "200 OK", "ok\n"


def _known_formats(accept: str) -> str:
    """Return the formats of the header `Accept` whose version is known, or not named.

    The library that chooses between them fails for versions that are no numbers, and repeats the chosen one in the
    response, so a client could add lines to its head.
    """

    def is_known(accepted: str) -> bool:
        parameters = (token.strip().partition("=") for token in accepted.split(";"))
        return all(value in _VERSIONS for name, _, value in parameters if name == "version")

    return ",".join(filter(is_known, accept.split(",")))


def _response(status: str, kind: str, body: bytes, *, is_body_sent: bool = True) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode("latin-1") + (body if is_body_sent else b"")
