"""Makes the front of its parts, and serves it until the node stops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.fronts.leader_link import LeaderLink
from cluster.remoting.front import Front
from cluster.remoting.names.part import NameServerRole
from cluster.remoting.server import RemotingServer
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AsyncExitStack

    from cluster.broker.core import BrokerCore
    from cluster.remoting.front import Handler
    from dledger.config import Address

_GRACE_S: Final = 0.5


async def serve_remoting(
    core: BrokerCore, address: Address, addresses: Mapping[str, str], own_address: str, stack: AsyncExitStack
) -> None:
    """Serve clients of the remoting protocol until `stack` is closed.

    Args:
        core: rules of the broker.
        address: to listen on.
        addresses: `host:port` at which clients reach each node, by node id.
        own_address: `host:port` of this node's own service.
        stack: ends the service.

    Raises:
        OSError: the address cannot be listened on; choose another one.
    """

    def leader_address() -> str:
        status = core.replica.status()
        return own_address if status.is_leading else status.leader_address

    link = LeaderLink(leader_address, PLAIN)
    stack.push_async_callback(link.close)
    handlers: dict[int, Handler] = {**NameServerRole(core, link, addresses).handlers()}
    server = RemotingServer([address], Front(handlers, lambda: core.replica.state.access.rules.is_enforced))
    await server.start()
    stack.push_async_callback(server.stop, _GRACE_S)
