"""An HTTP/2 client with many calls: it sends as much of a large request on each as the server allows, but the end."""

import asyncio

from tests.support.network.http2 import (
    ACK,
    DATA,
    END_HEADERS,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PING,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    headers_of,
    opening,
    read_frame,
)

# As HTTP/2 begins: of each stream, and of the connection, which is stream 0.
WINDOW = 65_535
_FRAME_SIZE_MAX = 16_384


class UnfinishedCalls:
    """Calls of one connection whose requests lack their last byte.

    Attributes:
        sent_bytes: of all requests.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, *, count: int, size: int
    ) -> None:
        self.sent_bytes = 0
        self._reader, self._writer = reader, writer
        self._request = b"\0" + size.to_bytes(4, "big") + bytes(size - 1)
        # Bytes of each call's request that are sent.
        self._sent = dict.fromkeys(range(1, 2 * count, 2), 0)
        self._windows = dict.fromkeys((0, *self._sent), WINDOW)
        self._first_window = WINDOW
        # Of the opening.
        self._unacknowledged = 1
        writer.write(opening())
        for stream in self._sent:
            writer.write(frame(HEADERS, END_HEADERS, stream, headers_of(path)))

    async def send_all(self) -> None:
        """Send until the server allows no more, also not after it has acknowledged settings, twice."""
        idle = 0
        while idle < 2:
            is_sent = self._send_some()
            idle = 0 if is_sent else idle + 1
            # Not a ping: the server closes connections with many of them.
            self._writer.write(frame(SETTINGS, 0, 0))
            await self._writer.drain()
            self._unacknowledged += 1
            while self._unacknowledged:
                await self._read_frame()

    def _send_some(self) -> bool:
        """Send a frame of each call whose windows allow it; return whether one did."""
        before = self.sent_bytes
        for stream, sent in self._sent.items():
            size = min(_FRAME_SIZE_MAX, len(self._request) - sent, self._windows[stream], self._windows[0])
            if size > 0:
                self._writer.write(frame(DATA, 0, stream, self._request[sent : sent + size]))
                self._sent[stream] += size
                self._windows[stream] -= size
                self._windows[0] -= size
                self.sent_bytes += size
        return self.sent_bytes > before

    async def _read_frame(self) -> None:
        kind, flags, stream, content = await read_frame(self._reader)
        is_ack = flags & ACK
        if kind == WINDOW_UPDATE:
            self._windows[stream] += int.from_bytes(content, "big")
        elif kind == PING and not is_ack:
            self._writer.write(frame(PING, ACK, 0, content))
        elif kind == SETTINGS and is_ack:
            self._unacknowledged -= 1
        elif kind == SETTINGS:
            self._take_settings(content)

    def _take_settings(self, content: bytes) -> None:
        for place in range(0, len(content), 6):
            if int.from_bytes(content[place : place + 2], "big") == INITIAL_WINDOW_SIZE:
                window = int.from_bytes(content[place + 2 : place + 6], "big")
                for stream in self._sent:
                    self._windows[stream] += window - self._first_window
                self._first_window = window
        self._writer.write(frame(SETTINGS, ACK, 0))
