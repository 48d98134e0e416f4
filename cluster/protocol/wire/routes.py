"""Conversion of registrations and routes to `cluster.v1` and back."""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Final

from cluster.protocol.route_table import (
    ALL,
    BROKERS_MAX,
    NODES_MAX,
    BrokerNode,
    BrokerRoute,
    Extent,
    IllegalRegistration,
    KnownBroker,
    Registration,
    TopicQueues,
)
from cluster.v1 import nameserver_pb2 as pb
from store.errors import IllegalMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

# Twice the maximum of one topic on one broker: with more, one route would block a client for a second.
QUEUES_PER_ROUTE_MAX: Final = 131_072

logger = logging.getLogger(__name__)


def register_request(
    registration: Registration, topics: Sequence[TopicQueues], extent: Extent = ALL
) -> pb.RegisterRequest:
    """Return the request that registers a broker with these topics."""
    return pb.RegisterRequest(
        broker=registration.broker,
        cluster=registration.cluster,
        term=registration.term,
        sequence=registration.sequence,
        leader_id=registration.leader_id,
        nodes=_nodes(registration),
        topics=[_queues(each) for each in topics],
        since_sequence=extent.since_sequence,
        deleted_topics=extent.deleted,
        piece=extent.piece,
        has_more=extent.has_more,
        life=registration.life,
    )


def extent_of(request: pb.RegisterRequest) -> Extent:
    """Return the extent of a request's topics: all of them, or changes."""
    since = request.since_sequence if request.HasField("since_sequence") else None
    return Extent(since, tuple(request.deleted_topics), request.piece, request.has_more)


def registration_of(request: pb.RegisterRequest) -> Registration:
    """Convert the registration in a request, without checks."""
    return Registration(
        broker=request.broker,
        cluster=request.cluster,
        term=request.term,
        sequence=request.sequence,
        leader_id=request.leader_id,
        nodes=_nodes_of(request.nodes),
        topics=tuple(_queues_of(each) for each in request.topics),
        life=request.life,
    )


def route_response(routes: Mapping[str, Sequence[BrokerRoute]]) -> pb.RouteResponse:
    """Return the answer to a route request; topics that no broker has are omitted."""
    return pb.RouteResponse(
        routes=[
            pb.TopicRoute(topic=topic, brokers=[_broker_route(each) for each in brokers])
            for topic, brokers in routes.items()
            if brokers
        ]
    )


def routes_of(response: pb.RouteResponse) -> dict[str, tuple[BrokerRoute, ...]]:
    """Return the routes of an answer by topic; their registrations have only that topic.

    The answer may be wrong or malicious: invalid routes are omitted and logged, and so are routes beyond
    `QUEUES_PER_ROUTE_MAX` queues of one topic, because a client allocates memory for each queue.
    """
    return {each.topic: tuple(_valid_routes(each)) for each in response.routes}


def _valid_routes(route: pb.TopicRoute) -> Iterator[BrokerRoute]:
    """Yield the valid routes of one topic."""
    queues_count = 0
    for each in islice(route.brokers, BROKERS_MAX):
        try:
            found = _checked_route_of(each)
        except (IllegalRegistration, IllegalMessage) as error:
            logger.warning(
                "route_left_out topic=%r broker=%r reason=%r", route.topic[:255], each.broker[:128], str(error)
            )
            continue
        queues_count += max(each.queues.read_queues, each.queues.write_queues)
        if queues_count > QUEUES_PER_ROUTE_MAX:
            logger.warning("route_cut topic=%r queues_max=%d", route.topic, QUEUES_PER_ROUTE_MAX)
            return
        yield found


def _checked_route_of(route: pb.BrokerRoute) -> BrokerRoute:
    """Convert and check a route.

    Raises:
        IllegalRegistration, IllegalMessage: a field is invalid.
    """
    # Checked before the copy, because the list may have any length.
    if len(route.nodes) > NODES_MAX:
        raise IllegalRegistration("nodes", f"at most {NODES_MAX}", str(len(route.nodes)))
    queues, nodes = _queues_of(route.queues), _nodes_of(route.nodes)
    registration = Registration(
        route.broker, route.cluster, route.term, route.sequence, route.leader_id, nodes, (queues,)
    )
    registration.check(is_leader_needed=False)
    return BrokerRoute(registration, queues)


def registered_broker(known: KnownBroker) -> pb.RegisteredBroker:
    """Return the row of one broker in a list of brokers."""
    registration = known.registration
    return pb.RegisteredBroker(
        broker=registration.broker,
        cluster=registration.cluster,
        term=registration.term,
        leader_id=registration.leader_id,
        nodes=_nodes(registration),
        topics_count=known.topics_count,
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


def _nodes(registration: Registration) -> list[pb.BrokerNode]:
    return [pb.BrokerNode(id=node.id, address=node.address) for node in registration.nodes]


def _nodes_of(nodes: Iterable[pb.BrokerNode]) -> tuple[BrokerNode, ...]:
    return tuple(BrokerNode(node.id, node.address) for node in nodes)


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
