"""The port for official clients of RocketMQ 5, of a broker's node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.process.serving import GRACE_S
from dledger.service.grpc_server import SERVER_OPTIONS, start_grpc_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AsyncExitStack

    from cluster.broker.core import BrokerCore
    from cluster.fronts.callers import FrontAudit
    from dledger.config import Address

# C++ and Java clients ping without calls, some more often than gRPC permits: that must not end their connections.
_OPTIONS = (*SERVER_OPTIONS, ("grpc.http2.max_ping_strikes", 0))


async def serve_rocketmq(
    core: BrokerCore,
    address: Address,
    own_address: str,
    stack: AsyncExitStack,
    *,
    audit: FrontAudit,
    count_overloaded: Callable[[], None],
) -> None:
    """Serve the clients until `stack` is closed.

    Args:
        core: rules of the broker.
        address: to listen on.
        own_address: `host:port` of this node's own service.
        stack: ends the service.
        audit: takes refusals.
        count_overloaded: counts a call that is refused because its caller has its share of all calls.

    Raises:
        dledger.service.grpc_server.ServerNotStarted: the address is taken or wrong.
    """
    # Imported here, because most nodes have no such port.
    from cluster.grpc_v2.service import MessagingService  # noqa: PLC0415

    service = MessagingService(core, address, own_address, audit)
    stack.push_async_callback(service.stop)
    server = await start_grpc_server(address, [service.served()], options=_OPTIONS, count_overloaded=count_overloaded)
    stack.push_async_callback(server.stop, GRACE_S)
