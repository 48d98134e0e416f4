"""Bounds the bytes of answers that clients have requested and not taken.

An answer stays in memory until its client has read it. A client that requests large answers and reads none of them
takes up to 4 MiB for each of its calls. Beyond `SIZE_BYTES_MAX` the connection with the most unread bytes is closed, of
the address that has the most: so a slow reader ends itself and no other client.

Answers of less than `COUNTED_BYTES_MIN` are not counted: all calls of a server together have at most 128 MiB of them.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from dledger.networks import client_of_address
from dledger.service.limits.client_addresses import address_of_peer
from dledger.service.limits.open_connections import OtherEnd, peer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import grpc.aio

    Context = grpc.aio.ServicerContext[Any, Any]

SIZE_BYTES_MAX: Final = 256 << 20
COUNTED_BYTES_MIN: Final = 64 << 10

logger = logging.getLogger(__name__)


class UnreadAnswers:
    """The large answers of one server that are not sent yet. Loop thread only.

    Args:
        close: ends the connection of a client.
        size_bytes_max: of all of them together.
    """

    def __init__(self, close: Callable[[OtherEnd], None], size_bytes_max: int = SIZE_BYTES_MAX) -> None:
        self._close = close
        self._size_bytes_max = size_bytes_max
        # By the client's name at gRPC; without those that are being closed.
        self._sizes: Counter[str] = Counter()
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Bytes that are counted now."""
        return self._size_bytes

    def begin_last(self, context: Context, size_bytes: int) -> None:
        """Count the last answer of a call, which gRPC is about to send, until the call is over."""
        if size_bytes >= COUNTED_BYTES_MIN:
            peer = context.peer()
            self.begin(peer, size_bytes)
            # Called when gRPC has sent all of it, or its client has gone. The stubs demand a class of their own.
            context.add_done_callback(lambda _: self.end(peer, size_bytes))  # type: ignore[arg-type]

    @contextmanager
    def in_flight(self, context: Context, size_bytes: int) -> Iterator[None]:
        """Count an answer of a stream while the block sends it."""
        if size_bytes < COUNTED_BYTES_MIN:
            yield
            return
        peer = context.peer()
        self.begin(peer, size_bytes)
        try:
            yield
        finally:
            self.end(peer, size_bytes)

    def begin(self, peer: str, size_bytes: int) -> None:
        """Count an answer that is about to be sent; may close a connection, this one or another."""
        self._sizes[peer] += size_bytes
        self._size_bytes += size_bytes
        while self._size_bytes > self._size_bytes_max:
            self._end_one()

    def end(self, peer: str, size_bytes: int) -> None:
        """Count an answer no longer: it was sent, or its call is over."""
        # Nothing is counted of a connection that is being closed.
        if peer in self._sizes:
            taken = min(size_bytes, self._sizes[peer])
            self._size_bytes -= taken
            self._sizes[peer] -= taken
            if not self._sizes[peer]:
                del self._sizes[peer]

    def _end_one(self) -> None:
        by_client: Counter[str] = Counter()
        for name, size_bytes in self._sizes.items():
            by_client[_client_of(name)] += size_bytes
        client = max(by_client, key=by_client.__getitem__)
        name = max((name for name in self._sizes if _client_of(name) == client), key=self._sizes.__getitem__)
        size_bytes = self._sizes.pop(name)
        self._size_bytes -= size_bytes
        logger.warning(
            "slow_reader_closed peer=%s unread_bytes=%d: answers to all clients exceed %d bytes",
            *(name, size_bytes, self._size_bytes_max),
        )
        peer = peer_of(name)
        if peer is not None:
            self._close(peer)


def _client_of(name: str) -> str:
    return client_of_address(address_of_peer(name))
