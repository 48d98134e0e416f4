"""The memory of requests that are not complete: what a server accepts of them, and that it serves others meanwhile."""

import asyncio
from functools import partial

import pytest

import dledger.service.grpc_server
from cluster.local.node import choose_ports
from dledger.config import Address
from dledger.service.grpc_server import STREAMS_MAX, start_grpc_server
from dledger.service.limits.unread_calls import READING_MAX, UnreadCalls
from tests.support.network.http2 import HEADERS, call, opening, read_frame
from tests.support.network.unfinished_calls import WINDOW, UnfinishedCalls
from tests.support.waiting import PATIENCE_S, in_a_loop

CHECK = "/grpc.health.v1.Health/Check"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
SIZE = 1 << 20


async def answered(address, source, path):
    """Return when a call from another address of this machine got the headers of its response."""
    reader, writer = await asyncio.open_connection(address.host, address.port, local_addr=(source, 0))
    writer.write(opening() + call(1, path, b""))
    while (await read_frame(reader)).kind != HEADERS:
        pass
    writer.close()


@pytest.mark.parametrize("path", [CHECK, REFLECTION])
@in_a_loop
async def test_server_accepts_few_requests_at_a_time_of_one_client_and_serves_another(path, monkeypatch):
    """Without places it accepts all of them, and with gRPC's probe of the bandwidth it announces larger windows."""
    patient = partial(UnreadCalls, request_limit_s=PATIENCE_S, reading_limit_s=PATIENCE_S)
    monkeypatch.setattr(dledger.service.grpc_server, "UnreadCalls", lambda count_max, _: patient(count_max))
    address = Address("127.0.0.1", choose_ports(1, None)[0])
    server = await start_grpc_server(address, [])
    try:
        calls = [
            UnfinishedCalls(
                *await asyncio.open_connection(address.host, address.port), path, count=STREAMS_MAX, size=SIZE
            )
            for _ in range(2)
        ]
        await asyncio.gather(*(each.send_all() for each in calls))
        sent_bytes = sum(each.sent_bytes for each in calls)
        reading = READING_MAX // 2
        # The places of one client are in use, so that the others are bounded by them.
        assert reading * SIZE <= sent_bytes <= reading * SIZE + 2 * STREAMS_MAX * WINDOW
        await answered(address, "127.0.0.2", path)
    finally:
        await server.stop(None)
