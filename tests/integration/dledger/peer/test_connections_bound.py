"""What one client can use of a server: connections, and calls on one connection, are bounded."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import dledger.service.grpc_server
from cluster.local.node import choose_ports
from dledger.config import Address
from dledger.service.grpc_server import start_grpc_server
from tests.support.network.http2 import DATA, END_HEADERS, HEADERS, frame, headers_of, opening
from tests.support.waiting import PATIENCE_S

CONNECTIONS_MAX = 8
CALLS_MAX = 64
STREAMS = 5_000


def resident_bytes() -> int:
    """Return the memory of this process, as the kernel counts it."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Return whether the other side has closed a connection that it has sent nothing but settings on."""
    # It may be closed while this side still writes.
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while await reader.read(4096):
            continue
    return True


def test_server_closes_connections_beyond_its_bound_and_serves_when_others_have_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dledger.service.grpc_server, "connections_max", lambda: CONNECTIONS_MAX)

    async def main() -> None:
        (port,) = choose_ports(1, None)
        server = await start_grpc_server(Address("127.0.0.1", port), [])
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4 * CONNECTIONS_MAX)]
        ends = [asyncio.ensure_future(is_closed(reader)) for reader, _ in idle]

        async with asyncio.timeout(PATIENCE_S):
            while sum(end.done() for end in ends) < 3 * CONNECTIONS_MAX:
                await asyncio.wait([end for end in ends if not end.done()], return_when=asyncio.FIRST_COMPLETED)

        for _, writer in idle:
            writer.close()
        await asyncio.gather(*ends)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            asked = health_pb2.HealthCheckRequest()
            answer = await health_pb2_grpc.HealthStub(channel).Check(asked, timeout=PATIENCE_S, wait_for_ready=True)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        await server.stop(0)

    asyncio.run(main())


async def check(port: int) -> int:
    """Ask a server for its health on a connection of its own."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        asked = health_pb2.HealthCheckRequest()
        return (await health_pb2_grpc.HealthStub(channel).Check(asked, timeout=PATIENCE_S)).status


def test_calls_of_one_connection_leave_half_of_all_calls_and_health_checks_to_others() -> None:
    """The rest of its calls are refused, and so are waiting calls of its address on other connections."""

    async def main() -> None:
        (port,) = choose_ports(1, None)
        server = await start_grpc_server(Address("127.0.0.1", port), [], calls_max=CALLS_MAX)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            calls = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(4 * CALLS_MAX)]
            answers = [asyncio.ensure_future(call.read()) for call in calls]
            # The connection carries half of all calls, which is more than its share: each call is served or refused.
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.wait(answers)

            assert await check(port) == health_pb2.HealthCheckResponse.SERVING
            assert await watch(port) is grpc.StatusCode.RESOURCE_EXHAUSTED
            served = [answer for answer in answers if answer.exception() is None]
            assert 0 < len(served) <= CALLS_MAX // 2
            for call in calls:
                call.cancel()
            await asyncio.gather(*answers, return_exceptions=True)
        async with asyncio.timeout(PATIENCE_S):
            while await watch(port) is not grpc.StatusCode.OK:
                continue
        await server.stop(0)

    asyncio.run(main())


async def watch(port: int) -> grpc.StatusCode:
    """Return whether a call that waits is served on a new connection."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        call = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
        try:
            assert (await call.read()).status == health_pb2.HealthCheckResponse.SERVING
        except grpc.aio.AioRpcError as error:
            return error.code()
        call.cancel()
        return grpc.StatusCode.OK


@pytest.mark.parametrize("size", [8, 100], ids=["within the window of the connection", "beyond it"])
def test_client_that_ignores_the_bound_of_calls_disturbs_no_other_client(size: int) -> None:
    """It opens thousands of streams in one piece and sends a part of a message on each.

    The server closes a connection whose client sends more than its window of 64 KiB allows.
    """
    headers = headers_of("/grpc.health.v1.Health/Watch")
    half = b"\0" + (1 << 20).to_bytes(4, "big") + bytes(size)

    async def main() -> None:
        (port,) = choose_ports(1, None)
        server = await start_grpc_server(Address("127.0.0.1", port), [], calls_max=CALLS_MAX)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        before = resident_bytes()
        writer.write(opening())
        for stream in range(1, 2 * STREAMS, 2):
            writer.write(frame(HEADERS, END_HEADERS, stream, headers) + frame(DATA, 0, stream, half))
        end = asyncio.ensure_future(is_closed(reader))

        for _ in range(20):
            async with asyncio.timeout(PATIENCE_S):
                assert await check(port) == health_pb2.HealthCheckResponse.SERVING

        assert resident_bytes() - before < 64 << 20
        writer.close()
        await end
        await server.stop(0)

    asyncio.run(main())
