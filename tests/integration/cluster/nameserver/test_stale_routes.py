"""A lagging follower, or a name server that missed a change of a topic, hides the change from no client."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from itertools import permutations
from typing import TYPE_CHECKING, Any

import grpc.aio
import pytest

from cluster.api.name_server import NameServer
from cluster.client.routing import broker_routes
from cluster.client.routing import cache as route_cache
from cluster.client.routing import finder as route_finder
from cluster.client.routing.broker_routes import BrokerRouteFinder
from cluster.client.routing.finder import RouteFinder
from cluster.local.node import choose_ports
from cluster.protocol.route_table import BrokerNode, BrokerRoute, Registration, TopicQueues
from cluster.protocol.wire.routes import register_request, route_response
from cluster.v1.broker_pb2_grpc import BrokerServiceServicer, add_BrokerServiceServicer_to_server
from cluster.v1.nameserver_pb2_grpc import NameServerStub, add_NameServerServicer_to_server
from dledger.client import reaching
from tests.integration.cluster.nameserver.test_name_server import NODES, until
from tests.support.waiting import PATIENCE_S, in_a_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cluster.v1 import nameserver_pb2 as pb

OLD, NEW = TopicQueues("orders", 4, 4, 6), TopicQueues("orders", 8, 8, 6)


class Node(BrokerServiceServicer):
    """One node of a broker that has some queues of one topic, or none."""

    def __init__(self, queues: TopicQueues | None, term: int, sequence: int, *, leads: bool) -> None:
        self.queues, self.term, self.sequence, self.leads = queues, term, sequence, leads

    async def Route(self, request: pb.RouteRequest, context: grpc.aio.ServicerContext) -> pb.RouteResponse:  # noqa: N802
        routes = {}
        if self.queues is not None:
            leader_id = "n0" if self.leads else ""
            registration = Registration("b0", "c0", self.term, self.sequence, leader_id, NODES, (self.queues,))
            routes["orders"] = [BrokerRoute(registration, self.queues)]
        response = route_response(routes)
        response.broker, response.term, response.may_lack_topics = "b0", self.term, not self.leads
        return response


class InOrder(random.Random):
    """Keeps the given order of name servers."""

    def shuffle(self, x: Any) -> None:
        pass


@pytest.fixture
def patient_calls(monkeypatch) -> None:
    """Raise timeouts, so that no node is skipped on a busy machine."""
    monkeypatch.setattr(reaching, "PATIENCE_S", PATIENCE_S)
    for module in (broker_routes, route_finder):
        monkeypatch.setattr(module, "_CALL_TIMEOUT_S", PATIENCE_S)


LEADER = (NEW, 3, 5, True)
FOLLOWER = (OLD, 3, 4, False)
CANDIDATE = (OLD, 4, 4, False)
DEPOSED = (OLD, 2, 4, True)


@asynccontextmanager
async def serving(*nodes: Node) -> AsyncIterator[list[str]]:
    servers, addresses = [], []
    for node in nodes:
        server = grpc.aio.server()
        add_BrokerServiceServicer_to_server(node, server)
        addresses.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        await server.start()
        servers.append(server)
    try:
        yield addresses
    finally:
        for server in servers:
            await server.stop(None)


def node(what: tuple[TopicQueues | None, int, int, bool]) -> Node:
    queues, term, sequence, leads = what
    return Node(queues, term, sequence, leads=leads)


@pytest.mark.usefixtures("patient_calls")
@pytest.mark.parametrize("order", [*permutations([LEADER, FOLLOWER, CANDIDATE, DEPOSED])])
@in_a_loop
async def test_the_leaders_queues_count_whichever_node_answers_first(order) -> None:
    async with serving(*map(node, order)) as addresses, BrokerRouteFinder(addresses) as finder:
        (route,) = await finder.find("orders")
        assert route.queues == NEW


@pytest.mark.usefixtures("patient_calls")
@pytest.mark.parametrize("stale", [FOLLOWER, CANDIDATE, (None, 4, 3, False)], ids=["follower", "candidate", "empty"])
@in_a_loop
async def test_lagging_nodes_hide_nothing_while_the_leader_is_unreachable(stale) -> None:
    leader = grpc.aio.server()
    add_BrokerServiceServicer_to_server(node(LEADER), leader)
    address = f"127.0.0.1:{leader.add_insecure_port('127.0.0.1:0')}"
    await leader.start()
    async with serving(node(stale)) as addresses, BrokerRouteFinder([address, *addresses]) as finder:
        await finder.find("orders")
        await leader.stop(None)
        await finder.refresh(["orders"])
        (route,) = await finder.find("orders")
        assert route.queues == NEW


@pytest.mark.usefixtures("patient_calls")
@in_a_loop
async def test_routes_of_a_lagging_node_are_refreshed_within_seconds(monkeypatch) -> None:
    # A leader's answer would not be requested again for an hour.
    monkeypatch.setattr(route_cache, "REFRESH_INTERVAL_MS", 3_600_000)
    lagging = node(FOLLOWER)
    async with serving(lagging) as addresses, BrokerRouteFinder(addresses) as finder:
        (route,) = await finder.find("orders")
        assert route.queues == OLD
        # It catches up, and is elected.
        lagging.queues, lagging.term, lagging.sequence, lagging.leads = NEW, 4, 5, True
        await until(lambda: finder.find("orders"), lambda routes: routes[0].queues == NEW)


@pytest.mark.usefixtures("patient_calls")
@in_a_loop
async def test_a_name_server_that_a_change_has_not_reached_does_not_undo_it() -> None:
    servers = []
    for number in (0, 1):
        server = grpc.aio.server()
        (port,) = choose_ports(1, None)
        add_NameServerServicer_to_server(NameServer(), server)
        server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        servers.append((server, f"127.0.0.1:{port}"))
        queues = (NEW, OLD)[number]
        registration = Registration("b0", "c0", 3, 5 - number, "n0", (BrokerNode("n0", "127.0.0.1:1"),), (queues,))
        async with grpc.aio.insecure_channel(servers[-1][1]) as channel:
            await NameServerStub(channel).Register(register_request(registration, registration.topics))
    (up_to_date, new_address), (outdated, old_address) = servers
    try:
        async with RouteFinder([new_address, old_address], InOrder()) as finder:
            (route,) = await finder.find("orders")
            assert route.queues == NEW
            await up_to_date.stop(None)
            assert await finder.refresh(["orders"]) == set()
            assert await finder.find("orders") == (route,)
    finally:
        await up_to_date.stop(None)
        await outdated.stop(None)
