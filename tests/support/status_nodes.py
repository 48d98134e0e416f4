"""Nodes of a broker that answer `Status` with values set by a test, for tests of name servers."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc.aio

from cluster.nameserver.registration_checks import life_digest
from cluster.protocol.route_table import BrokerNode
from cluster.v1 import broker_pb2 as pb
from cluster.v1.broker_pb2_grpc import BrokerServiceServicer, add_BrokerServiceServicer_to_server
from dledger.security.server_port import add_server_port
from dledger.security.settings import PLAIN
from dledger.v1.log_pb2 import LeaderHint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from dledger.security.server_port import PortSecurity


class StatusNode(BrokerServiceServicer):
    """One node of broker `b0`.

    Attributes:
        node: its id and address.
        term: of the group.
        leader: of the group; None: not known.
        life_digests: of the lives with which it registers its broker.
        asked_count: number of calls.
    """

    def __init__(self, node_id: str, security: PortSecurity = PLAIN) -> None:
        self._security = security
        self.node = BrokerNode(node_id, "")
        self.broker = "b0"
        self.term = 0
        self.leader: BrokerNode | None = None
        self.life_digests: list[bytes] = []
        self.asked_count = 0
        self._server = grpc.aio.server()
        add_BrokerServiceServicer_to_server(self, self._server)

    async def start(self) -> None:
        """Start the server on a free port."""
        port = add_server_port(self._server, "127.0.0.1:0", self._security)
        self.node = BrokerNode(self.node.id, f"127.0.0.1:{port}")
        await self._server.start()

    async def stop(self) -> None:
        """Stop the server at once; may be called twice."""
        await self._server.stop(None)

    async def Status(self, request: pb.BrokerStatusRequest, context: Any) -> pb.BrokerStatusResponse:  # noqa: N802
        """Answer a status request."""
        self.asked_count += 1
        leader = self.leader or BrokerNode("", "")
        return pb.BrokerStatusResponse(
            broker=self.broker,
            self_id=self.node.id,
            role="LEADER" if leader == self.node else "FOLLOWER",
            term=self.term,
            leader=LeaderHint(id=leader.id, address=leader.address),
            life_digests=self.life_digests,
        )


@asynccontextmanager
async def status_nodes(*ids: str, security: PortSecurity = PLAIN) -> AsyncIterator[list[StatusNode]]:
    """Yield one node for each id."""
    nodes = [StatusNode(node_id, security) for node_id in ids]
    for node in nodes:
        await node.start()
    try:
        yield nodes
    finally:
        for node in nodes:
            await node.stop()


def lead(nodes: Sequence[StatusNode], leader: StatusNode, term: int, *lives: bytes) -> None:
    """Set leader and term of all nodes, and the lives with which the leader registers."""
    leader.life_digests = [life_digest(life) for life in lives]
    for node in nodes:
        node.term, node.leader = term, leader.node
