"""A broker serves the standard gRPC services for health checks and reflection."""

import asyncio

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tests.integration.cluster.api.conftest import run

SERVICE = "cluster.v1.BrokerService"


def services_at(address):
    with grpc.insecure_channel(address) as channel:
        return set(ProtoReflectionDescriptorDatabase(channel).get_services())


def test_health_and_reflection_are_served(shop):
    async def scenario():
        async with shop.open(), grpc.aio.insecure_channel(str(shop.address)) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for service in ("", SERVICE):
                found = await health.Check(health_pb2.HealthCheckRequest(service=service))
                assert found.status == health_pb2.HealthCheckResponse.SERVING
            assert await asyncio.to_thread(services_at, str(shop.address)) >= {SERVICE, "grpc.health.v1.Health"}

    run(scenario)
