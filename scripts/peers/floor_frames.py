"""The frames of the floor: client to leader, leader to followers, and the answers of both.

A frame is a head of 16 bytes, big-endian, and a body:

| offset | size | type | field | meaning |
| ---: | ---: | --- | --- | --- |
| 0 | 4 | u32 | size | bytes of the body |
| 4 | 4 | u32 | count | entries in the body; 0: an answer |
| 8 | 8 | u64 | mark | of a client: its number of the request; of a node: the index after the last entry |

The body of a request has the bodies of its entries, each after its size (u32); that of a push has encoded entries.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Final, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# Takes the connection, and count, mark and body of a frame.
OnFrame: TypeAlias = "Callable[[FrameProtocol, int, int, bytes], None]"

HEAD: Final = struct.Struct(">IIQ")
_SIZE: Final = struct.Struct(">I")


def answer(mark: int) -> bytes:
    """Return the frame of an answer."""
    return HEAD.pack(0, 0, mark)


def request(mark: int, bodies: Sequence[bytes]) -> bytes:
    """Return the frame that asks to append `bodies`."""
    size = sum(map(len, bodies)) + _SIZE.size * len(bodies)
    parts = [HEAD.pack(size, len(bodies), mark)]
    for body in bodies:
        parts += (_SIZE.pack(len(body)), body)
    return b"".join(parts)


def bodies_of(body: bytes) -> Iterator[bytes]:
    """Yield the bodies in the body of a request."""
    position = 0
    while position < len(body):
        (size,) = _SIZE.unpack_from(body, position)
        position += _SIZE.size
        yield body[position : position + size]
        position += size


class FrameProtocol(asyncio.Protocol):
    """One connection: passes each complete frame on as count, mark and body.

    Args:
        on_frame: called with the connection and the parts of each frame.
        on_end: called once the connection has ended.
    """

    def __init__(
        self,
        on_frame: OnFrame,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_frame = on_frame
        self._on_end = on_end
        # Pieces of a frame that is not complete, their bytes, and the bytes that are needed to continue.
        self._pieces: list[bytes] = []
        self._received = 0
        self._needed = HEAD.size
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # That of uvloop is no instance of the class of asyncio.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Pass on the frames that are complete; large ones arrive in many pieces, which are joined once."""
        self._pieces.append(data)
        self._received += len(data)
        if self._received < self._needed:
            return
        received = b"".join(self._pieces) if len(self._pieces) > 1 else data
        position = 0
        self._needed = HEAD.size
        while len(received) - position >= HEAD.size:
            size, count, mark = HEAD.unpack_from(received, position)
            begin = position + HEAD.size
            if begin + size > len(received):
                self._needed = HEAD.size + size
                break
            self._on_frame(self, count, mark, received[begin : begin + size])
            position = begin + size
        rest = received[position:]
        self._pieces, self._received = [rest], len(rest)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (the method of the base class)
        """Report the end."""
        self._transport = None
        self._on_end()

    def send(self, *parts: bytes) -> None:
        """Send the parts of one or more frames; without a connection they are dropped."""
        if self._transport is not None:
            self._transport.writelines(parts)
