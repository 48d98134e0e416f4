"""The calls of a front to a leader with TLS: who it trusts, what it shows, and what happens when certificates change."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import grpc.aio
import pytest

from cluster.fronts.leader_link import LeaderLink
from cluster.protocol.errors import RequestFailed
from cluster.v1 import broker_pb2 as pb
from cluster.v1.broker_pb2_grpc import BrokerServiceServicer, add_BrokerServiceServicer_to_server
from dledger.security.server_port import add_server_port
from dledger.security.settings import PLAIN
from tests.support.certificates import new_authority, node_pair, tls_of
from tests.support.waiting import PATIENCE_S, run, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dledger.security.settings import Security, Tls

OURS, FOREIGN = new_authority(), new_authority("a foreign authority")
MUTUAL = tls_of(node_pair(OURS, "n0"), OURS, is_certificate_required=True)
OURS_SHOWN = tls_of(node_pair(OURS, "n1"), OURS)


class Leader(BrokerServiceServicer):
    """A leader that notes what each call shows; a call with a topic waits for `gate`."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, bytes]] = []
        self.gate = asyncio.Event()
        self.waiting = 0
        self.address = ""
        # The connections of clients: a new one has another port.
        self.peers: list[str] = []

    async def Route(self, request: Any, context: Any) -> Any:  # noqa: N802
        (certificate,) = context.auth_context().get("x509_pem_cert", [b""])
        tokens = [value for name, value in context.invocation_metadata() if name == "authorization"]
        self.shown.append((",".join(tokens), certificate))
        self.peers.append(context.peer())
        if request.topics:
            self.waiting += 1
            await self.gate.wait()
        return pb.DESCRIPTOR and _route()

    @contextlib.asynccontextmanager
    async def serving(self, security: Security | Tls) -> AsyncIterator[Leader]:
        server = grpc.aio.server()
        add_BrokerServiceServicer_to_server(self, server)
        self.address = f"127.0.0.1:{add_server_port(server, '127.0.0.1:0', security)}"
        await server.start()
        try:
            yield self
        finally:
            await server.stop(None)
