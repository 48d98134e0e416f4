"""Bounds the connections of one client at one server: so that no machine can take all connections of it.

gRPC bounds the connections of all clients together, and no client's own. Once a second the accepted connections are
counted by client, and new ones beyond its fair share are closed (`fair_shares`): half of all for one client alone, a
third for each of two. A client is an address of IPv4, or a network of IPv6 (`dledger.networks`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from dledger.networks import network_of_host
from dledger.service.limits.fair_shares import FairShares
from dledger.service.limits.open_connections import OtherEnd, close_connections, list_peers

if TYPE_CHECKING:
    from collections.abc import Iterable

    import grpc.aio

INTERVAL_S: Final = 1.0

logger = logging.getLogger(__name__)


class ConnectionsByAddress:
    """Counts and closes connections of one port.

    Args:
        port: of the server.
        count_max: connections of all clients.
    """

    def __init__(self, port: int, count_max: int) -> None:
        self._port = port
        # As counted last, and what their clients have of all; only `excess` uses both.
        self._known: set[OtherEnd] = set()
        self._shares = FairShares(count_max)

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
                "connections_closed port=%d count=%d: more than the fair share of one address of %d: %s",
                self._port,
                len(excess),
                self._shares.size,
                ", ".join(hosts[:10]),
            )
            close_connections(self._port, excess)

    def excess(self, peers: set[OtherEnd]) -> set[OtherEnd]:
        """Return those of all connections that are new, and too many for their clients."""
        for peer in self._known - peers:
            self._shares.give_back(network_of_host(peer.host), 1)
        excess = {
            peer for peer in _in_turn(peers - self._known) if not self._shares.take(network_of_host(peer.host), 1)
        }
        self._known = peers - excess
        return excess


def _in_turn(peers: Iterable[OtherEnd]) -> list[OtherEnd]:
    """Return connections so that clients take turns: otherwise the first one would get the most."""
    turns: Counter[str] = Counter()
    placed = []
    for peer in sorted(peers):
        client = network_of_host(peer.host)
        placed.append((turns[client], peer))
        turns[client] += 1
    return [peer for _, peer in sorted(placed)]
