"""A name server with mutual TLS: unknown callers of every RPC, registrations by certificate, and a change to TLS."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message_factory import GetMessageClass
from prometheus_client import CollectorRegistry

from cluster import Producer
from cluster.api.name_servers.links import GrpcNameServer
from cluster.api.name_servers.metrics import NameServerMetrics
from cluster.api.rights import RIGHTS, Audience
from cluster.local.node import choose_ports
from cluster.nameserver.registration import Registrar
from cluster.protocol.route_table import BrokerNode, Registration, TopicQueues
from cluster.protocol.topic_config import TopicConfig
from cluster.protocol.wire.routes import register_request
from cluster.server.name_server import NameServerConfig, serve_name_server
from cluster.state.commands import SetTopic
from cluster.v1 import nameserver_pb2 as pb
from cluster.v1.nameserver_pb2_grpc import NameServerStub
from dledger.client.failures import CHANNEL_OPTIONS
from dledger.config import Address
from dledger.security.channels import open_aio_channel
from dledger.security.revoked import Revoked, text_of
from dledger.security.settings import PLAIN, Tls
from tests.integration.cluster.nameserver.test_name_server import until
from tests.support.brokers.thread import BrokerThread
from tests.support.certificates import (
    new_authority,
    node_identity,
    node_pair,
    tls_of,
    user_identity,
    user_pair,
    write_tls,
)
from tests.support.status_nodes import lead, status_nodes
from tests.support.waiting import PATIENCE_S, in_a_loop
from tests.unit.cluster.api.test_rights import methods

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from dledger.security.credentials import CertificateFiles
    from dledger.security.server_port import PortSecurity
    from dledger.security.settings import Security

OURS, FOREIGN = new_authority(), new_authority("a foreign authority")
N0, N1, UNTRUSTED = (tls_of(node_pair(OURS, name, group="b0"), OURS) for name in ("n0", "n1", "n9"))
OTHER_BROKER = tls_of(node_pair(OURS, "n0", group="b1"), OURS)
ALICE, ADMIN = (tls_of(user_pair(OURS, name), OURS) for name in ("alice", "admin"))
ORDERS = TopicQueues("orders", 8, 8, 6)
NODES = (BrokerNode("n0", "127.0.0.1:5"), BrokerNode("n1", "127.0.0.1:6"))
GENUINE = Registration("b0", "c", 3, 1, "n0", NODES, (ORDERS,), b"l" * 16)
DENIED = grpc.StatusCode.PERMISSION_DENIED
BROKERS = ("b", "b0", "b1")
PREFIX = "/cluster.v1.NameServer/"


@dataclass
class ClosedNameServer:
    """Its addresses, and the files of its certificates."""

    address: str
    plain_address: str
    files: CertificateFiles

    def channel(self, security: Security, address: str = "") -> grpc.aio.Channel:
        return open_aio_channel(address or self.address, security, CHANNEL_OPTIONS)

    async def register(self, security: Security, registration: Registration = GENUINE, address: str = "") -> str:
        """Return how a registration was refused; empty: it was not."""
        async with self.channel(security, address) as channel:
            try:
                request = register_request(registration, registration.topics)
                return (await NameServerStub(channel).Register(request)).answer.reason
            except grpc.aio.AioRpcError as error:
                return f"{error.code().name}: {error.details()}"

    async def leader(self) -> str:
        """Return the address of the leader in the route of the topic; empty: there is none."""
        async with self.channel(ALICE) as channel:
            routes = (await NameServerStub(channel).Route(pb.RouteRequest(topics=["orders"]))).routes
        if not routes:
            return ""
        (broker,) = routes[0].brokers
        return next(node.address for node in broker.nodes if node.id == broker.leader_id)


@asynccontextmanager
async def closed(
    folder: Path, *, has_plain_port: bool = False, revoked_file: str = "", brokers: tuple[str, ...] = BROKERS
) -> AsyncIterator[ClosedNameServer]:
    """Serve a name server with mutual TLS, and an administrator."""
    address, plain = (Address("127.0.0.1", port) for port in choose_ports(2, None))
    files = write_tls(folder, tls_of(node_pair(OURS, "ns0", group="nameserver"), OURS))
    config = NameServerConfig(
        address,
        files,
        is_mutual=True,
        administrators=(user_identity("admin"),),
        plain_address=plain,
        revoked_file=revoked_file,
        brokers=brokers,
    )
    async with AsyncExitStack() as stack:
        used = config if has_plain_port else replace(config, plain_address=None)
        await serve_name_server(used, stack, NameServerMetrics(), CollectorRegistry())
        yield ClosedNameServer(str(address), str(plain), files)


async def outcome(channel: grpc.aio.Channel, path: str, request: Any = None) -> grpc.StatusCode | None:
    """Return how a call was refused; None: it was answered."""
    method = methods()[path]
    sent, received = (GetMessageClass(each) for each in (method.input_type, method.output_type))  # type: ignore[attr-defined]
    call = channel.unary_unary(path, sent.SerializeToString, received.FromString)
    try:
        await call(request or sent(), timeout=PATIENCE_S)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return None


@in_a_loop
async def test_untrusted_clients_get_no_connection(tmp_path: Path) -> None:
    expired = tls_of(node_pair(OURS, "n0", group="b0", is_expired=True), OURS)
    untrusted = {
        "plain": PLAIN,
        "no certificate": Tls(OURS.certificate_pem()),
        "a foreign authority": tls_of(node_pair(FOREIGN, "n0", group="b0"), OURS),
        "an authority of the same name": tls_of(node_pair(new_authority(), "n0", group="b0"), OURS),
        "expired": expired,
    }
    async with closed(tmp_path) as server:
        for name, security in untrusted.items():
            async with server.channel(security) as channel:
                for path in filter(lambda path: path.startswith(PREFIX), RIGHTS):
                    assert await outcome(channel, path) is grpc.StatusCode.UNAVAILABLE, (name, path)
        assert await server.leader() == ""


@in_a_loop
async def test_each_rpc_is_for_the_certificates_of_its_row(tmp_path: Path) -> None:
    """Goal: the table of rights decides. Method: every RPC of the service as a user, an administrator and a node."""
    async with closed(tmp_path) as server:
        for security in (ALICE, ADMIN, OTHER_BROKER):
            async with server.channel(security) as channel:
                for path, row in RIGHTS.items():
                    if not path.startswith(PREFIX):
                        continue
                    # An empty request names no broker, so no node may send it, either.
                    changes = row.audience is Audience.NODE or (path.endswith("SetWritable") and security is not ADMIN)
                    assert await outcome(channel, path) is (DENIED if changes else None), path


@in_a_loop
async def test_revoked_nodes_and_users_are_refused(tmp_path: Path) -> None:
    """Goal: a stolen certificate can neither register a broker nor ask for routes, and others can."""
    now, file = datetime.now(UTC), tmp_path / "revoked"
    file.write_text(text_of(Revoked({node_identity("n0", "b0").uri: now, user_identity("alice").uri: now})))
    async with closed(tmp_path / "names", revoked_file=str(file)) as server:
        assert "UNAUTHENTICATED: the certificate of dledger://b0/node/n0" in await server.register(N0)
        async with server.channel(ALICE) as channel:
            for path in filter(lambda path: path.startswith(PREFIX), RIGHTS):
                assert await outcome(channel, path) is grpc.StatusCode.UNAUTHENTICATED, path
        assert await server.register(N1, replace(GENUINE, leader_id="n1")) == ""
        async with server.channel(ADMIN) as channel:
            assert await outcome(channel, f"{PREFIX}Route") is None


@in_a_loop
async def test_broker_registers_only_itself(tmp_path: Path) -> None:
    evil = BrokerNode("n0", "10.6.6.6:5")
    refused = {
        "another broker's node": (OTHER_BROKER, GENUINE, "expected a certificate of a node of broker 'b0'"),
        "a user": (ALICE, GENUINE, "expected a certificate of a node of broker 'b0'"),
        "an administrator": (ADMIN, GENUINE, "expected a certificate of a node of broker 'b0'"),
        "swapped certificates": (N1, GENUINE, "expected itself as the leader, found 'n0'"),
        "a host of another": (N0, replace(GENUINE, nodes=(evil,)), "host is in its certificate, found '10.6.6.6:5'"),
        "no address": (N0, replace(GENUINE, nodes=NODES[1:]), "host is in its certificate, found ''"),
    }
    async with closed(tmp_path) as server:
        for name, (security, registration, reason) in refused.items():
            found = await server.register(security, registration)
            assert found.startswith("PERMISSION_DENIED"), name
            assert reason in found, name
        assert await server.leader() == ""

        assert await server.register(N0) == ""
        # With any term, process id and sequence number.
        for security in (OTHER_BROKER, ALICE):
            forged = replace(GENUINE, term=1 << 40, sequence=9)
            assert (await server.register(security, forged)).startswith("PERMISSION_DENIED")
        async with server.channel(OTHER_BROKER) as channel:
            for path, request in (
                ("Heartbeat", pb.HeartbeatRequest(broker="b0", term=3, sequence=1, life=b"l" * 16)),
                ("Unregister", pb.UnregisterRequest(broker="b0", term=3, life=b"l" * 16)),
            ):
                assert await outcome(channel, PREFIX + path, request) is DENIED
        assert await server.leader() == "127.0.0.1:5"


@in_a_loop
async def test_only_brokers_that_are_named_register(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A node of another group would attract messages and tokens: routes are merged by topic."""
    evil = replace(GENUINE, broker="b1")
    async with closed(tmp_path, brokers=("b0", "b2")) as server:
        refused = await server.register(OTHER_BROKER, evil)
        assert "expected one of the brokers of this name server (--broker), found 'b1'" in refused
        assert refused.startswith("PERMISSION_DENIED")
        assert await server.leader() == ""
        assert await server.register(N0) == ""
        assert "all_brokers" not in caplog.text

    async with closed(tmp_path / "all", brokers=()) as server:
        assert "all_brokers" in caplog.text
        assert await server.register(OTHER_BROKER, evil) == ""


@in_a_loop
async def test_new_leader_is_accepted_at_once_by_its_certificate(tmp_path: Path) -> None:
    """Goal: no node is asked whether it leads: none of these addresses answers."""
    async with closed(tmp_path) as server:
        assert await server.register(N0) == ""
        assert await server.register(N1, replace(GENUINE, term=4, leader_id="n1", life=b"m" * 16)) == ""
        assert await server.leader() == "127.0.0.1:6"
        assert await server.register(N0, replace(GENUINE, sequence=7)) == "STALE_REGISTRATION"


@in_a_loop
async def test_plain_port_of_a_change_takes_over_no_registration_of_a_certificate(tmp_path: Path) -> None:
    async with closed(tmp_path, has_plain_port=True) as server:
        plain = server.plain_address
        old = Registration("b9", "c", 1, 1, "b9", (BrokerNode("b9", "127.0.0.1:9"),), (ORDERS,), b"o" * 16)
        assert await server.register(PLAIN, old, plain) == ""
        assert await server.register(N0) == ""
        forged = replace(GENUINE, term=1 << 40, life=b"f" * 16)
        assert await server.register(PLAIN, forged, plain) == "REGISTRATION_UNCONFIRMED"

        for address, security in ((plain, PLAIN), (server.address, ALICE)):
            async with server.channel(security, address) as channel:
                routes = (await NameServerStub(channel).Route(pb.RouteRequest(topics=["orders"]))).routes
            assert [each.broker for each in routes[0].brokers] == ["b0", "b9"]


@pytest.mark.parametrize("node_security", [PLAIN, N0], ids=["plain nodes", "nodes with TLS"])
@in_a_loop
async def test_brokers_of_the_plain_port_are_confirmed_by_nodes_of_either_kind(
    tmp_path: Path, node_security: PortSecurity
) -> None:
    async with (
        closed(tmp_path, has_plain_port=True) as server,
        status_nodes("n0", "n1", security=node_security) as nodes,
    ):
        n0, n1 = nodes
        known = replace(GENUINE, nodes=(n0.node, n1.node))
        assert await server.register(PLAIN, known, server.plain_address) == ""
        lead(nodes, n1, 4, b"m" * 16)
        found = replace(known, term=4, leader_id="n1", life=b"m" * 16)
        assert await server.register(PLAIN, found, server.plain_address) == ""
        assert await server.leader() == n1.node.address


@in_a_loop
async def test_broker_dials_again_when_its_certificate_has_changed(tmp_path: Path) -> None:
    used: list[Security] = [tls_of(node_pair(FOREIGN, "n0", group="b0"), OURS)]
    async with closed(tmp_path) as server:
        dial = partial(GrpcNameServer, security=lambda: used[0])
        async with Registrar(server.address, dial, heartbeat_interval_s=0.05, retry_interval_s=0.05) as registrar:
            registrar.publish(GENUINE, None)
            await registrar.settled(PATIENCE_S)
            assert await server.leader() == ""
            used[0] = N0
            await until(server.leader, "127.0.0.1:5".__eq__)


def test_clients_find_a_closed_broker_by_a_closed_name_server(tmp_path: Path) -> None:
    """Goal: the whole way. Method: a broker that registers by its certificate, and a producer with that of a user."""
    port = tls_of(node_pair(OURS, "b", group="b"), OURS, is_certificate_required=True)
    own = replace(port, is_certificate_required=False)

    def produce(server: str) -> str:
        with Producer(name_servers=server, security=ALICE, deadline_s=PATIENCE_S) as producer:
            return producer.send("orders", b"a message").broker

    async def scenario() -> None:
        async with closed(tmp_path / "certificates") as server:
            broker = BrokerThread(tmp_path / "store", server.address, security=port, name_server_security=own)
            try:
                await asyncio.to_thread(broker.start)
                await asyncio.to_thread(broker.change, SetTopic(TopicConfig("orders", 1, 1)))
                assert await asyncio.to_thread(produce, server.address) == "b"
            finally:
                await asyncio.to_thread(broker.close)

    asyncio.run(scenario())
