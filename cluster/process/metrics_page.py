"""The page `/metrics`, served over HTTP by a separate thread, so that a slow reader delays neither the log nor others.

Concurrent connections, bytes of a request, and the duration of an exchange are bounded, so that a client that sends or
reads nothing costs a few kilobytes for a few seconds. Each connection serves one request. Not here: the metrics
(`dledger.metrics`, `cluster.broker.metrics`).
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from prometheus_client.exposition import choose_encoder

from cluster.process.loop_thread import LoopThread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry

    from dledger.config import Address

# Maximum concurrent connections; a scraper uses one. Above it the oldest connection is closed.
CONNECTIONS_MAX: Final = 32
EXCHANGE_LIMIT_S: Final = 10.0
_REQUEST_SIZE_BYTES_MAX: Final = 8 << 10
_HEAD_END: Final = b"\r\n\r\n"


@contextmanager
def metrics_page(
    address: Address | None, registry: CollectorRegistry, *, exchange_limit_s: float = EXCHANGE_LIMIT_S
) -> Iterator[None]:
    """Serve the metrics of `registry` while the block runs.

    Args:
        address: address to listen on; None: do nothing.
        registry: registry of the metrics, read in the page's thread at each request.
        exchange_limit_s: limit of the duration of one connection.

    Raises:
        OSError: the address cannot be listened on.
    """
    if address is None:
        yield
        return
    thread = LoopThread("metrics")
    page = _Page(registry, exchange_limit_s)
    try:
        thread.run(page.start(address))
        try:
            yield
        finally:
            thread.run(page.stop())
    finally:
        thread.close()


class _Page:
    """Answers each connection in its own task. For use by one event loop."""

    def __init__(self, registry: CollectorRegistry, exchange_limit_s: float) -> None:
        self._registry = registry
        self._exchange_limit_s = exchange_limit_s
        self._server: asyncio.Server | None = None
        # In order of arrival.
        self._exchanges: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(self, address: Address) -> None:
        try:
            self._server = await asyncio.start_server(
                self._accept, address.host, address.port, limit=_REQUEST_SIZE_BYTES_MAX
            )
        except OSError as error:
            raise OSError(error.errno, f"metrics_address {address} cannot be listened on: {error.strerror}") from error

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        exchanges = list(self._exchanges)
        for exchange in exchanges:
            self._end(exchange)
        await asyncio.gather(*exchanges, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        exchange = asyncio.get_running_loop().create_task(self._exchange(reader, writer))
        self._exchanges[exchange] = writer
        exchange.add_done_callback(self._end)
        if len(self._exchanges) > CONNECTIONS_MAX:
            self._end(next(iter(self._exchanges)))

    def _end(self, exchange: asyncio.Task[None]) -> None:
        """End a completed or excess exchange; unsent data is discarded."""
        # Not in the task, because a task that is cancelled immediately never starts.
        writer = self._exchanges.pop(exchange, None)
        if writer is not None:
            exchange.cancel()
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request, answer it, and close; a client that is too slow or disconnects gets no answer."""
        # Includes TimeoutError, which is an OSError.
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(self._exchange_limit_s):
                writer.write(self._response_to(await reader.readuntil(_HEAD_END)))
                await writer.drain()
                writer.close()
                await writer.wait_closed()

    def _response_to(self, head: bytes) -> bytes:
        lines = head.decode("latin-1").split("\r\n")
        method = lines[0].partition(" ")[0]
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", "text/plain", b"GET only\n")
        encode, kind = choose_encoder(headers.get("accept", ""))
        body = encode(self._registry)
        return _response("200 OK", kind, body, is_body_sent=method == "GET")


def _response(status: str, kind: str, body: bytes, *, is_body_sent: bool = True) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode("latin-1") + (body if is_body_sent else b"")
