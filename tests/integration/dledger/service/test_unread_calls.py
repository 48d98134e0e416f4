"""Calls that send headers and no request block no others: they end after a while, the oldest first."""

import asyncio
import contextlib
import math
import socket
from contextlib import asynccontextmanager, contextmanager

import grpc.aio
import pytest

from cluster.local.node import choose_ports
from dledger.config import Address
from dledger.service.grpc_server import CALLS_MAX as CALLS_PER_SERVER_MAX
from dledger.service.grpc_server import STREAMS_MAX, UNREAD_PART, start_grpc_server
from tests.support.network.hostile_requests import TRIES, TURN_S_MAX, measured_turns, slowness
from tests.support.network.http2 import END_HEADERS, HEADERS, frame, headers_of, opening
from tests.support.waiting import PATIENCE_S

CALLS_MAX = 16
CHECK = "/grpc.health.v1.Health/Check"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


@contextmanager
def calls_without_request(address, path, count):
    """Hold calls of one connection of which only the headers were sent."""
    with socket.create_connection((address.host, address.port), timeout=PATIENCE_S) as connection:
        calls = (frame(HEADERS, END_HEADERS, 2 * number + 1, headers_of(path)) for number in range(count))
        connection.sendall(opening() + b"".join(calls))
        yield connection


@asynccontextmanager
async def serving(**options):
    address = Address("127.0.0.1", choose_ports(1, None)[0])
    server = await start_grpc_server(address, [], **{"calls_max": CALLS_MAX, **options})
    async with grpc.aio.insecure_channel(str(address)) as channel:
        try:
            yield address, channel.unary_unary(CHECK)
        finally:
            await server.stop(None)


@pytest.mark.parametrize("path", [CHECK, REFLECTION])
def test_others_are_served_while_calls_send_no_request(path):
    async def main():
        async with serving(request_limit_s=PATIENCE_S) as (address, check):
            # Each connection is allowed half of all calls: these would take all places.
            with (
                calls_without_request(address, path, CALLS_MAX // 2) as first,
                calls_without_request(address, path, CALLS_MAX // 2) as second,
            ):
                async with asyncio.timeout(PATIENCE_S):
                    # A part of all calls may wait for a request, so the others end.
                    await until_calls_ended(CALLS_MAX - CALLS_MAX // UNREAD_PART, first, second)
                    assert await check(b"", timeout=PATIENCE_S)

    asyncio.run(main())


async def until_calls_ended(count, *connections):
    """Return when this many calls of the connections got the headers that end a call."""
    loop = asyncio.get_running_loop()
    ended, done = [], asyncio.Event()

    async def read(connection):
        connection.setblocking(False)
        content = b""
        while True:
            content += await loop.sock_recv(connection, 4096)
            while len(content) >= 9 and len(content) >= (end := 9 + int.from_bytes(content[:3], "big")):
                if content[3] == HEADERS:
                    ended.append(connection)
                content = content[end:]
            if len(ended) >= count:
                done.set()

    readers = [asyncio.ensure_future(read(each)) for each in connections]
    await done.wait()
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)


def test_call_that_sends_no_request_ends_after_its_limit():
    async def main():
        async with serving(request_limit_s=0.05) as (address, check):
            with calls_without_request(address, CHECK, 1) as connection:
                async with asyncio.timeout(PATIENCE_S):
                    await until_calls_ended(1, connection)
            assert await check(b"", timeout=PATIENCE_S)

    asyncio.run(main())


def test_a_thousand_calls_without_a_request_do_not_block_the_loop():
    """They begin together, most of them end at once as too many, and the others together at their limit."""

    async def main():
        async with (
            serving(calls_max=CALLS_PER_SERVER_MAX, request_limit_s=0.5) as (address, _),
            measured_turns() as turns,
        ):
            shortest_s = math.inf
            for _ in range(TRIES):
                turns.take()
                with contextlib.ExitStack() as stack:
                    held = [stack.enter_context(calls_without_request(address, CHECK, STREAMS_MAX)) for _ in range(8)]
                    async with asyncio.timeout(PATIENCE_S):
                        await until_calls_ended(8 * STREAMS_MAX, *held)
                shortest_s = min(shortest_s, turns.take())
                if shortest_s < TURN_S_MAX:
                    break
            assert shortest_s < TURN_S_MAX * slowness()

    asyncio.run(main())


def test_call_that_ends_without_a_request_is_refused_and_a_stream_is_not():
    async def main():
        async with serving() as (address, _), grpc.aio.insecure_channel(str(address)) as channel:
            none = channel.stream_unary(CHECK)(iter(()), timeout=PATIENCE_S)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await none
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert [each async for each in channel.stream_stream(REFLECTION)(iter(()), timeout=PATIENCE_S)] == []

    asyncio.run(main())
