"""A client of the frame port for tests: sends any bytes, returns frames as they come."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from dledger.frames.codec import (
    ANSWER,
    CALL,
    CLOSING,
    GREETING,
    METHODS,
    ClientFrame,
    ClientFrameReader,
    decode_greeting,
    decode_methods,
    encode_frame,
    encode_greeting,
)
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from dledger.config import Address

DEADLINE_MS = int(PATIENCE_S * 1000)


class RawFrames:
    """One connection; nothing is checked before it is sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.methods: dict[str, int] = {}
        self._frames = ClientFrameReader.of_client()
        self._arrived: list[ClientFrame] = []

    async def greet(self) -> None:
        self.writer.write(encode_greeting())
        async with asyncio.timeout(PATIENCE_S):
            assert decode_greeting(await self.reader.readexactly(GREETING.size)) == (1, 1)
            frame = await self.next()
        assert frame.kind == METHODS
        self.methods = decode_methods(frame.payload)

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def call(self, call_id: int, path: str, request: Any, deadline_ms: int = DEADLINE_MS) -> None:
        data = request if isinstance(request, bytes) else request.SerializeToString()
        self.send(encode_frame(CALL, data, detail=self.methods[path], call_id=call_id, number=deadline_ms))

    async def next(self) -> ClientFrame:
        """Return the next frame; EOFError: the server has closed the connection."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._arrived:
                data = await self.reader.read(1 << 16)
                if not data:
                    raise EOFError
                self._arrived = self._frames.received(data)
        return self._arrived.pop(0)

    async def answer(self, call_id: int, path: str, request: Any, deadline_ms: int = DEADLINE_MS) -> ClientFrame:
        self.call(call_id, path, request, deadline_ms)
        frame = await self.next()
        assert (frame.kind, frame.call_id) == (ANSWER, call_id)
        return frame

    async def closed(self) -> list[ClientFrame]:
        """Return the frames until the server closes the connection, and wait for that."""
        found = []
        with suppress(EOFError, ConnectionError):
            while True:
                found.append(await self.next())
        return [frame for frame in found if frame.kind != CLOSING]


@asynccontextmanager
async def raw_frames(
    address: Address, context: ssl.SSLContext | None = None, *, is_greeted: bool = True, host: str = "127.0.0.1"
) -> AsyncIterator[RawFrames]:
    """Connect from `host`, and greet unless the test does."""
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context, local_addr=(host, 0))
    client = RawFrames(reader, writer)
    try:
        if is_greeted:
            await client.greet()
        yield client
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
