"""Idle connections take no descriptor from files: a server has a bound for them, and closes what comes beyond it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

import dledger.grpc_server
from cluster.local_node import choose_ports
from dledger.config import Address
from dledger.grpc_server import start_grpc_server
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    import pytest

CONNECTIONS_MAX = 8


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Return whether the other side has closed a connection that it has sent nothing but settings on."""
    with contextlib.suppress(ConnectionResetError):
        while await reader.read(4096):
            continue
    return True


def test_server_closes_connections_beyond_its_bound_and_serves_when_others_have_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dledger.grpc_server, "connections_max", lambda: CONNECTIONS_MAX)

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
