"""Makes the front of its parts, and serves it until the node stops."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from cluster.fronts.callers import callers_of_node
from cluster.fronts.front_security import PLAIN_FRONTS, FrontSecurity
from cluster.fronts.leader_link import LeaderLink
from cluster.process.tasks import end_tasks
from cluster.remoting.admin.assembly import Administration
from cluster.remoting.clients import ClientTable
from cluster.remoting.consumers.commits import PendingCommits
from cluster.remoting.consumers.service import Consumers
from cluster.remoting.front import Front
from cluster.remoting.names.part import NameServerRole
from cluster.remoting.pop.part import PopConsumers
from cluster.remoting.producers.part import Producers
from cluster.remoting.server import RemotingServer

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from cluster.broker.core import BrokerCore
    from cluster.fronts.callers import FrontAudit
    from cluster.remoting.front import Handler
    from cluster.remoting.port import RemotingPort

_GRACE_S: Final = 0.5


async def serve_remoting(
    core: BrokerCore,
    port: RemotingPort,
    own_address: str,
    stack: AsyncExitStack,
    audit: FrontAudit,
    security: FrontSecurity = PLAIN_FRONTS,
) -> None:
    """Serve clients of the remoting protocol until `stack` is closed.

    Args:
        core: rules of the broker.
        port: to serve them at.
        own_address: `host:port` of this node's own service.
        stack: ends the service.
        audit: takes refusals.
        security: of the port, and of the calls to the leader.

    Raises:
        OSError: an address cannot be listened on; choose another one.
        dledger.security.errors.CertificateFault: the certificates cannot be used.
    """

    def leader_address() -> str:
        status = core.replica.status()
        return own_address if status.is_leading else status.leader_address

    callers = callers_of_node(core, audit)
    link, clients = LeaderLink(leader_address, security.leader, callers.token), ClientTable()
    stack.push_async_callback(link.close)
    commits = PendingCommits(link)
    stack.push_async_callback(commits.stop)
    producers = Producers(core, link, clients, callers)
    consumers = Consumers(core, link, clients, callers, commits, nodes=port.peers.keys())
    pop_consumers = PopConsumers(core, link, clients)
    stack.push_async_callback(producers.stop)
    stack.push_async_callback(end_tasks, [asyncio.create_task(consumers.run())])
    handlers: dict[int, Handler] = {
        **NameServerRole(core, link, port.peers).handlers(),
        **producers.handlers(),
        **consumers.handlers(),
        **pop_consumers.handlers(),
        **Administration(core, link, clients, commits, port.store_path, port.address.port).handlers(),
    }
    server = RemotingServer(
        port.listened,
        Front(handlers, callers, core.options.cluster),
        security=security.clients,
        is_permissive=port.is_permissive,
        count_limited=core.metrics.count_limited,
    )
    await server.start()
    stack.push_async_callback(server.stop, _GRACE_S)
    # Held requests are answered before their connections are closed.
    stack.callback(consumers.stop)
    stack.callback(pop_consumers.stop)
