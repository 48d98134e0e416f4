"""The routes of topics, as RocketMQ's clients read them: the queues by names of brokers, and the nodes of each name.

All queues are under the name of the broker, whose nodes have the ids 0, 1, ... Id 0 is the last known leader. Producers
repeat a send that failed at another *name*, so each other node also has an alias, under which queues can only be
written. The number of a queue means the same queue under every name (ADR 91).

| topic | names |
| --- | --- |
| ordered, %RETRY%..., %DLQ%... | the broker |
| others | the broker, and an alias of each node that is not under id 0 |

Answers depend on the topic, the addresses and the leader only, so that they have the same bytes until one of them
changes: each change makes clients rebuild what they know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cluster.protocol.topic_config import PERMISSION_WRITE
from store.model.topics import is_retry_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.protocol.topic_config import TopicConfig

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"


@dataclass(frozen=True, slots=True)
class RoutePlaces:
    """Where the nodes of one broker are.

    Attributes:
        cluster: name of the cluster.
        broker: name of the broker.
        addresses: `host:port` of the port for clients, by node id, at least one.
        first: the node under id 0; another one, if it has no address.
    """

    cluster: str
    broker: str
    addresses: Mapping[str, str]
    first: str

    def ordered_ids(self) -> list[str]:
        """Return the ids of all nodes, the one under id 0 first."""
        return sorted(self.addresses, key=lambda each: (each != self.first, each))

    def broker_data(self) -> dict[str, Any]:
        """Return the broker with all its nodes."""
        ids = self.ordered_ids()
        return self._data(self.broker, {str(at): self.addresses[each] for at, each in enumerate(ids)})

    def aliases(self) -> dict[str, dict[str, Any]]:
        """Return the further names, each with its node."""
        names = {f"{self.broker}-{each}": self.addresses[each] for each in self.ordered_ids()[1:]}
        return {name: self._data(name, {"0": address}) for name, address in names.items()}

    def _data(self, name: str, addresses: dict[str, str]) -> dict[str, Any]:
        return {"brokerAddrs": addresses, "brokerName": name, "cluster": self.cluster, "enableActingMaster": False}


def order_value(broker: str, topic: TopicConfig) -> str:
    """Return the queues of an ordered topic, as tools keep them at name servers."""
    return f"{broker}:{topic.write_queues}"


def route_of(topic: TopicConfig, places: RoutePlaces) -> dict[str, Any]:
    """Return the body of a route."""
    queues = [_queues(places.broker, topic.permission, topic.read_queues, topic)]
    brokers = [places.broker_data()]
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
