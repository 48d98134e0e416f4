"""What registration and its confirmation need of the network: one name server, and the known nodes of a broker.

The rules know no wire format; `cluster.api.name_server_links` has the calls of our gRPC services.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.protocol.route_table import BrokerNode, Extent, Registration, TopicQueues


class NameServerLink(Protocol):
    """One name server, to which a broker registers. For use by one event loop."""

    async def register(self, registration: Registration, topics: Sequence[TopicQueues], extent: Extent) -> bool:
        """Send a registration with these topics; return False: the name server does not hold what it adds to.

        Raises:
            RequestFailed: it was refused, or no answer came.
        """
        ...

    async def heartbeat(self, registration: Registration) -> bool:
        """Say that nothing has changed; return whether the name server holds the registration.

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


# Returns the link to the name server at an address, which calls the function whenever a connection has ended.
Dial = Callable[[str, Callable[[], None]], NameServerLink]


class LeaderReport(NamedTuple):
    """What a node says of its broker.

    Attributes:
        broker: its name.
        term: the newest that the node knows.
        leader: in that term; id and address are empty if the node knows none.
        is_leading: the node itself leads.
        life_digests: of the lives with which the node registers its broker.
    """

    broker: str
    term: int
    leader: BrokerNode
    is_leading: bool
    life_digests: tuple[bytes, ...]


# Asks the node at an address; None: it did not answer.
AskLeader = Callable[[str], Awaitable[LeaderReport | None]]
