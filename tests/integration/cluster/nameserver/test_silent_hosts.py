"""One of several hosts is switched off and drops packets: clients use the others, and do not wait for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest

from cluster.cli.targets import Targets
from cluster.client import broker_calls, name_server_calls
from cluster.client.broker_calls import BrokerCalls
from cluster.client.routing import broker_nodes, broker_routes
from cluster.client.routing import finder as route_finder
from cluster.client.routing.broker_nodes import BrokerNodes
from cluster.client.routing.broker_routes import BrokerRouteFinder
from cluster.client.routing.finder import RouteFinder
from cluster.protocol.route_table import BrokerNode, BrokerRoute, Registration
from cluster.v1 import nameserver_pb2 as pb
from cluster.v1.nameserver_pb2_grpc import NameServerStub
from dledger.client import reaching
from dledger.client.failures import CHANNEL_OPTIONS
from tests.integration.cluster.nameserver.test_stale_routes import LEADER, NEW, InOrder, Node, node, serving
from tests.support.network.silent_host import silent_host
from tests.support.waiting import PATIENCE_S, in_a_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

# A client that waits for a silent host waits this long.
AGES_S = 10 * PATIENCE_S
AGES = (*CHANNEL_OPTIONS, ("grpc.min_reconnect_backoff_ms", int(1000 * AGES_S)))


@pytest.fixture(autouse=True)
def patient_connections(monkeypatch) -> None:
    monkeypatch.setattr(broker_calls, "_OPTIONS", AGES)
    for module in (name_server_calls, broker_nodes, route_finder):
        monkeypatch.setattr(module, "CHANNEL_OPTIONS", AGES)
    monkeypatch.setattr(name_server_calls, "TIMEOUT_S", AGES_S)
    for module in (broker_routes, route_finder):
        monkeypatch.setattr(module, "_CALL_TIMEOUT_S", AGES_S)
    monkeypatch.setattr(broker_nodes, "CALL_TIMEOUT_S", AGES_S)
    monkeypatch.setattr(reaching, "ATTEMPT_S", AGES_S)


@pytest.fixture
def silent() -> Iterator[str]:
    with silent_host() as address:
        yield address


def registration_of(*addresses: str) -> Registration:
    nodes = tuple(BrokerNode(f"n{number}", address) for number, address in enumerate(addresses))
    return Registration("b0", "c0", 3, 5, "n0", nodes, (NEW,))


class NamingNode(Node):
    """A node that returns the nodes of its broker prescribed by a test."""

    async def Route(self, request: pb.RouteRequest, context: grpc.aio.ServicerContext) -> pb.RouteResponse:  # noqa: N802
        response = await super().Route(request, context)
        for each in response.routes[0].brokers[0].nodes:
            each.address = self.named
        return response

    named = ""


@in_a_loop
async def test_routes_come_from_the_name_server_that_answers(silent, name_server):
    server = name_server()
    with grpc.insecure_channel(server.address) as channel:
        nodes = [pb.BrokerNode(id="n0", address="127.0.0.1:9")]
        queues = pb.TopicQueues(topic="orders", read_queues=1, write_queues=1, permission=6)
        NameServerStub(channel).Register(
            pb.RegisterRequest(broker="b0", cluster="c0", term=1, leader_id="n0", nodes=nodes, topics=[queues])
        )
    async with asyncio.timeout(PATIENCE_S), RouteFinder([silent, server.address], InOrder()) as finder:
        (route,) = await finder.find("orders")
        assert route.registration.broker == "b0"
    with Targets("", f"{silent},{server.address}", PATIENCE_S) as targets:
        assert [each.broker for each in targets.all()] == ["b0"]


@in_a_loop
async def test_routes_come_from_the_nodes_of_a_broker_that_answer(silent):
    leader = NamingNode(*LEADER[:3], leads=True)
    leader.named = silent
    async with serving(leader) as addresses, BrokerRouteFinder([silent, *addresses]) as finder:
        async with asyncio.timeout(PATIENCE_S):
            (route,) = await finder.find("orders")
        assert route.queues == NEW


@in_a_loop
async def test_a_call_moves_to_another_node_when_the_named_leader_is_silent(silent):
    async with asyncio.timeout(PATIENCE_S), serving(node(LEADER)) as addresses:
        nodes = BrokerNodes()
        nodes.learn([BrokerRoute(registration_of(silent, *addresses), NEW)])
        answer = await nodes.call("b0", lambda stub: stub.Route, pb.RouteRequest(topics=["orders"]), AGES_S)
        assert answer.broker == "b0"
        await nodes.close()


@in_a_loop
async def test_a_command_asks_the_nodes_that_answer(silent):
    async with serving(node(LEADER)) as addresses:

        def ask() -> str:
            with BrokerCalls(f"{silent},{addresses[0]}", AGES_S) as calls:
                return calls.ask(lambda stub: stub.Route, pb.RouteRequest(topics=["orders"])).broker

        async with asyncio.timeout(PATIENCE_S):
            assert await asyncio.to_thread(ask) == "b0"
