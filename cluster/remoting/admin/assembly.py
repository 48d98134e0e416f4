"""All handlers of administrators' requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.remoting.admin.groups import AdminGroups
from cluster.remoting.admin.messages import AdminMessages
from cluster.remoting.admin.online import OnlineClients
from cluster.remoting.admin.refusals import refusing_handlers
from cluster.remoting.admin.runtime import AdminRuntime
from cluster.remoting.admin.statistics import AdminStatistics
from cluster.remoting.admin.topics import AdminTopics

if TYPE_CHECKING:
    from cluster.broker.core import BrokerCore
    from cluster.fronts.leader_link import LeaderLink
    from cluster.remoting.clients import ClientTable
    from cluster.remoting.consumers.commits import PendingCommits
    from cluster.remoting.front import Handler


class Administration:
    """Answers administrators.

    Args:
        core: of this node.
        link: to the leader.
        clients: that are registered at this node.
        commits: of this node that are on their way.
        store_path: the directory of the node's log.
        listen_port: of the remoting protocol.
    """

    def __init__(
        self,
        core: BrokerCore,
        link: LeaderLink,
        clients: ClientTable,
        commits: PendingCommits,
        store_path: str,
        listen_port: int,
    ) -> None:
        statistics = AdminStatistics(core)
        self._parts = (
            AdminTopics(core, link),
            AdminGroups(core, link, commits),
            OnlineClients(core, clients),
            AdminMessages(core, link, clients),
            statistics,
            AdminRuntime(core, statistics, store_path, listen_port),
        )

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request codes."""
        own = {code: handler for part in self._parts for code, handler in part.handlers().items()}
        return own | refusing_handlers()
