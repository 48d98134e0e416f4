"""QueryRoute, QueryAssignment: the queues of a topic, at the address that the client used.

Every node accepts everything, so a route has one broker, and its address is the one by which the client reached this
node: it stays right with port forwarding, with TLS and without, and when the leader changes.

| consumers | queues in an assignment |
| --- | --- |
| of a group that gets messages in order | each, for every consumer |
| of another group | one with the number -1: any of them |

Source: RocketMQ `RouteActivity`, `ReceiveMessageQueueSelector`; a queue's number is only a wish there, too.
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from cluster.grpc_v2.names import group_name, topic_name
from cluster.grpc_v2.status_codes import CodedRefusal, ok
from cluster.grpc_v2.topics import accepted_types
from cluster.rocketmq_v2 import messaging_pb2 as mq

if TYPE_CHECKING:
    from cluster.grpc_v2.topics import KnownTopics
    from cluster.protocol.topic_config import TopicConfig
    from dledger.config import Address

# A request of 16 KB for a topic of 65,536 queues would have an answer of a gigabyte. One address has some 30 bytes.
ENDPOINTS_BYTES_MAX: Final = 4 << 20
_ANY_QUEUE = -1
_QUEUES_PER_TURN = 512


class Routes:
    """The calls about queues.

    Args:
        topics: of the broker.
        broker: its name.
        address: of the front, for clients that do not say how they reached it.
    """

    def __init__(self, topics: KnownTopics, broker: str, address: Address) -> None:
        self._topics = topics
        self._broker = broker
        self._address = address

    async def route(self, request: mq.QueryRouteRequest, limit_s: float) -> mq.QueryRouteResponse:
        """Return all queues of a topic.

        Raises:
            CodedRefusal, RequestFailed: ILLEGAL_TOPIC, ILLEGAL_ACCESS_POINT, TOPIC_NOT_FOUND; or no leader answers.
        """
        topic = await self._topics.topic(topic_name(request.topic), limit_s)
        count = max(topic.read_queues, topic.write_queues)
        endpoints = self._endpoints(request.endpoints, count)
        response = mq.QueryRouteResponse(status=ok())
        for queue_id in range(count):
            await _pause(queue_id)
            self._fill(response.message_queues.add(), request.topic, topic, queue_id, endpoints)
        return response

    async def assignment(self, request: mq.QueryAssignmentRequest, limit_s: float) -> mq.QueryAssignmentResponse:
        """Return the queues that a push consumer asks for messages.

        Raises:
            CodedRefusal, RequestFailed: as `route`; or ILLEGAL_CONSUMER_GROUP; FORBIDDEN: it cannot be read.
        """
        group = group_name(request.group)
        topic = await self._topics.topic(topic_name(request.topic), limit_s)
        if not topic.is_readable or not topic.read_queues:
            raise CodedRefusal(mq.FORBIDDEN, f"topic {topic.name!r} is not readable")
        queue_ids = range(topic.read_queues) if self._topics.is_orderly(group) else (_ANY_QUEUE,)
        endpoints = self._endpoints(request.endpoints, len(queue_ids))
        response = mq.QueryAssignmentResponse(status=ok())
        for queue_id in queue_ids:
            await _pause(queue_id)
            self._fill(response.assignments.add().message_queue, request.topic, topic, queue_id, endpoints)
        return response

    def _fill(
        self, queue: mq.MessageQueue, name: mq.Resource, topic: TopicConfig, queue_id: int, endpoints: mq.Endpoints
    ) -> None:
        is_readable = topic.is_readable and queue_id < topic.read_queues
        is_writable = topic.is_writable and queue_id < topic.write_queues
        queue.topic.CopyFrom(name)
        queue.id = queue_id
        queue.permission = (
            mq.READ_WRITE
            if is_readable and is_writable
            else mq.READ
            if is_readable
            else mq.WRITE
            if is_writable
            else mq.NONE
        )
        queue.broker.name = self._broker
        queue.broker.endpoints.CopyFrom(endpoints)
        queue.accept_message_types.extend(accepted_types(topic))

    def _endpoints(self, given: mq.Endpoints, count: int) -> mq.Endpoints:
        """Return the endpoints for clients, as each of `count` queues has them: those that they used.

        Raises:
            CodedRefusal: ILLEGAL_ACCESS_POINT: they have addresses and no scheme, or are too large for the route.
        """
        if not given.addresses:
            own = self._address
            return mq.Endpoints(
                scheme=_scheme_of(own.host), addresses=[mq.Address(host=own.host.strip("[]"), port=own.port)]
            )
        if given.scheme == mq.ADDRESS_SCHEME_UNSPECIFIED:
            raise CodedRefusal(mq.ILLEGAL_ACCESS_POINT, "endpoints: expected a scheme, found none")
        if given.ByteSize() * count > ENDPOINTS_BYTES_MAX:
            text = f"endpoints: expected at most {ENDPOINTS_BYTES_MAX} bytes in all {count} queues, found more"
            raise CodedRefusal(mq.ILLEGAL_ACCESS_POINT, text)
        return given


async def _pause(number: int) -> None:
    """Let other calls run: a topic may have 65,536 queues."""
    if number % _QUEUES_PER_TURN == _QUEUES_PER_TURN - 1:
        await asyncio.sleep(0)


def _scheme_of(host: str) -> mq.AddressScheme.ValueType:
    try:
        return mq.IPv4 if ip_address(host.strip("[]")).version == 4 else mq.IPv6
    except ValueError:
        return mq.DOMAIN_NAME
