"""The connections of one client to its servers: one for each address, and more for streams.

A server accepts at most 128 calls at a time on one connection (`dledger.service.grpc_server.STREAMS_MAX`), and gRPC
delays further ones until others end. Streams that stay open, of consumers and of readers that follow a log, would delay
all other calls without limit, so each connection carries at most `STREAMS_PER_CONNECTION_MAX` of them.

Not here: how a channel is opened (`dledger.security.channels`), and which address is asked.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Half of what a server accepts: the rest is for calls that end soon.
STREAMS_PER_CONNECTION_MAX: Final = 64

ChannelT = TypeVar("ChannelT")
StubT = TypeVar("StubT")


class Connections(Generic[ChannelT, StubT]):
    """Channels and stubs of one client, opened when first used. Any thread may call the methods.

    Args:
        connect: opens a channel to `host:port`.
        stub_of: makes the stub of a channel.
    """

    def __init__(self, connect: Callable[[str], ChannelT], stub_of: Callable[[ChannelT], StubT]) -> None:
        self._connect = connect
        self._stub_of = stub_of
        self._lock = threading.Lock()
        # By address and number: number 0 carries calls, and the first streams.
        self._channels: dict[tuple[str, int], ChannelT] = {}
        self._stubs: dict[tuple[str, int], StubT] = {}
        # Open streams of each connection, by address.
        self._streams: dict[str, list[int]] = {}

    def channel(self, address: str) -> ChannelT:
        """Return the channel of calls to `address`; it connects at the first call."""
        self.stub(address)
        return self._channels[address, 0]

    def stub(self, address: str) -> StubT:
        """Return the stub for calls that end soon, and for streams of which a client has one."""
        stub = self._stubs.get((address, 0))
        return self._open(address, 0) if stub is None else stub

    @contextmanager
    def stream_stub(self, address: str) -> Iterator[StubT]:
        """Lend a stub for one stream, on a connection that has space for it; the stream ends with the block."""
        with self._lock:
            counts = self._streams.setdefault(address, [])
            full = STREAMS_PER_CONNECTION_MAX
            number = next((at for at, count in enumerate(counts) if count < full), len(counts))
            if number == len(counts):
                counts.append(0)
            counts[number] += 1
        try:
            yield self._open(address, number)
        finally:
            with self._lock:
                counts[number] -= 1

    def channels(self) -> list[ChannelT]:
        """Return all open channels."""
        with self._lock:
            return list(self._channels.values())

    def _open(self, address: str, number: int) -> StubT:
        with self._lock:
            if (address, number) not in self._stubs:
                channel = self._connect(address)
                self._stubs[address, number] = self._stub_of(channel)
                self._channels[address, number] = channel
            return self._stubs[address, number]
