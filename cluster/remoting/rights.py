"""The rights that each request needs, by its code, while the broker has users.

What a node answers itself is decided here, by the rules of its replica. What it forwards is decided by the leader once
more, in the name of the same user. A code without a row needs a super user.

| row | may send it |
| --- | --- |
| `_user` | every user: the request has nothing of others in it, or the leader decides by its content |
| `_on_cluster` | users with one of the actions on the cluster |
| `_on_topic`, `_on_group`, `_on_both` | users with one of the actions on the topic, the group, or both of a field |

Less obvious rows: 34 needs SUB on the consumer groups and the topics of the heartbeat; 33 and 309 read a record of any
topic by its place in the log, so both need a super user (no row).

Source: RocketMQ `DefaultAuthorizationContextBuilder`, and the annotations of its request headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.access.model import ResourceType
from cluster.api.rights import CREATE, DELETE, GET, LIST, PUB, SUB, UPDATE, Need, topic_need
from cluster.protocol.request_bounds import LOCK_QUEUES_MAX
from cluster.remoting.consumers.bodies import group_of, heartbeat_of, object_of, queues_of, text
from cluster.remoting.fields import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from cluster.remoting.command import Request

_NAME_LENGTH_MAX: Final = 255


def _on_cluster(actions: int) -> Callable[[Request, str], Iterable[Need]]:
    return lambda _, cluster: [Need(ResourceType.CLUSTER, cluster, actions)]


def _on_topic(field: str, actions: int) -> Callable[[Request, str], Iterable[Need]]:
    return lambda request, _: [topic_need(text_of(request.fields, field, _NAME_LENGTH_MAX), actions)]


def _on_group(field: str, actions: int) -> Callable[[Request, str], Iterable[Need]]:
    return lambda request, _: [Need(ResourceType.GROUP, text_of(request.fields, field, _NAME_LENGTH_MAX), actions)]


def _on_both(field: str, actions: int) -> Callable[[Request, str], Iterable[Need]]:
    """Rights on the group of a field, and on the topic of the field `topic`, if there is one."""

    def needs(request: Request, _: str) -> Iterator[Need]:
        yield Need(ResourceType.GROUP, text_of(request.fields, field, _NAME_LENGTH_MAX), actions)
        if request.fields.get("topic"):
            yield topic_need(text_of(request.fields, "topic", _NAME_LENGTH_MAX), actions)

    return needs


def _heartbeat(request: Request, _: str) -> Iterator[Need]:
    for consumer in heartbeat_of(request.body).consumers:
        yield Need(ResourceType.GROUP, consumer.group, SUB)
        yield from (topic_need(topic, SUB) for topic in consumer.subscriptions)


def _locks(request: Request, _: str) -> Iterator[Need]:
    given = object_of(request.body)
    yield Need(ResourceType.GROUP, group_of(given, "consumerGroup"), SUB)
    yield from (topic_need(queue["topic"], SUB) for queue in queues_of(given, LOCK_QUEUES_MAX))


def _assignment(request: Request, _: str) -> Iterator[Need]:
    given = object_of(request.body)
    yield Need(ResourceType.GROUP, group_of(given, "consumerGroup"), SUB)
    yield topic_need(text(given, "topic", _NAME_LENGTH_MAX), SUB)


def _unregistered(request: Request, _: str) -> Iterator[Need]:
    if request.fields.get("consumerGroup"):
        yield Need(ResourceType.GROUP, text_of(request.fields, "consumerGroup", _NAME_LENGTH_MAX), SUB)


def _user(_request: Request, _cluster: str) -> Iterable[Need]:
    return ()


_PULLED: Final = _on_both("consumerGroup", SUB)
_READ_TOPIC: Final = _on_topic("topic", SUB | GET)
_SEE_CLUSTER: Final = _on_cluster(GET)
_CHANGE_CLUSTER: Final = _on_cluster(UPDATE)
_LIST_CLUSTER: Final = _on_cluster(LIST)

RIGHTS: Final[Mapping[int, Callable[[Request, str], Iterable[Need]]]] = {
    # Producers. The leader decides about the end of a transaction, by the topic of its half message.
    10: _on_topic("topic", PUB),
    310: _on_topic("b", PUB),
    320: _on_topic("b", PUB),
    324: _on_topic("topic", PUB),
    325: _on_topic("b", PUB),
    370: _on_topic("topic", PUB),
    37: _user,
    # Consumers.
    11: _PULLED,
    361: _PULLED,
    14: _on_both("consumerGroup", SUB | GET),
    15: _PULLED,
    29: _READ_TOPIC,
    30: _READ_TOPIC,
    31: _READ_TOPIC,
    32: _READ_TOPIC,
    34: _heartbeat,
    35: _unregistered,
    36: _on_group("group", SUB),
    38: _on_group("consumerGroup", SUB | GET),
    41: _locks,
    42: _locks,
    46: _user,
    # Pop consumers. The topic of an acknowledgement may be named by its retry topic: the leader decides about it.
    200_050: _PULLED,
    200_051: _on_group("consumerGroup", SUB),
    200_052: _PULLED,
    200_053: _on_group("consumerGroup", SUB),
    200_054: _PULLED,
    200_055: _PULLED,
    200_151: _user,
    400: _assignment,
    401: _user,
    # Routes, and the lists of name servers.
    105: _on_topic("topic", PUB | SUB | GET),
    100: _CHANGE_CLUSTER,
    101: _SEE_CLUSTER,
    102: _CHANGE_CLUSTER,
    106: _SEE_CLUSTER,
    205: _CHANGE_CLUSTER,
    206: _LIST_CLUSTER,
    216: _on_topic("topic", DELETE),
    219: _SEE_CLUSTER,
    224: _LIST_CLUSTER,
    304: _LIST_CLUSTER,
    318: _CHANGE_CLUSTER,
    319: _SEE_CLUSTER,
    327: _CHANGE_CLUSTER,
    # Administrators. What changes topics and groups is decided by the leader, as CREATE or UPDATE.
    12: _READ_TOPIC,
    17: _on_topic("topic", CREATE | UPDATE),
    18: _user,
    21: _LIST_CLUSTER,
    26: _SEE_CLUSTER,
    28: _SEE_CLUSTER,
    200: _user,
    201: _LIST_CLUSTER,
    202: _READ_TOPIC,
    203: _on_group("consumerGroup", SUB | GET),
    204: _SEE_CLUSTER,
    207: _on_group("groupName", DELETE),
    208: _on_both("consumerGroup", SUB | GET),
    215: _on_topic("topic", DELETE),
    222: _on_group("group", UPDATE),
    225: _user,
    300: _READ_TOPIC,
    303: _on_both("group", SUB | GET),
    305: _LIST_CLUSTER,
    307: _on_group("consumerGroup", SUB | GET),
    315: _SEE_CLUSTER,
    317: _SEE_CLUSTER,
    321: _READ_TOPIC,
    328: _SEE_CLUSTER,
    343: _on_group("group", SUB | GET),
    345: _on_both("group", SUB | GET),
    351: _on_topic("topic", PUB | SUB | GET | LIST),
    352: _on_group("group", SUB | GET | LIST),
    907: _SEE_CLUSTER,
    2003: _SEE_CLUSTER,
}
