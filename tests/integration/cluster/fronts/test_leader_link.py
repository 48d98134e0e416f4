"""The calls of a front to a leader with TLS: which nodes it trusts, what it shows, and a change of certificates."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import grpc.aio
import pytest

from cluster.fronts.leader_link import LeaderLink
from cluster.protocol.errors import Reason, RequestFailed
from cluster.v1 import broker_pb2 as pb
from cluster.v1.broker_pb2_grpc import BrokerServiceServicer, add_BrokerServiceServicer_to_server
from dledger.security.server_port import add_server_port
from dledger.security.settings import PLAIN
from tests.support.certificates import new_authority, node_pair, tls_of
from tests.support.waiting import PATIENCE_S, in_a_loop, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dledger.security.settings import Security

OURS, FOREIGN = new_authority(), new_authority("a foreign authority")
LEADER = tls_of(node_pair(OURS, "n0"), OURS, is_certificate_required=True)
FIRST, SECOND = (tls_of(node_pair(OURS, "n1"), OURS) for _ in range(2))


class Leader(BrokerServiceServicer):
    """A leader that notes what each call shows, and holds calls while `gate` is not set."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.certificates: list[bytes] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.address = ""

    async def Status(self, _request: Any, context: Any) -> Any:  # noqa: N802  (gRPC's name)
        self.certificates += context.auth_context().get("x509_pem_cert", [b""])
        self.tokens += [value for name, value in context.invocation_metadata() if name == "authorization"]
        await self.gate.wait()
        return pb.BrokerStatusResponse(broker="b")

    @contextlib.asynccontextmanager
    async def serving(self, security: Security = LEADER) -> AsyncIterator[Leader]:
        server = grpc.aio.server()
        add_BrokerServiceServicer_to_server(self, server)
        self.address = f"127.0.0.1:{add_server_port(server, '127.0.0.1:0', security)}"
        await server.start()
        try:
            yield self
        finally:
            self.gate.set()
            await server.stop(None)


class Front:
    """A front of one node, whose certificates a test changes."""

    def __init__(self, leader: Leader, security: Security) -> None:
        self.security = security
        self.link = LeaderLink(lambda: leader.address, lambda: self.security, lambda: "dlf1_of-the-client")

    async def status(self, limit_s: float = PATIENCE_S) -> str:
        response = await self.link.call(lambda stub: stub.Status, pb.BrokerStatusRequest(), limit_s)
        return response.broker

    async def held(self) -> str:
        """Return the answer to a call for which the leader may take long."""
        response = await self.link.call(lambda stub: stub.Status, pb.BrokerStatusRequest(), PATIENCE_S, PATIENCE_S)
        return response.broker


@contextlib.asynccontextmanager
async def connected(security: Security = FIRST, of_leader: Security = LEADER) -> AsyncIterator[tuple[Leader, Front]]:
    # The other methods are not called.
    async with Leader().serving(of_leader) as leader:  # type: ignore[abstract]
        front = Front(leader, security)
        try:
            yield leader, front
        finally:
            await front.link.close()


@in_a_loop
async def test_a_call_shows_the_certificate_of_the_node_and_the_token_of_the_client() -> None:
    async with connected() as (leader, front):
        assert await front.status() == "b"
        assert leader.certificates == [FIRST.certificate]
        assert leader.tokens == ["Bearer dlf1_of-the-client"]


@in_a_loop
async def test_without_tls_the_token_is_sent_too() -> None:
    async with connected(PLAIN, PLAIN) as (leader, front):
        assert await front.status() == "b"
        assert leader.tokens == ["Bearer dlf1_of-the-client"]


@pytest.mark.parametrize(
    ("of_front", "of_leader"),
    [
        (FIRST, tls_of(node_pair(FOREIGN, "n0"), FOREIGN)),
        (FIRST, tls_of(node_pair(OURS, "n0", hosts=("elsewhere",)), OURS)),
        (FIRST, PLAIN),
        (tls_of(node_pair(FOREIGN, "n1"), OURS), LEADER),
    ],
    ids=["foreign leader", "leader of another host", "plain leader", "foreign front"],
)
@in_a_loop
async def test_nothing_is_sent_to_or_taken_by_a_node_that_the_other_does_not_trust(
    of_front: Security, of_leader: Security
) -> None:
    async with connected(of_front, of_leader) as (leader, front):
        with pytest.raises(RequestFailed) as failed:
            await front.status(0.3)
        assert failed.value.reason in (Reason.NOT_REACHED, Reason.ANSWER_LOST)
        assert not leader.tokens


@in_a_loop
async def test_after_a_change_of_certificates_new_calls_show_the_new_one_and_old_calls_end_undisturbed() -> None:
    async with connected() as (leader, front):
        leader.gate.clear()
        old = asyncio.ensure_future(front.held())
        await until(lambda: len(leader.certificates) == 1)
        front.security = SECOND
        new = asyncio.ensure_future(front.held())
        await until(lambda: len(leader.certificates) == 2)
        leader.gate.set()
        assert (await old, await new) == ("b", "b")
        assert leader.certificates == [FIRST.certificate, SECOND.certificate]


@in_a_loop
async def test_connections_with_earlier_certificates_are_closed_after_their_last_call() -> None:
    async with connected() as (leader, front):
        await front.status()
        earlier = front.link._current.nodes.stub(leader.address)
        front.security = SECOND
        await front.status()
        assert not front.link._earlier
        with pytest.raises(grpc.aio.UsageError, match="closed"):
            await earlier.Status(pb.BrokerStatusRequest())
