"""A name server with scripted routes, for tests of clients."""

# ruff: noqa: N802  (gRPC prescribes the methods' names)
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc

from cluster.v1 import nameserver_pb2, nameserver_pb2_grpc

if TYPE_CHECKING:
    from tests.integration.cluster.client.scripted_broker import ScriptedBroker


class ScriptedNameServer(nameserver_pb2_grpc.NameServerServicer):
    """Returns the routes of some brokers."""

    def __init__(self, brokers: list[ScriptedBroker]) -> None:
        self.brokers = brokers
        self._server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        nameserver_pb2_grpc.add_NameServerServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(grace=None).wait()

    def Route(self, request: Any, context: grpc.ServicerContext) -> nameserver_pb2.RouteResponse:
        routes = [
            nameserver_pb2.TopicRoute(
                topic=topic,
                brokers=[route.brokers[0] for node in self.brokers for route in node.routes([topic])],
            )
            for topic in request.topics
        ]
        return nameserver_pb2.RouteResponse(routes=[route for route in routes if route.brokers])
