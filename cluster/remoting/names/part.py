"""The handlers of requests to a name server.

Routes and lists come from the state of the broker, so nothing can be registered or removed here: requests that would
are refused with a remark, except those that tools send after they have changed the topic at the broker itself.

Source: RocketMQ `DefaultRequestProcessor`, `ClientRequestProcessor`, `RouteInfoManager`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.api.topic_calls import topic_config
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import PERMISSION_INHERIT, PERMISSION_READ, PERMISSION_WRITE, TopicConfig
from cluster.remoting.codec import encode_json
from cluster.remoting.command import Rejected, RemotingCode, Request, Response
from cluster.remoting.fields import text_of
from cluster.remoting.names.routes import ORDER_NAMESPACE, RoutePlaces, chosen, cluster_of, order_value, route_of
from cluster.remoting.own_names import expected_topics
from cluster.v1 import broker_pb2 as pb
from store.model.topics import AUTO_CREATE_TOPIC, DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.broker.core import BrokerCore
    from cluster.fronts.leader_link import LeaderLink
    from cluster.remoting.front import Handler, RemotingClient

_NAME_LENGTH_MAX: Final = 255
# Clients wait 3 s for a route.
_LIMIT_S: Final = 2.0
_READ_WRITE: Final = PERMISSION_READ | PERMISSION_WRITE


class NameServerRole:
    """The part of the front that is a name server.

    Args:
        core: rules of the broker.
        link: to the leader.
        addresses: `host:port` of the port for clients, by node id.
    """

    def __init__(self, core: BrokerCore, link: LeaderLink, addresses: Mapping[str, str]) -> None:
        self._options, self._replica, self._link = core.options, core.replica, link
        self._addresses = addresses
        # Node ids: the last known leader, and the one that was last under id 0 of routes.
        self._leader = min(addresses)
        self._first = ""

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            100: self._put_value,
            101: self._get_value,
            102: self._delete_value,
            105: self._route,
            106: self._cluster,
            205: self._refuse_change,
            206: self._all_topics,
            216: self._forget_topic,
            219: self._get_values,
            224: self._topics_of_cluster,
            304: self._system_topics,
            318: self._refuse_change,
            319: self._settings,
            327: self._refuse_change,
        }

    def _known_leader(self) -> str:
        """Return the id of the leader; while none is known that of the last one, so that the answers stay the same."""
        leader = self._replica.status().leader_id
        if leader in self._addresses:
            self._leader = leader
        return self._leader

    def _places(self) -> RoutePlaces:
        """Return the places for clients."""
        nodes = chosen(self._addresses, self._known_leader(), self._replica.is_reachable, self._first)
        self._first = nodes[0]
        unreachable = [each for each in self._addresses if not self._replica.is_reachable(each)]
        return RoutePlaces(self._options.cluster, self._options.broker, self._addresses, nodes, unreachable)

    def _tool_places(self) -> RoutePlaces:
        """Return the places for tools, with the leader under id 0: they compare it with the store hosts of messages."""
        return RoutePlaces(self._options.cluster, self._options.broker, self._addresses, [self._known_leader()])

    # ------------------------------------------------------------------------------------------------------- routes

    async def _route(self, request: Request, _client: RemotingClient) -> Response:
        name = text_of(request.fields, "topic", _NAME_LENGTH_MAX)
        topic = self._known(name) or await self._at_leader(name)
        return Response(body=encode_json(route_of(topic, self._places())))

    def _known(self, name: str) -> TopicConfig | None:
        """Return a topic that this node knows, or that a client finds without its being created."""
        state, options = self._replica.state, self._options
        found = state.topics.get(name)
        if found is not None:
            return found
        for prefix in (RETRY_PREFIX, DLQ_PREFIX):
            if name.startswith(prefix) and name.removeprefix(prefix) in state.groups:
                return TopicConfig(name, 1, 1)
        if name == AUTO_CREATE_TOPIC and options.auto_create_topic_enable:
            queues = options.default_topic_queue_nums
            return TopicConfig(name, queues, queues, _READ_WRITE | PERMISSION_INHERIT)
        if name in expected_topics(self._options):
            return TopicConfig(name, 1, 1)
        return None

    async def _at_leader(self, name: str) -> TopicConfig:
        try:
            response = await self._link.call(lambda stub: stub.ListTopics, pb.ListTopicsRequest(topic=name), _LIMIT_S)
        except RequestFailed as failure:
            if failure.reason in (Reason.UNKNOWN_TOPIC, Reason.ILLEGAL_REQUEST, Reason.ILLEGAL_MESSAGE):
                raise Rejected(RemotingCode.TOPIC_NOT_EXIST, _no_route(name)) from failure
            raise
        return topic_config(response.topics[0])

    async def _cluster(self, _request: Request, _client: RemotingClient) -> Response:
        return Response(body=encode_json(cluster_of(self._tool_places())))

    # -------------------------------------------------------------------------------------------------------- lists

    async def _all_topics(self, _request: Request, _client: RemotingClient) -> Response:
        return Response(body=encode_json({"topicList": self._names()}))

    async def _topics_of_cluster(self, request: Request, _client: RemotingClient) -> Response:
        cluster = text_of(request.fields, "cluster", _NAME_LENGTH_MAX)
        names = self._names() if cluster == self._options.cluster else []
        return Response(body=encode_json({"topicList": names}))

    def _names(self) -> list[str]:
        """Tools find the groups by their topics of retries."""
        state = self._replica.state
        retried = (f"{RETRY_PREFIX}{group}" for group in state.groups)
        automatic = (AUTO_CREATE_TOPIC,) if self._options.auto_create_topic_enable else ()
        return sorted({*state.topics, *retried, *automatic, *expected_topics(self._options)})

    async def _system_topics(self, _request: Request, _client: RemotingClient) -> Response:
        names = sorted({*expected_topics(self._options), AUTO_CREATE_TOPIC})
        return Response(body=encode_json({"brokerAddr": self._tool_places().first_address, "topicList": names}))

    # ------------------------------------------------------------------------------------------------------- values

    def _ordered(self) -> dict[str, str]:
        topics = self._replica.state.topics
        return {name: order_value(self._options.broker, topic) for name, topic in topics.items() if topic.is_ordered}

    async def _get_value(self, request: Request, _client: RemotingClient) -> Response:
        namespace, key = request.fields.get("namespace", ""), request.fields.get("key", "")
        topic = self._replica.state.topics.get(key) if namespace == ORDER_NAMESPACE else None
        value = order_value(self._options.broker, topic) if topic is not None and topic.is_ordered else None
        if value is None:
            shown = f"Namespace: {namespace[:_NAME_LENGTH_MAX]} Key: {key[:_NAME_LENGTH_MAX]}"
            raise Rejected(RemotingCode.QUERY_NOT_FOUND, f"No config item, {shown}")
        return Response(fields={"value": value})

    async def _get_values(self, request: Request, _client: RemotingClient) -> Response:
        namespace = request.fields.get("namespace", "")
        table = self._ordered() if namespace == ORDER_NAMESPACE else {}
        if not table:
            text = f"No config item, Namespace: {namespace[:_NAME_LENGTH_MAX]}"
            raise Rejected(RemotingCode.QUERY_NOT_FOUND, text)
        return Response(body=encode_json({"table": table}))

    async def _put_value(self, request: Request, _client: RemotingClient) -> Response:
        """Tools write the queues of an ordered topic here after they have made it one, which is enough."""
        name = _ordered_name(request)
        topic = await self._at_leader(name)
        value = order_value(self._options.broker, topic)
        if not topic.is_ordered:
            raise _refused(f"topic {name!r} is not ordered; `mqadmin updateTopic -o true` makes it so")
        if request.fields.get("value") != value:
            raise _refused(f"the value of topic {name!r} is {value!r}, by its write queues: change those")
        return Response()

    async def _delete_value(self, request: Request, _client: RemotingClient) -> Response:
        """Tools delete the value of a topic that they have deleted; that of an ordered topic stays as long as it."""
        name = _ordered_name(request)
        try:
            topic = await self._at_leader(name)
        except Rejected:
            return Response()
        if topic.is_ordered:
            raise _refused(f"topic {name!r} is ordered; `mqadmin updateTopic -o false` changes that")
        return Response()

    async def _forget_topic(self, _request: Request, _client: RemotingClient) -> Response:
        """A topic has a route for as long as the broker has it; tools delete it there first."""
        return Response()

    async def _refuse_change(self, _request: Request, _client: RemotingClient) -> Response:
        raise Rejected(
            RemotingCode.ILLEGAL_OPERATION,
            f"broker {self._options.broker} has no name server of its own to change: change the "
            "topic's permission, or the settings of the node",
        )

    async def _settings(self, _request: Request, _client: RemotingClient) -> Response:
        return Response(body=b"orderMessageEnable=true\nreturnOrderTopicConfigToBroker=true\n")


def _ordered_name(request: Request) -> str:
    """Return the topic whose value is changed.

    Raises:
        Rejected: ILLEGAL_OPERATION: values of other namespaces cannot be kept.
    """
    if request.fields.get("namespace") != ORDER_NAMESPACE:
        raise _refused(f"values can be kept only in the namespace {ORDER_NAMESPACE}")
    return text_of(request.fields, "key", _NAME_LENGTH_MAX)


def _refused(text: str) -> Rejected:
    return Rejected(RemotingCode.ILLEGAL_OPERATION, text)


def _no_route(name: str) -> str:
    """Return why a topic has no route, and what creates it."""
    text = f"No topic route info in name server for the topic: {name}"
    if name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return f"{text}; its group does not exist, or has no such messages"
    return f"{text}; `mqadmin updateTopic` or `dledger topic create` creates it, as auto_create_topic_enable would"
