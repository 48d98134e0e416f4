"""Bounds the connections of one address at one server: so that no machine can take all connections of it.

gRPC bounds the connections of all clients together, and no client's own. Once a second the accepted connections are
counted by client, and the newest of a client that has too many are closed. A client is an address of IPv4, or a network
of IPv6 (`client_addresses`), of which one machine may use all addresses.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from dledger.service.limits.client_addresses import address_of_host, client_of_address
from dledger.service.limits.open_connections import OtherEnd, close_connections, list_peers

if TYPE_CHECKING:
    import grpc.aio

INTERVAL_S: Final = 1.0

logger = logging.getLogger(__name__)


class ConnectionsByAddress:
    """Counts and closes connections of one port.

    Args:
        port: of the server.
        count_max: connections of one client.
    """

    def __init__(self, port: int, count_max: int) -> None:
        self._port = port
        self._count_max = count_max
        # As counted last.
        self._known: set[OtherEnd] = set()

    async def watch(self, server: grpc.aio.Server) -> None:
        """Count until the server has stopped."""
        while await server.wait_for_termination(INTERVAL_S):
            # In a thread: ten thousand descriptors take 0.1 s.
            await asyncio.to_thread(self.count)

    def count(self) -> None:
        """Count once, and close what is too much."""
        peers = list_peers(self._port)
        excess = self.excess(peers)
        if excess:
            hosts = sorted({peer.host for peer in excess})
            logger.warning(
                "connections_closed port=%d count=%d: more than %d of one address: %s",
                self._port,
                len(excess),
                self._count_max,
                ", ".join(hosts[:10]),
            )
            close_connections(self._port, excess)

    def excess(self, peers: set[OtherEnd]) -> set[OtherEnd]:
        """Return those of all connections that are too many for their address; the longest known ones stay."""
        by_client: dict[str, list[OtherEnd]] = {}
        for peer in sorted(peers, key=lambda peer: (peer not in self._known, peer)):
            by_client.setdefault(client_of_address(address_of_host(peer.host)), []).append(peer)
        excess = {peer for each in by_client.values() for peer in each[self._count_max :]}
        self._known = peers - excess
        return excess
