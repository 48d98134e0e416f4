"""The table of the rights that each RPC needs: of brokers, name servers, the raw log, administration, health.

| audience | may call a method |
| --- | --- |
| PUBLIC | everyone, also unauthenticated clients |
| USER | every authenticated user |
| RIGHTS | users with all rights of the request: at least one action of each `Need` |
| NODE | nodes of brokers, by their certificate; and super users |
| SUPER | super users |

A method without a row cannot be called while access control is on; a test checks that every method of every service has
a row. The functions read protobuf requests whose bounds have been checked.

Less obvious rules:

- A topic `%RETRY%g` belongs to the group `g`: its consumers write and read it, so both need SUB on the group.
- In a broker's log, raw entries and byte ranges contain the commands of access control with verifiers and token keys:
  only super users may read them. A new member of the group receives them, too. A log of raw entries has a table of its
  own, `RIGHTS_OF_ENTRIES`.
- A message id does not identify the topic, so only super users may query by it; others use topic and UNIQ_KEY.

Source: RocketMQ's `DefaultAuthorizationContextBuilder`, and the annotations of its request headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cluster.access.model import Action, ResourceType
from store.model.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cluster.access.model import Address
    from cluster.access.rules import AccessRules


class Audience(IntEnum):
    """The callers of a method; see the table of the module."""

    PUBLIC = 0
    USER = 1
    RIGHTS = 2
    NODE = 3
    SUPER = 4


class Need(NamedTuple):
    """One right that a request needs.

    Attributes:
        type: type of the resource.
        name: name of the resource.
        actions: bit mask of `Action`, as a plain number; one of the actions is enough.
    """

    type: ResourceType
    name: str
    actions: int

    def __str__(self) -> str:
        actions = " or ".join(str(each.name).capitalize() for each in Action(self.actions))
        return f"{actions} on {self.type.name.capitalize()}:{self.name}"


@dataclass(frozen=True, slots=True)
class Scope:
    """The context of the process in which requests are checked.

    Attributes:
        cluster: name of the resource of the type CLUSTER.
        has_topic: returns whether a topic exists, which makes a request to set it an update.
        has_group: the same for groups.
    """

    cluster: str
    has_topic: Callable[[str], bool] = lambda _: False
    has_group: Callable[[str], bool] = lambda _: False


@dataclass(frozen=True, slots=True)
class MethodRights:
    """A row of the table.

    Attributes:
        audience: the permitted callers.
        needs: with `Audience.RIGHTS`: returns the rights that a request needs; None: only super users may send it.
            In a stream every request is checked.
    """

    audience: Audience
    needs: Callable[[Any, Scope], Iterable[Need] | None] = lambda _request, _scope: ()

    def lacking(
        self, user: str, request: Any, scope: Scope, rules: AccessRules, address: Address | None
    ) -> Need | str | None:
        """Return the right, or other property, that an authenticated user lacks for a request; None: none.

        Args:
            user: name of the user.
            request: request of the method.
            scope: context of the process.
            rules: the current rules.
            address: address of the client; None: unknown.
        """
        if self.audience <= Audience.USER or rules.is_super(user):
            return None
        needs = self.needs(request, scope) if self.audience is Audience.RIGHTS else None
        if needs is None:
            return "a certificate of a node" if self.audience is Audience.NODE else "the rights of a super user"
        # All queues of one topic have the same need.
        for need in dict.fromkeys(needs):
            if not rules.allows(user, *need, address):
                return need
        return None


# --------------------------------------------------------------------------------------------- from requests to needs

PUB: Final = int(Action.PUB)
SUB: Final = int(Action.SUB)
CREATE: Final = int(Action.CREATE)
UPDATE: Final = int(Action.UPDATE)
DELETE: Final = int(Action.DELETE)
GET: Final = int(Action.GET)
LIST: Final = int(Action.LIST)


def topic_need(name: str, actions: int) -> Need:
    """Return the need of actions on a topic; for a retry topic, on its group."""
    if not name.startswith(RETRY_PREFIX):
        return Need(ResourceType.TOPIC, name, actions)
    # Consumers put messages that they failed to process, and read them again.
    of_consumers = actions & ~PUB | SUB if actions & PUB else actions
    return Need(ResourceType.GROUP, name.removeprefix(RETRY_PREFIX), of_consumers)


def _group(name: str, actions: int) -> Need:
    return Need(ResourceType.GROUP, name, actions)


def _on_cluster(actions: int) -> MethodRights:
    return MethodRights(Audience.RIGHTS, lambda _, scope: [Need(ResourceType.CLUSTER, scope.cluster, actions)])


def _on_topic(actions: int) -> MethodRights:
    return MethodRights(Audience.RIGHTS, lambda request, _: [topic_need(request.topic, actions)])


def _put(request: Any, _: Scope) -> list[Need]:
    return [topic_need(request.topic, PUB)]


def _transaction_checks(request: Any, _: Scope) -> list[Need] | None:
    # The questions have the half messages of these topics.
    return [topic_need(topic, PUB) for topic in request.topics] or None


def _read(request: Any, _: Scope) -> Iterator[Need]:
    yield topic_need(request.topic, SUB)
    # A reader with a group counts as its consumer in statistics and lag.
    if request.group:
        yield _group(request.group, SUB)


def _query_by_id(request: Any, _: Scope) -> list[Need] | None:
    # An id is an address in the log: by it a user would read any topic.
    return [topic_need(request.topic, SUB | GET)] if request.WhichOneof("id") == "unique_key" else None


def _describe_log(request: Any, scope: Scope) -> Iterator[Need]:
    # The answer has the names of all topics.
    yield Need(ResourceType.CLUSTER, scope.cluster, LIST)
    for topic in request.topics:
        yield topic_need(topic, SUB | GET)


def _plan_log(request: Any, _: Scope) -> Iterator[Need]:
    return (topic_need(span.topic, SUB) for span in request.spans)


def _read_log(request: Any, _: Scope) -> list[Need] | None:
    return [topic_need(request.topic, SUB)] if request.topic else None


def _offset_of_group(actions: int) -> MethodRights:
    def needs(request: Any, _: Scope) -> Iterator[Need]:
        yield _group(request.group, actions)
        if request.topic:
            yield topic_need(request.topic, actions)

    return MethodRights(Audience.RIGHTS, needs)


def _reset_offset(request: Any, _: Scope) -> list[Need]:
    return [_group(request.group, UPDATE), topic_need(request.topic, SUB | GET | UPDATE)]


def _join_group(request: Any, _: Scope) -> Iterator[Need]:
    yield _group(request.group, SUB)
    for subscription in request.subscriptions:
        yield topic_need(subscription.topic, SUB)


def _lock_queues(request: Any, _: Scope) -> Iterator[Need]:
    yield _group(request.group, SUB)
    for queue in request.queues:
        yield topic_need(queue.topic, SUB)


def _return_message(request: Any, _: Scope) -> list[Need]:
    # The topic, too: the copy is readable for consumers of the group.
    return [_group(request.group, SUB), topic_need(request.topic, SUB)]


def _set_topic(request: Any, scope: Scope) -> list[Need]:
    name = request.topic.name
    return [topic_need(name, UPDATE if scope.has_topic(name) and not request.is_new else CREATE)]


def _set_group(request: Any, scope: Scope) -> list[Need]:
    name = request.group.name
    return [_group(name, UPDATE if scope.has_group(name) and not request.is_new else CREATE)]


def _list_topics(request: Any, scope: Scope) -> list[Need]:
    if request.topic:
        return [topic_need(request.topic, PUB | SUB | GET | LIST)]
    return [Need(ResourceType.CLUSTER, scope.cluster, LIST)]


def _list_groups(request: Any, scope: Scope) -> list[Need]:
    if request.group:
        return [_group(request.group, SUB | GET | LIST)]
    return [Need(ResourceType.CLUSTER, scope.cluster, LIST)]


def _route(request: Any, _: Scope) -> Iterator[Need]:
    return (topic_need(topic, PUB | SUB | GET) for topic in request.topics)


# --------------------------------------------------------------------------------------------------------------- table


def _rights(needs: Callable[[Any, Scope], Iterable[Need] | None]) -> MethodRights:
    return MethodRights(Audience.RIGHTS, needs)


_PUBLIC: Final = MethodRights(Audience.PUBLIC)
_USER: Final = MethodRights(Audience.USER)
_NODE: Final = MethodRights(Audience.NODE)
_SUPER: Final = MethodRights(Audience.SUPER)

_BROKER: Final = {
    "Put": _rights(_put),
    "PutStream": _rights(_put),
    "Get": _rights(_read),
    "Subscribe": _rights(_read),
    "QueryByKey": _on_topic(SUB | GET),
    "QueryById": _rights(_query_by_id),
    "QueryByTime": _on_topic(SUB | GET),
    "Offsets": _on_topic(SUB | GET),
    "DescribeLog": _rights(_describe_log),
    "PlanLog": _rights(_plan_log),
    "ReadLog": _rights(_read_log),
    "CommitOffset": _offset_of_group(SUB),
    "FetchOffset": _offset_of_group(SUB | GET),
    "ResetOffset": _rights(_reset_offset),
    "JoinGroup": _rights(_join_group),
    "LockQueues": _rights(_lock_queues),
    "UnlockQueues": _rights(_lock_queues),
    "ReturnMessage": _rights(_return_message),
    "Receive": _offset_of_group(SUB),
    "Acknowledge": _offset_of_group(SUB),
    "ChangeInvisible": _offset_of_group(SUB),
    "SetTopic": _rights(_set_topic),
    "DeleteTopic": _on_topic(DELETE),
    "ListTopics": _rights(_list_topics),
    "SetGroup": _rights(_set_group),
    "DeleteGroup": _rights(lambda request, _: [_group(request.group, DELETE)]),
    "ListGroups": _rights(_list_groups),
    "Route": _rights(_route),
    "Status": _on_cluster(GET),
    "DelayLevels": _on_cluster(GET),
    "SetDelayLevels": _on_cluster(UPDATE),
    "RecallMessage": _on_topic(PUB),
    "EndTransaction": _rights(_put),
    "EndTransactions": _rights(_put),
    "TransactionChecks": _rights(_transaction_checks),
    "ListTransactions": _on_cluster(GET),
}
_NAME_SERVER: Final = {
    "Register": _NODE,
    "Heartbeat": _NODE,
    "Unregister": _NODE,
    "Route": _rights(_route),
    "ListTopics": _on_cluster(LIST),
    "ListBrokers": _on_cluster(GET),
    "SetWritable": _on_cluster(UPDATE),
}
_LOG: Final = {"Append": _SUPER, "AppendStream": _SUPER, "Read": _SUPER, "Status": _on_cluster(GET)}
_ADMIN: Final = {
    "ListMembers": _on_cluster(GET),
    "AddMember": _SUPER,
    "PromoteMember": _on_cluster(UPDATE),
    "RemoveMember": _on_cluster(UPDATE),
    "TransferLeadership": _on_cluster(UPDATE),
    "Watch": _on_cluster(GET),
}
_ACCESS: Final = {
    "StartLogin": _PUBLIC,
    "FinishLogin": _PUBLIC,
    "SetUser": _SUPER,
    "DeleteUser": _SUPER,
    "ListUsers": _SUPER,
    "SetRole": _SUPER,
    "DeleteRole": _SUPER,
    "ListRoles": _SUPER,
    "AddToken": _SUPER,
    "DeleteToken": _SUPER,
    "RotateTokenKey": _SUPER,
    "AddAccessKey": _SUPER,
    "DeleteAccessKey": _SUPER,
    "Explain": _SUPER,
}
# Load balancers and orchestrators have no credentials; the answer is a single status.
_HEALTH: Final = {"Check": _PUBLIC, "Watch": _PUBLIC, "List": _PUBLIC}

# By the path of the method in gRPC.
RIGHTS: Final[dict[str, MethodRights]] = {
    f"/{service}/{method}": row
    for service, rows in {
        "cluster.v1.BrokerService": _BROKER,
        "cluster.v1.AccessService": _ACCESS,
        "cluster.v1.NameServer": _NAME_SERVER,
        "dledger.v1.LogService": _LOG,
        "dledger.v1.AdminService": _ADMIN,
        "grpc.health.v1.Health": _HEALTH,
        "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": _USER},
    }.items()
    for method, row in rows.items()
}

# Of a log of raw entries, which has no commands of access control in it: readers and writers need no more than the log.
RIGHTS_OF_ENTRIES: Final[dict[str, MethodRights]] = RIGHTS | {
    "/dledger.v1.LogService/Append": _on_cluster(PUB),
    "/dledger.v1.LogService/AppendStream": _on_cluster(PUB),
    "/dledger.v1.LogService/Read": _on_cluster(SUB),
}
