"""Names of topics and groups in requests of official clients, with the namespace in front of them.

A namespace is a prefix of the stored name, `namespace%name`, as RocketMQ has it; answers echo the resource of the
request, so that clients find their own form.

Source: RocketMQ `GrpcConverter.wrapResourceWithNamespace`, `NamespaceUtil`, `GrpcValidator`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cluster.access.model import Action, ResourceType
from cluster.api.rights import Need, topic_need
from cluster.grpc_v2.status_codes import CodedRefusal
from cluster.rocketmq_v2 import messaging_pb2 as mq
from store.model.topics import GROUP_LENGTH_MAX, TOPIC_LENGTH_MAX, is_closed_topic

if TYPE_CHECKING:
    from collections.abc import Iterable

    import grpc.aio

_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)
_CLIENT_ID: Final = "x-mq-client-id"
_CLIENT_ID_LENGTH_MAX: Final = 255
_SHOWN_LENGTH_MAX: Final = 80


def topic_name(topic: mq.Resource) -> str:
    """Return the stored name of a topic.

    Raises:
        CodedRefusal: ILLEGAL_TOPIC.
    """
    name = _stored(topic)
    if len(name) > TOPIC_LENGTH_MAX or not _NAME.fullmatch(name) or is_closed_topic(name):
        expected = f"1 to {TOPIC_LENGTH_MAX} letters, digits and % | _ -, and not a topic of the broker itself"
        raise CodedRefusal(mq.ILLEGAL_TOPIC, f"topic: expected {expected}, found {name[:_SHOWN_LENGTH_MAX]!r}")
    return name


def group_name(group: mq.Resource) -> str:
    """Return the stored name of a consumer group.

    Raises:
        CodedRefusal: ILLEGAL_CONSUMER_GROUP.
    """
    name = _stored(group)
    if len(name) > GROUP_LENGTH_MAX or not _NAME.fullmatch(name):
        expected = f"1 to {GROUP_LENGTH_MAX} letters, digits and % | _ -"
        raise CodedRefusal(mq.ILLEGAL_CONSUMER_GROUP, f"group: expected {expected}, found {name[:_SHOWN_LENGTH_MAX]!r}")
    return name


def check_client_id(context: grpc.aio.ServicerContext[object, object]) -> None:
    """Raise unless the client that calls sends its id.

    Raises:
        CodedRefusal: CLIENT_ID_REQUIRED: it sends none, or one that is too long.
    """
    if client_id(context):
        return
    text = f"header {_CLIENT_ID}: expected 1 to {_CLIENT_ID_LENGTH_MAX} characters"
    raise CodedRefusal(mq.CLIENT_ID_REQUIRED, text)


def client_id(context: grpc.aio.ServicerContext[object, object]) -> str:
    """Return the id of the client that calls; empty if it sends none, or one that is too long."""
    for name, value in context.invocation_metadata() or ():
        if name == _CLIENT_ID and isinstance(value, str) and 0 < len(value) <= _CLIENT_ID_LENGTH_MAX:
            return value
    return ""


def route_needs(request: mq.QueryRouteRequest) -> list[Need]:
    """Return the rights for a route.

    Raises:
        CodedRefusal: ILLEGAL_TOPIC.
    """
    return [topic_need(topic_name(request.topic), Action.PUB | Action.SUB | Action.GET)]


def producer_needs(topics: Iterable[mq.Resource]) -> list[Need]:
    """Return the rights to send to topics.

    Raises:
        CodedRefusal: ILLEGAL_TOPIC.
    """
    return [topic_need(topic_name(topic), Action.PUB) for topic in topics]


def group_needs(groups: Iterable[mq.Resource]) -> list[Need]:
    """Return the rights to be a consumer of groups.

    Raises:
        CodedRefusal: ILLEGAL_CONSUMER_GROUP.
    """
    return [Need(ResourceType.GROUP, group_name(group), Action.SUB) for group in groups]


def consumer_needs(group: mq.Resource, topics: Iterable[mq.Resource]) -> list[Need]:
    """Return the rights to consume topics as a group.

    Raises:
        CodedRefusal: ILLEGAL_TOPIC, ILLEGAL_CONSUMER_GROUP.
    """
    return [*group_needs([group]), *(topic_need(topic_name(topic), Action.SUB) for topic in topics)]


def _stored(resource: mq.Resource) -> str:
    namespace = resource.resource_namespace
    return f"{namespace}%{resource.name}" if namespace else resource.name
