"""The two services that every gRPC tool knows: health checking and reflection.

`grpc.health.v1.Health` says SERVING for the empty name and for each service of the server, as long as the server runs:
what a load balancer or an orchestrator asks. Whether a node leads says its Status. `grpc.reflection` tells tools such
as grpcurl which methods there are.
"""

from __future__ import annotations

import grpc.aio
from google.protobuf.descriptor import FileDescriptor
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection


async def add_standard_services(server: grpc.aio.Server, *files: FileDescriptor) -> None:
    """Add both to a server that is not started yet.

    Args:
        server: it.
        files: whose services it serves.
    """
    names = [service.full_name for file in files for service in file.services_by_name.values()]
    servicer = health.aio.HealthServicer()
    for name in names:
        await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    reflection.enable_server_reflection((*names, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
