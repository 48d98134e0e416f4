"""A registration that no node of the broker confirms is refused; a genuine one is not delayed."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import grpc.aio

from cluster.api.name_server import NameServer
from cluster.api.name_servers.links import GrpcNameServer
from cluster.local.node import choose_ports
from cluster.nameserver import registration_checks
from cluster.nameserver.registration import Registrar
from cluster.nameserver.registration_checks import NODES_ASKED_MAX
from cluster.process.loop_thread import LoopThread
from cluster.protocol.route_table import SILENCE_MS_MAX, BrokerNode, Extent, Registration, TopicQueues
from cluster.protocol.wire.routes import register_request
from cluster.v1 import nameserver_pb2 as pb
from cluster.v1.nameserver_pb2_grpc import NameServerStub
from dledger.config import Address
from dledger.service.grpc_server import start_grpc_server
from tests.integration.cluster.nameserver.test_name_server import leader_of, until
from tests.support.brokers.thread import BrokerThread
from tests.support.network.silent_host import silent_host
from tests.support.status_nodes import StatusNode, lead, status_nodes
from tests.support.waiting import in_a_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

ORDERS = TopicQueues("orders", 8, 8, 6)
HONEST, OTHER, FORGED = b"h" * 16, b"o" * 16, b"f" * 16
HUGE = 1 << 61
EVIL = BrokerNode("evil", "127.0.0.1:6")


class Server:
    """A name server in the running loop, whose clock a test sets."""

    def __init__(self) -> None:
        self.address = ""
        self.now_ms = 0
        self.service = NameServer(clock_ms=lambda: self.now_ms)

    async def register(self, registration: Registration, extent: Extent | None = None) -> str:
        """Send a registration; return the reason of its refusal, or nothing."""
        request = register_request(registration, registration.topics, *([extent] if extent else []))
        response = await self.stub.Register(request)
        assert not response.wants_all or extent
        return response.answer.reason

    async def leader(self) -> str:
        """Return the address of the topic's leader."""
        routes = (await self.stub.Route(pb.RouteRequest(topics=["orders"]))).routes
        if not routes:
            return ""
        (broker,) = routes[0].brokers
        return next(node.address for node in broker.nodes if node.id == broker.leader_id)


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    found = Server()
    address = Address("127.0.0.1", choose_ports(1, None)[0])
    found.address = str(address)
    server = await start_grpc_server(address, [found.service.served()])
    async with grpc.aio.insecure_channel(str(address)) as channel:
        found.stub = NameServerStub(channel)
        try:
            yield found
        finally:
            await server.stop(None)


def registration(
    nodes: Sequence[StatusNode | BrokerNode], leader: StatusNode | BrokerNode, term: int, life: bytes, sequence: int = 1
) -> Registration:
    plain = tuple(each.node if isinstance(each, StatusNode) else each for each in nodes)
    leader_id = leader.node.id if isinstance(leader, StatusNode) else leader.id
    return Registration("b0", "c", term, sequence, leader_id, plain, (ORDERS,), life)


@in_a_loop
async def test_forged_registrations_are_refused_while_an_honest_node_is_alive() -> None:
    async with serving() as server, status_nodes("n0", "n1", "n2") as nodes:
        n0, n1, n2 = nodes
        lead(nodes, n0, 3, HONEST)
        honest = registration(nodes, n0, 3, HONEST)
        assert await server.register(honest) == ""
        forgeries = {
            "another leader": registration([EVIL], EVIL, HUGE, FORGED),
            "another leader among the known nodes": registration([*nodes, EVIL], EVIL, HUGE, FORGED),
            "a known leader at another address": registration([BrokerNode("n0", EVIL.address)], n0, HUGE, FORGED),
            "a known node that does not lead": registration(nodes, n1, 4, FORGED),
            "the leader in a higher term": registration(nodes, n0, HUGE, FORGED),
            "the leader as it is, of another process": registration(nodes, n0, 3, FORGED, HUGE),
            "without a life": registration(nodes, n0, 3, b"", HUGE),
        }
        for what, forged in forgeries.items():
            assert (what, await server.register(forged)) == (what, "REGISTRATION_UNCONFIRMED")
            for extent in (Extent(piece=0, has_more=True), Extent(honest.sequence, ("orders",))):
                await server.register(forged, extent)
            assert (what, await server.leader()) == (what, n0.node.address)

        # Two of three nodes are stopped; the third one knows the leader.
        await n0.stop()
        await n1.stop()
        assert await server.register(forgeries["another leader"]) == "REGISTRATION_UNCONFIRMED"
        assert n2.asked_count > 0
        assert await server.leader() == n0.node.address
        # A registration of the leader itself is accepted without asking other nodes.
        count = n2.asked_count
        assert await server.register(replace(honest, sequence=2)) == ""
        assert n2.asked_count == count


@in_a_loop
async def test_unknown_senders_neither_renew_nor_remove_a_registration() -> None:
    async with serving() as server, status_nodes("n0") as nodes:
        lead(nodes, nodes[0], 3, HONEST)
        assert await server.register(registration(nodes, nodes[0], 3, HONEST)) == ""
        gone = await server.stub.Unregister(pb.UnregisterRequest(broker="b0", term=HUGE, life=FORGED))
        assert gone.answer.reason == "REGISTRATION_UNCONFIRMED"
        for life, is_registered in ((FORGED, False), (b"", False), (HONEST, True)):
            beat = await server.stub.Heartbeat(pb.HeartbeatRequest(broker="b0", term=3, sequence=1, life=life))
            assert beat.is_registered is is_registered
        server.now_ms = SILENCE_MS_MAX - 1
        await server.stub.Heartbeat(pb.HeartbeatRequest(broker="b0", term=3, sequence=1, life=FORGED))
        server.now_ms += 1
        server.service.scan()
        assert await server.leader() == ""


@in_a_loop
async def test_new_leaders_are_confirmed_at_once_whichever_nodes_are_dead_or_hang(monkeypatch) -> None:
    # Waiting for a node that hangs would take much longer than the test.
    monkeypatch.setattr(registration_checks, "_NODE_TIMEOUT_S", 3_600.0)
    monkeypatch.setattr(registration_checks, "_CONFIRM_TIMEOUT_S", 3_600.0)
    with silent_host() as hanging:
        async with serving() as server, status_nodes("n0", "n1", "n2") as nodes:
            n0, n1, n2 = nodes
            frozen = BrokerNode("n3", hanging)
            lead(nodes, n0, 3, HONEST)
            assert await server.register(registration([*nodes, frozen], n0, 3, HONEST)) == ""
            await n0.stop()
            lead(nodes, n1, 4, OTHER)
            assert await server.register(registration([*nodes, frozen], n1, 4, OTHER)) == ""
            assert await server.leader() == n1.node.address
            # A node that joined later, which a known follower names.
            async with status_nodes("n4") as (joined,):
                lead([n1, n2, joined], joined, 5, HONEST)
                assert await server.register(registration([n1, n2, joined], joined, 5, HONEST)) == ""
                assert await server.leader() == joined.node.address


@in_a_loop
async def test_another_leader_is_accepted_after_all_known_nodes_expired() -> None:
    async with serving() as server, status_nodes("n0") as nodes, status_nodes("n0") as moved:
        lead(nodes, nodes[0], 3, HONEST)
        assert await server.register(registration(nodes, nodes[0], 3, HONEST)) == ""
        await nodes[0].stop()
        lead(moved, moved[0], 4, OTHER)
        elsewhere = registration(moved, moved[0], 4, OTHER)
        for now_ms in (0, SILENCE_MS_MAX - 1):
            server.now_ms = now_ms
            assert await server.register(elsewhere) == "REGISTRATION_UNCONFIRMED"
        server.now_ms = SILENCE_MS_MAX
        assert await server.register(elsewhere) == ""
        assert await server.leader() == moved[0].node.address


@in_a_loop
async def test_only_known_addresses_are_dialled_and_rarely() -> None:
    """Hundreds of registrations of an unknown process make the name server ask only known nodes, a few times."""
    async with serving() as server, status_nodes(*(f"n{number}" for number in range(9))) as nodes:
        async with status_nodes("victim") as (victim,):
            lead(nodes, nodes[0], 3, HONEST)
            assert await server.register(registration(nodes, nodes[0], 3, HONEST)) == ""
            begin_s = time.monotonic()
            # A connection has at most 128 calls at a time.
            in_flight = asyncio.Semaphore(100)

            async def forge(number: int) -> str:
                async with in_flight:
                    return await server.register(registration([victim, *nodes], victim, HUGE + number, FORGED))

            refusals = await asyncio.gather(*map(forge, range(300)))
            rounds_max = 2 + (time.monotonic() - begin_s) / registration_checks._PAUSE_S
        assert set(refusals) == {"REGISTRATION_UNCONFIRMED"}
        assert victim.asked_count == 0
        asked = [node.asked_count for node in nodes]
        assert max(asked) <= rounds_max
        assert sum(count > 0 for count in asked) <= NODES_ASKED_MAX


@in_a_loop
async def test_a_node_of_another_broker_at_a_known_address_confirms_nothing() -> None:
    async with serving() as server, status_nodes("n0") as nodes:
        lead(nodes, nodes[0], 3, HONEST)
        assert await server.register(registration(nodes, nodes[0], 3, HONEST)) == ""
        lead(nodes, nodes[0], 4, OTHER)
        nodes[0].broker = "b1"
        assert await server.register(registration(nodes, nodes[0], 4, OTHER)) == "REGISTRATION_UNCONFIRMED"


def test_a_standalone_broker_with_older_topics_is_accepted_at_once(tmp_path, name_server) -> None:
    """In a directory restored from a backup, the version of the topics is lower than the one registered before."""
    address = name_server().address
    broker = BrokerThread(tmp_path / "a", name_servers=address)
    restored = BrokerThread(tmp_path / "b", name_servers=address)
    restored.address, restored.endpoints = broker.address, broker.endpoints
    loop = LoopThread("test")
    try:
        broker.start()
        for number in range(5):
            broker.set_topic(f"t{number}")
        broker.stop()
        restored.start()
        restored.set_topic("orders")
        assert loop.run(until(lambda: leader_of(address), "b".__eq__)) == "b"
        assert loop.run(leader_of(address, "t4")) == ""
    finally:
        broker.close()
        restored.close()
        loop.close()


@in_a_loop
async def test_an_unconfirmed_registration_is_accepted_on_a_retry() -> None:
    async with serving() as server, status_nodes("n0", "n1") as nodes:
        lead(nodes, nodes[0], 3, HONEST)
        assert await server.register(registration(nodes, nodes[0], 3, HONEST)) == ""
        async with Registrar(server.address, GrpcNameServer, retry_interval_s=0.05) as registrar:
            registrar.publish(registration(nodes, nodes[1], 4, b""))
            await until(lambda: asked(nodes[1]), bool)
            # It became leader only now.
            (digest,) = registrar.life_digests
            lead(nodes, nodes[1], 4)
            nodes[1].life_digests = [digest]
            await until(server.leader, nodes[1].node.address.__eq__)


async def asked(node: StatusNode) -> int:
    return node.asked_count
