"""What the front knows of topics and groups: the state of this node, and for a new topic the answer of the leader.

A node that follows learns of a topic a moment after the leader has created it; a client that has just created one must
find it at each node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.api.topic_calls import topic_config
from cluster.grpc_v2.status_codes import unknown_topic
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import GroupConfig
from cluster.protocol.topic_types import TopicType, topic_type
from cluster.rocketmq_v2 import messaging_pb2 as mq
from cluster.v1 import broker_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.fronts.leader_link import LeaderLink
    from cluster.protocol.topic_config import TopicConfig
    from cluster.state.broker_state import BrokerState

_ALL: Final = (mq.NORMAL, mq.FIFO, mq.DELAY, mq.TRANSACTION)
_ACCEPTED: Final[dict[TopicType, Sequence[mq.MessageType.ValueType]]] = {
    TopicType.NORMAL: (mq.NORMAL,),
    TopicType.FIFO: (mq.FIFO,),
    TopicType.DELAY: (mq.DELAY,),
    TopicType.TRANSACTION: (mq.TRANSACTION,),
}


class KnownTopics:
    """Topics and groups of the broker.

    Args:
        state: of this node.
        link: to the leader.
    """

    def __init__(self, state: BrokerState, link: LeaderLink) -> None:
        self._state = state
        self._link = link

    async def topic(self, name: str, limit_s: float) -> TopicConfig:
        """Return the settings of a topic.

        Raises:
            CodedRefusal: TOPIC_NOT_FOUND.
            RequestFailed: this node does not know it, and the leader does not answer.
        """
        found = self._state.topics.get(name)
        if found is not None:
            return found
        try:
            response = await self._link.call(lambda stub: stub.ListTopics, pb.ListTopicsRequest(topic=name), limit_s)
        except RequestFailed as failure:
            if failure.reason is Reason.UNKNOWN_TOPIC:
                raise unknown_topic(name) from failure
            raise
        return topic_config(response.topics[0])

    def takes_transactions(self, name: str) -> bool:
        """Return whether this node knows a topic, and it takes messages of transactions."""
        found = self._state.topics.get(name)
        return found is not None and mq.TRANSACTION in accepted_types(found)

    def is_orderly(self, group: str) -> bool:
        """Return whether a group gets the messages of a queue in order; a group that is not known does not."""
        return self.group(group).is_orderly

    def group(self, name: str) -> GroupConfig:
        """Return the settings of a consumer group; of one that is not known, those with which it is created."""
        return self._state.groups.get(name) or GroupConfig(name)


def accepted_types(topic: TopicConfig) -> Sequence[mq.MessageType.ValueType]:
    """Return the types of messages that a topic takes."""
    return _ACCEPTED.get(topic_type(topic.attributes), _ALL)
