"""The server of a node: every tool that speaks gRPC finds its services; a taken address is reported."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from dledger.service.grpc_server import ServerNotStarted
from dledger.service.log import start_server

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.integration.dledger.conftest import Cluster

SERVICES = {"dledger.v1.LogService", "dledger.v1.AdminService"}


def test_a_node_answers_health_checks_and_names_its_services(
    cluster: Cluster, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def main() -> None:
        await cluster.start()
        node = next(iter(cluster.nodes.values()))
        address = str(node.config.client_address)
        server = await start_server(node, node.config.client_address)
        try:
            async with grpc.aio.insecure_channel(address) as channel:
                health = health_pb2_grpc.HealthStub(channel)
                for name in ("", *SERVICES):
                    answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
                    assert answer.status == health_pb2.HealthCheckResponse.SERVING
            assert await asyncio.to_thread(services_at, address) >= SERVICES
        finally:
            await server.stop(None)
            await cluster.stop()

    run(main())


def services_at(address: str) -> set[str]:
    with grpc.insecure_channel(address) as channel:
        return set(ProtoReflectionDescriptorDatabase(channel).get_services())


def test_server_on_a_taken_address_reports_it(
    cluster: Cluster, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def main() -> None:
        await cluster.start()
        node = next(iter(cluster.nodes.values()))
        server = await start_server(node, node.config.client_address)
        try:
            with pytest.raises(ServerNotStarted, match=str(node.config.client_address)):
                await start_server(node, node.config.client_address)
        finally:
            await server.stop(None)
            await cluster.stop()

    run(main())
