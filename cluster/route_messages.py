"""Registrations and routes as `cluster.v1` words them, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cluster.route_table import BrokerNode, BrokerRoute, KnownBroker, Registration, TopicQueues
from cluster.v1 import nameserver_pb2 as pb
from store.topics import AUTO_CREATE_TOPIC


def register_request(registration: Registration) -> pb.RegisterRequest:
    """Return the request that registers a broker."""
    return pb.RegisterRequest(
        broker=registration.broker,
        cluster=registration.cluster,
        term=registration.term,
        sequence=registration.sequence,
        leader_id=registration.leader_id,
        nodes=_nodes(registration),
        topics=[_queues(each) for each in registration.topics],
    )


def registration_of(request: pb.RegisterRequest) -> Registration:
    """Return what a request registers; not checked yet."""
    return Registration(
        broker=request.broker,
        cluster=request.cluster,
        term=request.term,
        sequence=request.sequence,
        leader_id=request.leader_id,
        nodes=tuple(BrokerNode(node.id, node.address) for node in request.nodes),
        topics=tuple(_queues_of(each) for each in request.topics),
    )


def route_response(routes: Mapping[str, Sequence[BrokerRoute]]) -> pb.RouteResponse:
    """Return the answer to a question for routes; topics that nobody has are left out."""
    return pb.RouteResponse(
        routes=[
            pb.TopicRoute(topic=topic, brokers=[_broker_route(each) for each in brokers])
            for topic, brokers in routes.items()
            if brokers
        ]
    )


def routes_of(response: pb.RouteResponse) -> dict[str, tuple[BrokerRoute, ...]]:
    """Return the routes of an answer by topic; their registrations hold that one topic."""
    return {each.topic: tuple(_broker_route_of(broker) for broker in each.brokers) for each in response.routes}


def registered_broker(known: KnownBroker) -> pb.RegisteredBroker:
    """Return what a list of brokers says of one."""
    registration = known.registration
    return pb.RegisteredBroker(
        broker=registration.broker,
        cluster=registration.cluster,
        term=registration.term,
        leader_id=registration.leader_id,
        nodes=_nodes(registration),
        topics_count=sum(queues.topic != AUTO_CREATE_TOPIC for queues in registration.topics),
        silent_ms=known.silent_ms,
        is_writable=known.is_writable,
    )


def _broker_route(route: BrokerRoute) -> pb.BrokerRoute:
    registration = route.registration
    return pb.BrokerRoute(
        broker=registration.broker,
        cluster=registration.cluster,
        term=registration.term,
        leader_id=registration.leader_id,
        nodes=_nodes(registration),
        queues=_queues(route.queues),
        sequence=registration.sequence,
    )


def _broker_route_of(route: pb.BrokerRoute) -> BrokerRoute:
    queues = _queues_of(route.queues)
    nodes = tuple(BrokerNode(node.id, node.address) for node in route.nodes)
    return BrokerRoute(
        Registration(route.broker, route.cluster, route.term, route.sequence, route.leader_id, nodes, (queues,)), queues
    )


def _nodes(registration: Registration) -> list[pb.BrokerNode]:
    return [pb.BrokerNode(id=node.id, address=node.address) for node in registration.nodes]


def _queues(queues: TopicQueues) -> pb.TopicQueues:
    return pb.TopicQueues(
        topic=queues.topic,
        read_queues=queues.read_queues,
        write_queues=queues.write_queues,
        permission=queues.permission,
        is_ordered=queues.is_ordered,
    )


def _queues_of(queues: pb.TopicQueues) -> TopicQueues:
    return TopicQueues(queues.topic, queues.read_queues, queues.write_queues, queues.permission, queues.is_ordered)
