"""The routes of topics, as RocketMQ's clients read them: the queues by names of brokers, and the nodes of each name.

All queues are under the name of the broker. Clients ask for routes each 30 s, and use almost nothing but id 0. So id 0
is a follower: the end of a leader, which costs an election, does not cost clients a new route, too (`chosen`). Each
node that can be reached also has an id that never changes, by which consumers find another one when theirs stops
(`cluster.remoting.names.pull_nodes`). Producers repeat a send that failed at another *name*, so other nodes also have
an alias, under which queues can only be written. The number of a queue means the same queue under every name (ADR 91).

| topic | names |
| --- | --- |
| ordered, %RETRY%..., %DLQ%... | the broker |
| others | the broker, and an alias of each further chosen node |

Answers depend on the topic, the addresses and the chosen nodes only, so that they have the same bytes until one of them
changes: each change makes clients rebuild what they know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cluster.protocol.topic_config import PERMISSION_WRITE
from store.model.topics import is_retry_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from cluster.protocol.topic_config import TopicConfig

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"


@dataclass(frozen=True, slots=True)
class RoutePlaces:
    """Where the nodes of one broker are.

    Attributes:
        cluster: name of the cluster.
        broker: name of the broker.
        addresses: `host:port` of the port for clients, by node id, at least one.
        nodes: those that clients are to use, at least one: the node under id 0, then those with an alias.
        unreachable: nodes that have no id of their own now.
    """

    cluster: str
    broker: str
    addresses: Mapping[str, str]
    nodes: Sequence[str]
    unreachable: Collection[str] = ()

    @property
    def first_address(self) -> str:
        """The address under id 0."""
        return self.addresses[self.nodes[0]]

    def broker_data(self) -> dict[str, Any]:
        """Return the broker with all its nodes, as tools list them."""
        ids = sorted(self.addresses, key=lambda each: (each != self.nodes[0], each))
        return self._data(self.broker, {str(at): self.addresses[each] for at, each in enumerate(ids)})

    def broker_of_route(self) -> dict[str, Any]:
        """Return the broker with the node under id 0, and under ids of their own those that can be reached."""
        listed = [] if len(self.addresses) < 2 else sorted(self.addresses.keys() - set(self.unreachable))
        own = {str(own_id(self.addresses, each)): self.addresses[each] for each in listed}
        return self._data(self.broker, {"0": self.first_address, **own})

    def aliases(self) -> dict[str, dict[str, Any]]:
        """Return the further names, each with its node."""
        names = {f"{self.broker}-{each}": self.addresses[each] for each in self.nodes[1:]}
        return {name: self._data(name, {"0": address}) for name, address in names.items()}

    def _data(self, name: str, addresses: dict[str, str]) -> dict[str, Any]:
        return {"brokerAddrs": addresses, "brokerName": name, "cluster": self.cluster, "enableActingMaster": False}


def own_id(nodes: Collection[str], node: str) -> int:
    """Return the id of a node in all routes: from 1."""
    return sorted(nodes).index(node) + 1


def chosen(ids: Iterable[str], leader: str, is_reachable: Callable[[str], bool], last: str) -> list[str]:
    """Return the nodes that clients are to use: all but the leader, but at least two if there are two.

    Their number depends on the number of nodes only, so that a producer's choice of a queue by a key is stable.

    Args:
        ids: of all nodes.
        leader: the last known one; empty: none.
        is_reachable: returns whether a node can be reached; one that cannot comes last.
        last: the node that was first so far; it remains, unless it leads now or cannot be reached. A node that has just
            started is not preferred, because it knows the consumers only after their next heartbeat.
    """

    def rank(node_id: str) -> tuple[int, bool, str]:
        kind = 2 if not is_reachable(node_id) else int(node_id == leader)
        return kind, node_id != last, node_id

    ranked = sorted(ids, key=rank)
    return ranked[: max(len(ranked) - 1, 2)]


def order_value(broker: str, topic: TopicConfig) -> str:
    """Return the queues of an ordered topic, as tools keep them at name servers."""
    return f"{broker}:{topic.write_queues}"


def route_of(topic: TopicConfig, places: RoutePlaces) -> dict[str, Any]:
    """Return the body of a route."""
    queues = [_queues(places.broker, topic.permission, topic.read_queues, topic)]
    brokers = [places.broker_of_route()]
    route: dict[str, Any] = {"brokerDatas": brokers, "filterServerTable": {}, "queueDatas": queues}
    if topic.is_ordered:
        route["orderTopicConf"] = order_value(places.broker, topic)
    elif topic.is_writable and not is_retry_topic(topic.name):
        for name, broker in places.aliases().items():
            brokers.append(broker)
            queues.append(_queues(name, PERMISSION_WRITE, 0, topic))
    return route


def cluster_of(places: RoutePlaces) -> dict[str, Any]:
    """Return the body of the list of brokers: without aliases, because tools would count a broker several times."""
    return {
        "brokerAddrTable": {places.broker: places.broker_data()},
        "clusterAddrTable": {places.cluster: [places.broker]},
    }


def _queues(name: str, permission: int, read_queues: int, topic: TopicConfig) -> dict[str, Any]:
    return {
        "brokerName": name,
        "perm": permission,
        "readQueueNums": read_queues,
        "topicSysFlag": topic.sys_flag,
        "writeQueueNums": topic.write_queues,
    }
