"""A log whose entries are not written by clients: raw appends are refused, reads and status are served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc.aio

from cluster.local.node import choose_ports
from dledger.config import Address
from dledger.errors import ResponseCode
from dledger.service.grpc_server import start_grpc_server
from dledger.service.log import log_services
from dledger.v1 import log_pb2
from dledger.v1.log_pb2_grpc import LogServiceStub

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.integration.dledger.conftest import Cluster


def test_appends_are_refused_and_reads_and_status_are_served(
    run: Callable[[Coroutine[Any, Any, None]], None], cluster: Cluster
) -> None:
    async def main() -> None:
        await cluster.start()
        node = await cluster.leader()
        appended = await node.append([b"one"])
        (port,) = choose_ports(1, None)
        server = await start_grpc_server(
            Address("127.0.0.1", port), log_services(node, append_refusal="ask the broker")
        )
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = LogServiceStub(channel)
            request = log_pb2.AppendRequest(group="test", bodies=[b"two"], request_id=7)
            streamed = [response async for response in stub.AppendStream(iter([request]))]
            for response in (await stub.Append(request), *streamed):
                assert (response.code, response.message) == (ResponseCode.UNEXPECTED_ARGUMENT, "ask the broker")
                assert response.request_id == 7
            read = stub.Read(log_pb2.ReadRequest(group="test", index=appended.first_index))
            assert [b"one"] == [entry.body async for part in read for entry in part.entries]
            assert (await stub.Status(log_pb2.StatusRequest())).end_index == appended.first_index
        await server.stop(None)
        await cluster.stop()

    run(main())
