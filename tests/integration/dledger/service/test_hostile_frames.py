"""Frames of gRPC and HTTP/2 that no client sends: compression bombs, damaged frames, large headers, unknown methods.

Each ends its own call or connection, and the server answers the next client.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest

from dledger.service.grpc_server import MESSAGE_SIZE_BYTES_MAX
from tests.integration.dledger.service.test_connection_floods import CHECK, LargeAnswers, serving
from tests.support.network.http2 import DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, frame, headers_of, opening
from tests.support.waiting import PATIENCE_S, in_a_loop

if TYPE_CHECKING:
    from dledger.config import Address

APPEND = "/dledger.v1.LogService/Append"
BOMB = 256 << 20
STREAM_OF_CONTROL = 0
CONTINUATION, PING, GOAWAY = 9, 6, 7


def message(data: bytes, *, is_compressed: bool, size: int | None = None) -> bytes:
    """Return a message of gRPC; `size`: the length that it claims, None: that of the data."""
    return bytes((is_compressed,)) + (len(data) if size is None else size).to_bytes(4, "big") + data


def call_with(body: bytes, path: str = CHECK) -> bytes:
    return opening() + frame(HEADERS, END_HEADERS, 1, headers_of(path)) + frame(DATA, END_STREAM, 1, body)


def header(name: bytes, value: bytes) -> bytes:
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


HOSTILE = {
    "no preface": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "preface of another version": PREFACE.replace(b"2.0", b"9.9"),
    "frame longer than allowed": opening() + b"\xff\xff\xff" + bytes((DATA, 0)) + bytes(4) + bytes(1000),
    "data before headers": opening() + frame(DATA, END_STREAM, 1, b"x"),
    "even stream id": opening() + frame(HEADERS, END_HEADERS, 2, headers_of(CHECK)),
    "headers that are no HPACK": opening() + frame(HEADERS, END_HEADERS, 1, b"\xff" * 1000),
    "header that is no UTF-8": opening()
    + frame(HEADERS, END_HEADERS, 1, headers_of(CHECK) + header(b"x", b"\xff\xfe")),
    "ten thousand headers": opening()
    + frame(HEADERS, 0, 1, headers_of(CHECK))
    + b"".join(frame(CONTINUATION, 0, 1, header(b"k%05d" % number, b"v") * 400) for number in range(25)),
    "compressed without an encoding": call_with(message(zlib.compress(b"x"), is_compressed=True)),
    "message longer than the call": call_with(message(b"", is_compressed=False, size=1_000)),
    "message of four gigabytes": call_with(message(b"x", is_compressed=False, size=(1 << 32) - 1)),
    "byte after the message": call_with(message(b"", is_compressed=False) + b"\0"),
    "no protobuf": call_with(message(b"\xff" * 100, is_compressed=False), APPEND),
    "unknown method": call_with(message(b"", is_compressed=False), "/dledger.v1.LogService/Nothing"),
    "path that climbs": call_with(message(b"", is_compressed=False), "/../../etc/passwd"),
    "path with a line feed": call_with(message(b"", is_compressed=False), "/a\nleader_changed term=9/b"),
    "pings without end": opening() + frame(PING, 0, STREAM_OF_CONTROL, bytes(8)) * 10_000,
    "end without an error": opening() + frame(GOAWAY, 0, STREAM_OF_CONTROL, bytes(8)),
}


def send(address: Address, data: bytes) -> None:
    """Send the bytes and read what comes, until the server closes the connection or sends nothing for a moment."""
    with (
        socket.create_connection((address.host, address.port), timeout=0.5) as connection,
        contextlib.suppress(OSError),
    ):
        connection.sendall(data)
        while connection.recv(1 << 16):
            pass


def reset_largest_memory() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def largest_memory_kib() -> int:
    """Return the largest resident memory of this process since it was reset."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


@pytest.mark.parametrize("name", HOSTILE)
@in_a_loop
async def test_hostile_frame_ends_only_its_own_connection(name: str) -> None:
    async with serving(LargeAnswers()) as (address, channel):
        check = channel.unary_unary(CHECK)
        await check(b"", timeout=PATIENCE_S, wait_for_ready=True)
        await asyncio.to_thread(send, address, HOSTILE[name])
        await check(b"", timeout=PATIENCE_S)
        async with grpc.aio.insecure_channel(str(address)) as other:
            await other.unary_unary(CHECK)(b"", timeout=PATIENCE_S, wait_for_ready=True)


@in_a_loop
async def test_request_is_as_large_as_its_decompressed_bytes() -> None:
    """256 MiB of zeros are 256 KiB on the wire: refused at the limit of a message, without the memory for them."""
    compress = zlib.compressobj(9, wbits=31)
    bomb = b"".join([*(compress.compress(bytes(1 << 20)) for _ in range(BOMB >> 20)), compress.flush()])
    assert len(bomb) < MESSAGE_SIZE_BYTES_MAX < BOMB
    async with serving(LargeAnswers()) as (address, channel):
        check = channel.unary_unary(CHECK)
        await check(b"", timeout=PATIENCE_S, wait_for_ready=True)
        reset_largest_memory()
        before_kib = largest_memory_kib()
        encoding = header(b"grpc-encoding", b"gzip")
        data = message(bomb, is_compressed=True)
        frames = [data[begin : begin + 16_384] for begin in range(0, len(data), 16_384)]
        head = opening() + frame(HEADERS, END_HEADERS, 1, headers_of(APPEND) + encoding)
        # Within the windows that a server grants at first; its answer comes before more is needed, or not at all.
        sent = head + b"".join(frame(DATA, 0, 1, each) for each in frames[:-1]) + frame(DATA, END_STREAM, 1, frames[-1])
        await asyncio.to_thread(send, address, sent)
        text = b"x" * MESSAGE_SIZE_BYTES_MAX * 2
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary(APPEND)(text, timeout=PATIENCE_S, compression=grpc.Compression.Gzip)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, refused.value.details()
        await check(b"", timeout=PATIENCE_S)
        grown_kib = largest_memory_kib() - before_kib
        print(f"the largest memory of the process grew by {grown_kib} KiB")
        assert grown_kib < BOMB >> 11
