"""Every field of every request to a name server is sent as large and as hostile as it can be.

See `tests.support.network.hostile_requests`. Clients, too: a call ends in time, whatever a name server answers.
"""

import time
from typing import Self

import grpc
import grpc.aio
import pytest

from cluster import Consumer, Producer
from cluster.api.name_server import TOPICS_PER_PAGE, NameServer
from cluster.api.name_servers.links import GrpcNameServer
from cluster.local.node import choose_ports
from cluster.nameserver.registration import Registrar
from cluster.protocol.errors import RequestFailed
from cluster.protocol.request_bounds import NAME_SERVER_BOUNDS
from cluster.protocol.route_table import BrokerNode, Registration, TopicQueues
from cluster.v1 import nameserver_pb2 as pb
from cluster.v1 import nameserver_pb2_grpc
from dledger.config import Address
from dledger.service.grpc_server import start_grpc_server
from tests.support import waiting
from tests.support.network.hostile_requests import measured_turns, slowness, try_all
from tests.support.waiting import PATIENCE_S, until

NODES = (BrokerNode("n0", "127.0.0.1:1"),)


class Server:
    """A name server in the running loop."""

    def __init__(self) -> None:
        self.address = Address("127.0.0.1", choose_ports(1, None)[0])
        self.service = NameServer()

    async def __aenter__(self) -> Self:
        self._server = await start_grpc_server(self.address, [self.service.served()])
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._server.stop(None)


@pytest.mark.slow
def test_no_request_to_a_name_server_blocks_its_loop() -> None:
    async def scenario() -> None:
        service = pb.DESCRIPTOR.services_by_name["NameServer"]
        nodes = [pb.BrokerNode(id="n0", address="127.0.0.1:1")]
        base = {"broker": "b", "cluster": "c", "leader_id": "n0", "nodes": nodes}
        async with Server() as server:
            with grpc.insecure_channel(str(server.address)) as channel:
                slow, odd = await try_all(channel, service, NAME_SERVER_BOUNDS, base, {}, {})
        assert ([], []) == (slow, odd), "\n".join(slow + odd)

    waiting.run(scenario())


@pytest.mark.slow
def test_a_hundred_thousand_topics_are_registered_and_listed_in_pieces() -> None:
    """Neither the sender of a registration nor the name server blocks this loop, which they share."""
    topics = tuple(TopicQueues(f"t{number:06}", 8, 8, 6) for number in range(100_000))

    async def scenario() -> None:
        async with (
            Server() as server,
            Registrar(str(server.address), GrpcNameServer) as registrar,
            measured_turns() as turns,
        ):
            registrar.publish(Registration("b", "c", 1, 1, "n0", NODES, topics))
            await until(lambda: server.service.topics_count == len(topics))
            # Two pieces, one being made and one being applied, may be in one iteration.
            assert turns.take() < 0.1 * slowness()
            async with grpc.aio.insecure_channel(str(server.address)) as channel:
                stub, after, found = nameserver_pb2_grpc.NameServerStub(channel), "", []
                while True:
                    page = await stub.ListTopics(pb.ListRegisteredTopicsRequest(after=after))
                    found += page.topics
                    assert len(page.topics) <= TOPICS_PER_PAGE
                    if not page.has_more:
                        break
                    after = found[-1]
            assert found == [each.topic for each in topics]

    waiting.run(scenario())


class HostileNameServer(nameserver_pb2_grpc.NameServerServicer):
    """Returns a prescribed route for every topic."""

    def __init__(self, **fields: object) -> None:
        queues = {"read_queues": 4, "write_queues": 4, "permission": 6, "topic": "orders"}
        nodes = fields.pop("nodes", [pb.BrokerNode(id="n0", address="127.0.0.1:1")])
        count = fields.pop("brokers", 1)
        own = {name: fields.pop(name) for name in list(fields) if name in queues}
        self.routes = [
            pb.BrokerRoute(
                broker=f"b{number}",
                cluster="c",
                term=1,
                leader_id="n0",
                nodes=nodes,
                queues=pb.TopicQueues(**queues | own),
                **fields,
            )
            for number in range(count)
        ]

    async def Route(self, request, _context):  # noqa: N802  (gRPC's name)
        return pb.RouteResponse(routes=[pb.TopicRoute(topic=topic, brokers=self.routes) for topic in request.topics])


HOSTILE_ROUTES = {
    "two thousand million queues": {"write_queues": 2_000_000_000, "read_queues": 2_000_000_000},
    "negative queues": {"write_queues": -5, "read_queues": -5},
    "many brokers with many queues": {"brokers": 1_000, "write_queues": 65_536, "read_queues": 65_536},
    "thousands of nodes": {"nodes": [pb.BrokerNode(id=f"n{each}", address="127.0.0.1:1") for each in range(20_000)]},
    "an address of two lines": {"nodes": [pb.BrokerNode(id="n0", address="127.0.0.1:1\nCRITICAL")]},
    "an address of a file": {"nodes": [pb.BrokerNode(id="n0", address="unix:/etc/passwd")]},
    "no nodes": {"nodes": []},
    "another topic": {"topic": "../../etc"},
}


@pytest.mark.parametrize("fields", HOSTILE_ROUTES.values(), ids=HOSTILE_ROUTES)
def test_a_client_survives_any_route(fields, caplog) -> None:
    async def scenario() -> None:
        server = grpc.aio.server()
        nameserver_pb2_grpc.add_NameServerServicer_to_server(HostileNameServer(**fields), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        begin_s = time.monotonic()
        try:
            async with Producer(name_servers=f"127.0.0.1:{port}") as producer:
                with pytest.raises(RequestFailed):
                    await producer.send("orders", b"x", deadline_s=0.5)
            async with Consumer(
                name_servers=f"127.0.0.1:{port}", group="billing", topics="orders", mode="broadcast"
            ) as consumer:
                assert await consumer.poll(timeout_s=0.1) == []
        finally:
            await server.stop(None)
        assert time.monotonic() - begin_s < PATIENCE_S
        assert not any("\n" in record.getMessage() for record in caplog.records)

    waiting.run(scenario())


def test_addresses_with_line_ends_are_refused_and_reach_no_log(caplog) -> None:
    async def scenario() -> None:
        async with Server() as server, grpc.aio.insecure_channel(str(server.address)) as channel:
            stub = nameserver_pb2_grpc.NameServerStub(channel)
            node = pb.BrokerNode(id="n0", address="127.0.0.1:1\n2026-01-01 CRITICAL stopped")
            request = pb.RegisterRequest(broker="b", cluster="c", leader_id="n0", nodes=[node])
            assert (await stub.Register(request)).answer.reason == "ILLEGAL_REGISTRATION"
            await stub.Unregister(pb.UnregisterRequest(broker="b\nCRITICAL"))
            await stub.SetWritable(pb.SetWritableRequest(broker="b\nCRITICAL"))
            await stub.Heartbeat(pb.HeartbeatRequest(broker="b\nCRITICAL"))
        assert not any("\n" in record.getMessage() for record in caplog.records)

    with caplog.at_level("DEBUG"):
        waiting.run(scenario())
