"""400 QUERY_ASSIGNMENT, 401 SET_MESSAGE_REQUEST_MODE: which queues a member of a group reads, and how.

| group and topic | assignment |
| --- | --- |
| set to POP | the topic, with the queue -1: all of them, for each member |
| set to PULL, not set, or a retry topic | queues of its own, by the strategy that the client names |
| of a broadcasting group | all queues, pulled |

Clients ask only if they are set to let the broker balance (`clientRebalance=false`), each 20 s.

Source: RocketMQ `QueryAssignmentProcessor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.api.topic_calls import group_message
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import GroupConfig
from cluster.remoting.command import Rejected, RemotingCode, Request, Response
from cluster.remoting.consumers.bodies import CLIENT_ID_LENGTH_MAX, group_of, json_of, object_of, text
from cluster.remoting.pop.request_modes import is_popped, set_popped, set_pulled
from cluster.remoting.pop.shares import in_runs, in_turns
from cluster.v1 import broker_pb2 as pb
from store.model.topics import RETRY_TOPIC_LENGTH_MAX, is_retry_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.broker.core import BrokerCore
    from cluster.fronts.leader_link import LeaderLink
    from cluster.remoting.clients import ClientTable
    from cluster.remoting.front import RemotingClient

# Clients have 3 s for 400, tools 5 s for 401, which has two calls.
_LIMIT_S: Final = 2.0
_STRATEGIES: Final = {"AVG": in_runs, "AVG_BY_CIRCLE": in_turns}
_MODES: Final = ("POP", "PULL")
_WORD_LENGTH_MAX: Final = 127
_ALL_QUEUES: Final = -1
_SHARE_MAX: Final = 65_536


class Assignments:
    """The calls about assignments.

    Args:
        core: of this node.
        link: to the leader.
        clients: of this node.
    """

    def __init__(self, core: BrokerCore, link: LeaderLink, clients: ClientTable) -> None:
        self._core = core
        self._link = link
        self._clients = clients

    async def query(self, request: Request, _: RemotingClient) -> Response:
        """Return the assignment of a client.

        Raises:
            Rejected: TOPIC_NOT_EXIST, SYSTEM_ERROR: the client keeps its queues, and asks again; INVALID_PARAMETER.
        """
        given = object_of(request.body)
        group, topic = group_of(given, "consumerGroup"), text(given, "topic", RETRY_TOPIC_LENGTH_MAX)
        client_id = text(given, "clientId", CLIENT_ID_LENGTH_MAX)
        state = self._core.replica.state
        known, config = state.groups.get(group), state.topics.get(topic)
        if config is None:
            raise Rejected(RemotingCode.TOPIC_NOT_EXIST, f"topic {topic!r} does not exist")
        if given.get("messageModel") == "BROADCASTING":
            return self._assigned(topic, range(config.read_queues), "PULL")
        if known is not None and not is_retry_topic(topic) and is_popped(known.attributes, topic):
            return self._assigned(topic, [_ALL_QUEUES], "POP")
        found = self._clients.consumers_of(group)
        if found is None or client_id not in found.members:
            raise Rejected(RemotingCode.SYSTEM_ERROR, f"client {client_id!r} is not in group {group!r} at this node")
        strategy = _STRATEGIES.get(text(given, "strategyName", _WORD_LENGTH_MAX))
        if strategy is None:
            raise Rejected(RemotingCode.INVALID_PARAMETER, f"strategyName: expected one of {', '.join(_STRATEGIES)}")
        share = strategy(range(config.read_queues), sorted(found.members), client_id)
        return self._assigned(topic, share, "PULL")

    def _assigned(self, topic: str, queue_ids: Sequence[int], mode: str) -> Response:
        broker = self._core.options.broker
        rows = [
            {"messageQueue": {"brokerName": broker, "queueId": each, "topic": topic}, "mode": mode}
            for each in queue_ids
        ]
        return Response(body=json_of({"messageQueueAssignments": rows}))

    async def set_mode(self, request: Request, _: RemotingClient) -> Response:
        """Set how the members of a group read a topic; they do so within 20 s.

        Raises:
            Rejected: INVALID_PARAMETER, SUBSCRIPTION_GROUP_NOT_EXIST: nothing is changed.
            RequestFailed: UNKNOWN_TOPIC; or it is not certain that it is changed: the request may be repeated.
        """
        given = object_of(request.body)
        group, topic = group_of(given, "consumerGroup"), text(given, "topic", RETRY_TOPIC_LENGTH_MAX)
        mode, share = text(given, "mode", _WORD_LENGTH_MAX), given.get("popShareQueueNum", 0)
        if mode not in _MODES:
            raise Rejected(RemotingCode.INVALID_PARAMETER, f"mode: expected one of {', '.join(_MODES)}")
        if type(share) is not int or not -1 <= share <= _SHARE_MAX:
            raise Rejected(RemotingCode.INVALID_PARAMETER, f"popShareQueueNum: expected -1 to {_SHARE_MAX}")
        if is_retry_topic(topic):
            raise Rejected(RemotingCode.NO_PERMISSION, "retry topics are always pulled")
        # A mode of a mistyped topic would be one of the group's few attributes, without effect.
        if topic not in self._core.replica.state.topics:
            await self._link.call(lambda stub: stub.ListTopics, pb.ListTopicsRequest(topic=topic), _LIMIT_S)
        change, attributes = await self._group(group)
        if mode == "POP":
            set_popped(attributes, topic, share)
        else:
            set_pulled(attributes, topic)
        change.attributes.clear()
        change.attributes.update(attributes)
        await self._link.call(lambda stub: stub.SetGroup, pb.SetGroupRequest(group=change), _LIMIT_S)
        return Response()

    async def _group(self, name: str) -> tuple[pb.Group, dict[str, str]]:
        """Return a group as the leader has it, or a new one, and its attributes.

        Raises:
            Rejected: SUBSCRIPTION_GROUP_NOT_EXIST: there is none, and none may be made.
            RequestFailed: the leader has not answered.
        """
        try:
            asked = pb.ListGroupsRequest(group=name)
            found = (await self._link.call(lambda stub: stub.ListGroups, asked, _LIMIT_S)).groups[0].group
        except RequestFailed as failure:
            if failure.reason is not Reason.UNKNOWN_GROUP:
                raise
            if not self._core.options.auto_create_subscription_group:
                text_of_it = f"there is no group {name!r}"
                raise Rejected(RemotingCode.SUBSCRIPTION_GROUP_NOT_EXIST, text_of_it) from failure
            found = group_message(GroupConfig(name))
        return found, dict(found.attributes)
