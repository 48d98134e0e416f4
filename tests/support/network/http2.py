"""HTTP/2 frames of a client that violates the protocol, for tests of servers."""

from asyncio import StreamReader
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
END_HEADERS, END_STREAM, ACK = 4, 1, 1
MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE = 3, 4
CANCEL = 8


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


class Frame(NamedTuple):
    """A frame of HTTP/2; stream 0 is the connection."""

    kind: int
    flags: int
    stream: int
    content: bytes


async def read_frame(reader: StreamReader) -> Frame:
    """Return the next frame of a server."""
    head = await reader.readexactly(9)
    content = await reader.readexactly(int.from_bytes(head[:3], "big"))
    return Frame(head[3], head[4], int.from_bytes(head[5:], "big"), content)


def headers_of(path: str) -> bytes:
    """Return the headers of a gRPC call as HPACK literals without indexing."""
    pairs = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"), ("te", "trailers")]
    parts = []
    for name, value in [*pairs, ("content-type", "application/grpc")]:
        parts.append(b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode())
    return b"".join(parts)


def opening(window: int | None = None) -> bytes:
    """Return the start of a connection; `window`: the bytes that each stream accepts, None for the usual 64 KiB."""
    settings = b"" if window is None else INITIAL_WINDOW_SIZE.to_bytes(2, "big") + window.to_bytes(4, "big")
    return PREFACE + frame(SETTINGS, 0, 0, settings)


def call(stream: int, path: str, request: bytes) -> bytes:
    """Return a complete call with one request; stream ids of a client are odd and increase."""
    message = b"\0" + len(request).to_bytes(4, "big") + request
    return frame(HEADERS, END_HEADERS, stream, headers_of(path)) + frame(DATA, END_STREAM, stream, message)


def reset_calls(first_stream: int, count: int, path: str) -> bytes:
    """Return calls that are opened and cancelled immediately."""
    headers = headers_of(path)
    return b"".join(
        frame(HEADERS, END_HEADERS, stream, headers) + frame(RST_STREAM, 0, stream, CANCEL.to_bytes(4, "big"))
        for stream in range(first_stream, first_stream + 2 * count, 2)
    )
