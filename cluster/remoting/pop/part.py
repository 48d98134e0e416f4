"""The table of the handlers for pop consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.remoting.holds import Holds
from cluster.remoting.pop.acks import Acks
from cluster.remoting.pop.assignments import Assignments
from cluster.remoting.pop.receives import PopMessages

if TYPE_CHECKING:
    from cluster.broker.core import BrokerCore
    from cluster.fronts.leader_link import LeaderLink
    from cluster.remoting.clients import ClientTable
    from cluster.remoting.front import Handler


class PopConsumers:
    """The part of the front for pop consumers.

    Args:
        core: of this node.
        link: to the leader.
        clients: registered at this node.
    """

    def __init__(self, core: BrokerCore, link: LeaderLink, clients: ClientTable) -> None:
        self._holds = Holds(link)
        self._receives = PopMessages(core, link, self._holds)
        self._acks = Acks(link)
        self._assignments = Assignments(core, link, clients)

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            400: self._assignments.query,
            401: self._assignments.set_mode,
            200_050: self._receives.pop,
            200_051: self._acks.acknowledge,
            200_052: self._receives.peek,
            200_053: self._acks.change_invisible,
            200_054: self._receives.notify,
            200_055: self._receives.polling,
            200_151: self._acks.acknowledge_all,
        }

    def stop(self) -> None:
        """Answer the held requests at once; the connections are closed after that."""
        self._holds.stop()
