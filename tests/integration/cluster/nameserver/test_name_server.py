"""Brokers, name servers and clients together: registrations, restarts, and routes."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from cluster.api.name_server import YOUNG_MS, NameServer
from cluster.api.name_servers import links as name_server_links
from cluster.api.name_servers.links import GrpcNameServer
from cluster.client.routing import finder as route_finder
from cluster.client.routing.finder import RouteFinder
from cluster.nameserver.registration import Registrar
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.route_table import SILENCE_MS_MAX, BrokerNode, Registration, TopicQueues
from cluster.v1 import nameserver_pb2 as pb
from cluster.v1.nameserver_pb2_grpc import NameServerStub, add_NameServerServicer_to_server
from tests.support.status_nodes import lead, status_nodes
from tests.support.waiting import PATIENCE_S, in_a_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

NODES = (BrokerNode("n0", "127.0.0.1:20921"), BrokerNode("n1", "127.0.0.1:20922"))
REGISTRATION = Registration("b0", "c0", 3, 0, "n0", NODES, (TopicQueues("orders", 8, 8, 6),))
T = TypeVar("T")


async def until(ask: Callable[[], Awaitable[T]], is_wanted: Callable[[T], bool]) -> T:
    """Return the first wanted answer."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = await ask()
            if is_wanted(answer):
                return answer
            await asyncio.sleep(0.02)


async def leader_of(address: str, topic: str = "orders") -> str:
    """Return the leader of the topic's first broker at this name server; empty if none is known."""
    async with grpc.aio.insecure_channel(address) as channel:
        response = await NameServerStub(channel).Route(pb.RouteRequest(topics=[topic]), wait_for_ready=True)
    return response.routes[0].brokers[0].leader_id if response.routes else ""


@pytest.fixture(autouse=True)
def patient_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise timeouts, so that a slow answer on a busy machine does not count as a failure."""
    for module in (name_server_links, route_finder):
        monkeypatch.setattr(module, "_CALL_TIMEOUT_S", PATIENCE_S)


def registrar(*servers: object) -> Registrar:
    addresses = ",".join(server.address for server in servers)
    return Registrar(addresses, GrpcNameServer, heartbeat_interval_s=0.1, retry_interval_s=0.1)


@in_a_loop
async def test_a_registration_reaches_every_name_server_and_a_new_leader_replaces_it(name_server) -> None:
    first, second = name_server(), name_server()
    async with status_nodes("n0", "n1") as nodes, registrar(first, second) as old, registrar(first, second) as new:
        registered = replace(REGISTRATION, nodes=tuple(each.node for each in nodes))
        old.publish(registered)
        for server in (first, second):
            await until(lambda at=server.address: leader_of(at), "n0".__eq__)

        lead(nodes, nodes[1], 4)
        nodes[1].life_digests = list(new.life_digests)
        new.publish(replace(registered, term=4, leader_id="n1"))
        for server in (first, second):
            await until(lambda at=server.address: leader_of(at), "n1".__eq__)

        # The old leader has not stepped down yet; its heartbeats and registrations change nothing.
        for sequence in (1, 2, 3):
            old.publish(replace(registered, sequence=sequence))
            await old.settled(PATIENCE_S)
            assert [await leader_of(server.address) for server in (first, second)] == ["n1", "n1"]


@in_a_loop
async def test_brokers_register_again_with_a_name_server_that_was_restarted(name_server, caplog) -> None:
    caplog.set_level(logging.INFO)
    server, other = name_server(), name_server()
    async with registrar(server, other) as broker:
        broker.publish(REGISTRATION)
        for each in (server, other):
            await until(lambda at=each.address: leader_of(at), "n0".__eq__)

        code, log = server.stop()
        assert (code, "stopping signal=SIGTERM" in log) == (0, True)
        await until(lambda: _logged(caplog, "name_server_failed"), bool)
        # In which it is tried again and again.
        await asyncio.sleep(0.3)
        server.start()

        await until(lambda: leader_of(server.address), "n0".__eq__)
        assert await leader_of(other.address) == "n0"
        await until(lambda: _logged(caplog, "name_server_back"), bool)
    # However often it was tried meanwhile.
    assert len(await _logged(caplog, "name_server_failed")) == 1


async def _logged(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith(event)]


@in_a_loop
async def test_a_restarted_name_server_gets_registrations_before_the_next_heartbeat(name_server) -> None:
    server = name_server()
    async with Registrar(server.address, GrpcNameServer, heartbeat_interval_s=3_600, retry_interval_s=0.1) as broker:
        broker.publish(REGISTRATION)
        await until(lambda: leader_of(server.address), "n0".__eq__)

        server.kill()
        server.start()

        await until(lambda: leader_of(server.address), "n0".__eq__)


@in_a_loop
async def test_announcement_ends_when_every_reachable_name_server_has_the_change(name_server) -> None:
    first, second, dead = name_server(), name_server(), name_server()
    dead.kill()
    async with registrar(first, second, dead) as broker:
        for sequence in range(1, 20):
            topics = tuple(TopicQueues(f"t{number}", 1, 1, 6) for number in range(sequence))
            broker.publish(replace(REGISTRATION, sequence=sequence, topics=topics))
            await broker.settled(PATIENCE_S)
            assert [await leader_of(each.address, f"t{sequence - 1}") for each in (first, second)] == ["n0", "n0"]

    slow = SlowNameServer(clock_ms=lambda: 0)
    async with serving(slow) as address, Registrar(address, GrpcNameServer) as broker:
        broker.publish(REGISTRATION)
        settled = asyncio.ensure_future(broker.settled(PATIENCE_S))
        async with asyncio.timeout(PATIENCE_S):
            await slow.is_asked.wait()
            assert not settled.done()
            slow.may_answer.set()
            await settled
        assert await leader_of(address) == "n0"


@in_a_loop
async def test_a_topic_known_to_only_one_name_server_is_found(name_server) -> None:
    knowing, other = name_server(), name_server()
    async with registrar(knowing) as broker, registrar(other) as small:
        broker.publish(REGISTRATION)
        small.publish(replace(REGISTRATION, broker="b1", topics=()))
        await until(lambda: leader_of(knowing.address), "n0".__eq__)
        for seed in range(4):
            async with RouteFinder(f"{knowing.address},{other.address}", random.Random(seed)) as finder:
                (route,) = await finder.find("orders")
                assert route.registration.broker == "b0"


@in_a_loop
async def test_a_topic_is_unknown_only_by_a_name_server_that_has_run_long_enough() -> None:
    now = [0]
    async with (
        served(lambda: now[0]) as young,
        served(lambda: 0) as other,
        RouteFinder(f"{young},{other}") as finder,
        Registrar(young, GrpcNameServer) as broker,
    ):
        with pytest.raises(RequestFailed, match="no node knows topic 'nothing' yet") as caught:
            await finder.find("nothing")
        assert (caught.value.reason, caught.value.is_worth_trying) == (Reason.ROUTES_INCOMPLETE, True)
        now[0] = YOUNG_MS
        with pytest.raises(RequestFailed) as caught:
            # However old it is, no broker has registered.
            await finder.find("nothing")
        assert caught.value.reason is Reason.ROUTES_INCOMPLETE

        broker.publish(REGISTRATION)
        await broker.settled(PATIENCE_S)
        with pytest.raises(RequestFailed, match="no broker has topic 'nothing'") as caught:
            await finder.find("nothing")
        assert (caught.value.reason, caught.value.is_worth_trying) == (Reason.UNKNOWN_TOPIC, False)
        now[0] = YOUNG_MS - 1
        with pytest.raises(RequestFailed) as caught:
            await finder.find("nothing")
        assert caught.value.reason is Reason.ROUTES_INCOMPLETE


@asynccontextmanager
async def served(clock_ms: Callable[[], int]) -> AsyncIterator[str]:
    """Serve a name server in this process; yield its address."""
    async with serving(NameServer(clock_ms=clock_ms)) as address:
        yield address


class SlowNameServer(NameServer):
    """Accepts registrations only when a test permits it."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        super().__init__(clock_ms=clock_ms)
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def Register(self, request: Any, context: Any) -> pb.RegisterResponse:  # noqa: N802  (gRPC's name)
        self.is_asked.set()
        await self.may_answer.wait()
        return await super().Register(request, context)


@asynccontextmanager
async def serving(name_server: NameServer) -> AsyncIterator[str]:
    """Serve it in this process; yield its address."""
    server = grpc.aio.server()
    add_NameServerServicer_to_server(name_server, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield address
    await server.stop(None)


@in_a_loop
async def test_a_broker_that_unregisters_is_removed_at_once(name_server) -> None:
    server = name_server()
    async with registrar(server) as broker:
        broker.publish(REGISTRATION)
        await until(lambda: leader_of(server.address), "n0".__eq__)

        await broker.unregister()

        assert await leader_of(server.address) == ""


@in_a_loop
async def test_clients_find_routes_while_one_name_server_runs_and_keep_them_when_none_does(name_server) -> None:
    first, second = name_server(), name_server()
    async with registrar(first, second) as broker, RouteFinder(f"{first.address},{second.address}") as finder:
        broker.publish(REGISTRATION)
        for server in (first, second):
            await until(lambda at=server.address: leader_of(at), "n0".__eq__)
        first.kill()

        (route,) = await finder.find("orders")
        assert (route.registration.broker, route.registration.leader_address) == ("b0", "127.0.0.1:20921")
        assert route.queues == TopicQueues("orders", 8, 8, 6)

        second.kill()
        with pytest.raises(RequestFailed, match="no name server answers") as caught:
            await finder.refresh(["orders"])
        assert caught.value.is_worth_trying
        assert await finder.find("orders") == (route,)


@in_a_loop
async def test_a_broker_is_drained_and_listed(name_server) -> None:
    server = name_server()
    async with registrar(server) as broker, grpc.aio.insecure_channel(server.address) as channel:
        broker.publish(REGISTRATION)
        await until(lambda: leader_of(server.address), "n0".__eq__)
        stub = NameServerStub(channel)

        assert (await stub.SetWritable(pb.SetWritableRequest(broker="b0", is_writable=False))).topics_count == 0

        response = await stub.Route(pb.RouteRequest(topics=["orders"]))
        assert response.routes[0].brokers[0].queues.permission == 4
        (known,) = (await stub.ListBrokers(pb.ListBrokersRequest())).brokers
        assert (known.broker, known.term, known.topics_count, known.is_writable) == ("b0", 3, 1, False)
        assert list((await stub.ListTopics(pb.ListRegisteredTopicsRequest())).topics) == ["orders"]
        refused = await stub.SetWritable(pb.SetWritableRequest(broker="b9", is_writable=False))
        assert (refused.answer.code, refused.answer.reason) == (5, "UNKNOWN_BROKER")


@in_a_loop
async def test_invalid_requests_get_typed_refusals(name_server) -> None:
    server = name_server()
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = NameServerStub(channel)

        too_many = await stub.Route(pb.RouteRequest(topics=["t"] * 1_001), wait_for_ready=True)
        illegal = await stub.Register(pb.RegisterRequest(broker="b0", cluster="c0", leader_id="n0"))

    assert (too_many.answer.code, too_many.answer.reason) == (3, "ILLEGAL_REQUEST")
    assert (illegal.answer.code, illegal.answer.reason) == (3, "ILLEGAL_REGISTRATION")


@in_a_loop
async def test_health_and_reflection_are_served(name_server) -> None:
    server = name_server()
    async with grpc.aio.insecure_channel(server.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "cluster.v1.NameServer"):
            found = await health.Check(health_pb2.HealthCheckRequest(service=service), wait_for_ready=True)
            assert found.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health.Check(health_pb2.HealthCheckRequest(service="nothing"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    services = await asyncio.to_thread(_reflected, server.address)
    assert {"cluster.v1.NameServer", "grpc.health.v1.Health"} <= set(services)


def _reflected(address: str) -> list[str]:
    with grpc.insecure_channel(address) as channel:
        return list(ProtoReflectionDescriptorDatabase(channel).get_services())


def test_a_second_name_server_on_the_same_address_reports_it(name_server) -> None:
    server = name_server()
    second = type(server).__new__(type(server))
    second.address, second._process = server.address, None

    with pytest.raises(AssertionError):
        second.start()

    code, log = second.stop()
    assert (code, "cannot listen on" in log) == (1, True)


@in_a_loop
async def test_a_name_server_that_hangs_delays_no_other(name_server, monkeypatch) -> None:
    # The call to the hanging one ends with the name server, not by itself.
    monkeypatch.setattr(name_server_links, "_CALL_TIMEOUT_S", 3_600.0)
    hanging, other = name_server(), name_server()
    async with registrar(hanging, other) as broker:
        broker.publish(REGISTRATION)
        await until(lambda: leader_of(other.address), "n0".__eq__)
        hanging.pause()

        for term in range(4, 9):
            leader = NODES[term % 2].id
            broker.publish(replace(REGISTRATION, term=term, leader_id=leader))
            await until(lambda: leader_of(other.address), leader.__eq__)

        hanging.resume()
        await until(lambda: leader_of(hanging.address), NODES[0].id.__eq__)


@in_a_loop
async def test_a_silent_broker_is_dropped_and_those_with_heartbeats_are_not() -> None:
    now = [0]
    service = NameServer(clock_ms=lambda: now[0])
    server = grpc.aio.server()
    add_NameServerServicer_to_server(service, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()

    def registrar_to_it() -> Registrar:
        return Registrar(address, GrpcNameServer, heartbeat_interval_s=0.02)

    async def topics() -> list[str]:
        async with grpc.aio.insecure_channel(address) as channel:
            return list((await NameServerStub(channel).ListTopics(pb.ListRegisteredTopicsRequest())).topics)

    async with registrar_to_it() as living:
        async with registrar_to_it() as dying:
            living.publish(REGISTRATION)
            dying.publish(replace(REGISTRATION, broker="b1", topics=(TopicQueues("events", 1, 1, 6),)))
            await until(topics, ["events", "orders"].__eq__)
        # The clock advances in steps in which a heartbeat arrives; in the first one perhaps also the last word of the
        # one that has just ended, which was on its way.
        for _ in range(1 + SILENCE_MS_MAX // 40_000):
            now[0] += 40_000
            await until(lambda: is_received(address, "b0"), bool)
            service.scan()

        assert await topics() == ["orders"]
    await server.stop(None)


async def is_received(address: str, broker: str) -> bool:
    async with grpc.aio.insecure_channel(address) as channel:
        response = await NameServerStub(channel).ListBrokers(pb.ListBrokersRequest())
    return any(each.broker == broker and each.silent_ms == 0 for each in response.brokers)
