"""The table of the handlers for consumers, and what runs beside them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from cluster.remoting.consumers.offsets import Offsets
from cluster.remoting.consumers.pulls import Pulls
from cluster.remoting.consumers.queue_calls import QueueCalls
from cluster.remoting.consumers.registrations import Registrations
from cluster.remoting.consumers.resets import OffsetResets
from cluster.remoting.names.pull_nodes import PullNodes
from store.maintenance.background import monotonic_ms

if TYPE_CHECKING:
    from collections.abc import Collection

    from cluster.broker.core import BrokerCore
    from cluster.fronts.callers import Callers
    from cluster.fronts.leader_link import LeaderLink
    from cluster.remoting.clients import ClientTable
    from cluster.remoting.consumers.commits import PendingCommits
    from cluster.remoting.front import Handler

_EXPIRE_S: Final = 10.0


class Consumers:
    """The part of the front for consumers.

    Args:
        core: of this node.
        link: to the leader.
        clients: registered at this node; other parts read the table.
        callers: of the front.
        commits: of this node that are on their way; other parts wait for them.
        nodes: ids of the nodes in routes.
    """

    def __init__(
        self,
        core: BrokerCore,
        link: LeaderLink,
        clients: ClientTable,
        callers: Callers,
        commits: PendingCommits,
        *,
        nodes: Collection[str],
    ) -> None:
        self._registrations = Registrations(core, link, clients, callers, commits, monotonic_ms)
        resets = OffsetResets(core)
        self._offsets = Offsets(core, link, resets, commits)
        pull_nodes = PullNodes(core.replica, core.options.self_id, nodes)
        self._pulls = Pulls(core, link, clients, self._offsets, resets, nodes=pull_nodes)
        self._queues = QueueCalls(core, link)

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            11: self._pulls.pull,
            14: self._offsets.query,
            15: self._offsets.update,
            29: self._offsets.offset_of_time,
            30: self._offsets.max_offset,
            31: self._offsets.min_offset,
            32: self._offsets.earliest_time,
            34: self._registrations.heartbeat,
            35: self._registrations.unregister,
            36: self._queues.return_message,
            38: self._registrations.members,
            41: self._queues.lock,
            42: self._queues.unlock,
            46: self._registrations.check,
            361: self._pulls.pull,
        }

    async def run(self) -> None:
        """Remove silent clients, until it is cancelled."""
        while True:
            await asyncio.sleep(_EXPIRE_S)
            self._registrations.expire()

    def stop(self) -> None:
        """Answer the held pulls at once; the connections are closed after that."""
        self._pulls.stop()
