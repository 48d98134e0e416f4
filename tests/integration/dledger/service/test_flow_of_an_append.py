"""The list of docs/flows.md for an append agrees with the code, on three real nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc.aio

from dledger.service.log import start_server
from dledger.v1.log_pb2 import AppendRequest
from dledger.v1.log_pb2_grpc import LogServiceStub
from tests.support.call_order import CallOrder, faults_of

if TYPE_CHECKING:
    from tests.integration.dledger.conftest import Cluster, Run

# An election in the middle of an append changes the order; it is performed again then.
TRIES = 5


def test_append_follows_the_documented_flow(run: Run, cluster: Cluster) -> None:
    order = CallOrder()

    async def append() -> list[str]:
        node = await cluster.in_contact()
        server = await start_server(node, node.config.client_address)
        async with grpc.aio.insecure_channel(str(node.config.client_address)) as channel:
            order.forget()
            await LogServiceStub(channel).Append(AppendRequest(group="test", bodies=[b"hello"]))
        await server.stop(None)
        return faults_of("An append", order)

    async def scenario() -> None:
        await cluster.start()
        faults = await append()
        for _ in range(TRIES - 1):
            if faults:
                faults = await append()
        await cluster.stop()
        assert not faults, "\n".join(faults)

    with order.watch():
        run(scenario())
