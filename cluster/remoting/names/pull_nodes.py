"""Where a consumer is to pull next: the number of a node in routes, which each answer to a pull has.

Consumers pull from id 0 of the last route, which they read each 30 s, unless an answer names another id. Besides id 0,
every node has an id in routes that never changes (`own_id`). So a node that follows names itself, and one that stops
names another one that follows: its consumers pull there at once, and remain, whatever route they know. A leader names
id 0, which is a follower in the next route: the end of a leader costs an election.

Source: RocketMQ `PullAPIWrapper.updatePullFromWhichNode`, `MQClientInstance.findBrokerAddressInSubscribe`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.remoting.names.routes import own_id

if TYPE_CHECKING:
    from collections.abc import Collection

    from cluster.replica.port import Replica

_FIRST_OF_ROUTE: Final = 0


class PullNodes:
    """The ids that one node names.

    Args:
        replica: of this node.
        self_id: of this node.
        nodes: ids of the nodes in routes.
    """

    def __init__(self, replica: Replica, self_id: str, nodes: Collection[str]) -> None:
        self._replica = replica
        self._self_id = self_id
        self._nodes = nodes

    def next_id(self, *, is_stopping: bool) -> int:
        """Return the id from which a consumer is to pull next."""
        if len(self._nodes) < 2 or self._self_id not in self._nodes:
            return _FIRST_OF_ROUTE
        status = self._replica.status()
        if not is_stopping:
            return _FIRST_OF_ROUTE if status.is_leading else own_id(self._nodes, self._self_id)
        others = sorted(each for each in self._nodes if each not in (self._self_id, status.leader_id))
        following = next(filter(self._replica.is_reachable, others), None)
        return _FIRST_OF_ROUTE if following is None else own_id(self._nodes, following)
