"""The network ports of registration and its confirmation: one name server, and the known nodes of a broker.

The rules are independent of the wire format; `cluster.api.name_servers.links` implements the ports with gRPC.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.protocol.route_table import BrokerNode, Extent, Registration, TopicQueues


class NameServerLink(Protocol):
    """One name server with which a broker registers. For use by one event loop."""

    async def register(self, registration: Registration, topics: Sequence[TopicQueues], extent: Extent) -> bool:
        """Send a registration with these topics; return False if it changes one that the name server lacks.

        Raises:
            RequestFailed: it was refused, or no answer came.
        """
        ...

    async def heartbeat(self, registration: Registration) -> bool:
        """Send a heartbeat; return whether the name server has the registration.

        Raises:
            RequestFailed: no answer came.
        """
        ...

    async def unregister(self, registration: Registration) -> None:
        """Remove the broker.

        Raises:
            RequestFailed: it was refused, or no answer came.
        """
        ...

    async def close(self) -> None:
        """End the connection."""
        ...


# Creates the link to the name server at an address; the link calls the function whenever a connection has ended.
Dial = Callable[[str, Callable[[], None]], NameServerLink]


class LeaderReport(NamedTuple):
    """The report of a node about its broker.

    Attributes:
        broker: name of the broker.
        term: the newest term that the node knows.
        leader: the leader of that term; id and address are empty if the node knows none.
        is_leading: whether the node itself is the leader.
        life_digests: digests of the secrets with which the node registers its broker.
    """

    broker: str
    term: int
    leader: BrokerNode
    is_leading: bool
    life_digests: tuple[bytes, ...]


# Requests the report of the node at an address; None: it did not answer.
AskLeader = Callable[[str], Awaitable[LeaderReport | None]]
