"""The one table of what the audit log records of each RPC; `cluster.api.rights` has the rights of the same methods.

| what | is recorded |
| --- | --- |
| refusals by access control | always, of each method |
| ADMIN: changes of topics, groups, offsets by hand, users, roles, tokens, nodes | always; many are summarized |
| ADMIN_READ: lists of users and roles, explanations of rights | the same, in files with less protected records |
| ACCESS: messages, and offsets of groups | if the setting demands it |
| READ: lists of names, routes, status, health | never |
| BINDING: registrations with all topics of a broker: they bind its name to a node | as ADMIN, or as a refusal |
| LOGIN | always, by `cluster.api.login_calls`, which has the user's name |

A request is about the resources of its rights. Where super users need no right, the row says what it is about.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cluster.api import audit_details
from cluster.api.rights import RIGHTS, Audience
from cluster.audit.record import RESOURCES_PER_RECORD_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.api.rights import Scope


class Recorded(Enum):
    """What is recorded of calls that are admitted; see the table of the module."""

    ADMIN = "admin"
    ADMIN_READ = "admin_read"
    ACCESS = "access"
    READ = "read"
    BINDING = "binding"
    LOGIN = "login"


class AuditedMethod(NamedTuple):
    """A row of the table.

    Attributes:
        recorded: of calls that are admitted.
        about: returns what a request is about; None: the resources of its rights.
        detail: returns what a request sets; None: nothing beyond its resources. The text has printable ASCII, at most
            `TEXT_LENGTH_MAX` characters and no secret.
    """

    recorded: Recorded
    about: Callable[[Any], list[str]] | None = None
    detail: Callable[[Any], str] | None = None


def resources_of(path: str, request: Any, scope: Scope) -> tuple[str, ...]:
    """Return the resources of a request (`Topic:orders`, `User:alice`), at most one more than a record has.

    Args:
        path: of the method.
        request: within its bounds.
        scope: of the process.
    """
    row = AUDITED.get(path)
    if row is not None and row.about is not None:
        return tuple(row.about(request))
    rights = RIGHTS.get(path)
    needs = rights.needs(request, scope) if rights is not None and rights.audience is Audience.RIGHTS else None
    if needs is None:
        return (f"Cluster:{scope.cluster}",)
    found: dict[str, None] = {}
    for need in needs:
        found[f"{need.type.name.capitalize()}:{need.name}"] = None
        # A request may name thousands.
        if len(found) > RESOURCES_PER_RECORD_MAX:
            break
    return tuple(found)


def detail_of(path: str, request: Any) -> str:
    """Return a text of the settings in a request; empty: it has only the names of its resources.

    Args:
        path: of the method.
        request: within its bounds.
    """
    row = AUDITED.get(path)
    return "" if row is None or row.detail is None else row.detail(request)


def _token(request: Any) -> list[str]:
    return [f"User:{request.user}", f"Token:{request.id}"]


def _access_key(request: Any) -> list[str]:
    return [f"User:{request.user}", f"AccessKey:{request.id}"]


def _registration(request: Any) -> list[str]:
    return [f"Broker:{request.broker}", f"Node:{request.leader_id}"]


def _of_broker(request: Any) -> list[str]:
    return [f"Broker:{request.broker}"]


_READ: Final = AuditedMethod(Recorded.READ)
_ACCESS: Final = AuditedMethod(Recorded.ACCESS)
_ADMIN: Final = AuditedMethod(Recorded.ADMIN)
_LOGIN: Final = AuditedMethod(Recorded.LOGIN)
_USER_NAME: Final = AuditedMethod(Recorded.ADMIN, lambda request: [f"User:{request.name}"])
_ROLE_NAME: Final = AuditedMethod(Recorded.ADMIN, lambda request: [f"Role:{request.name}"])
_TOKEN: Final = AuditedMethod(Recorded.ADMIN, _token)
_ACCESS_KEY: Final = AuditedMethod(Recorded.ADMIN, _access_key)
_SET_USER: Final = AuditedMethod(Recorded.ADMIN, lambda request: [f"User:{request.user.name}"], audit_details.of_user)
_SET_ROLE: Final = AuditedMethod(Recorded.ADMIN, lambda request: [f"Role:{request.role.name}"], audit_details.of_role)
_MEMBER: Final = AuditedMethod(Recorded.ADMIN, lambda request: [f"Node:{request.id}"])

_ROWS: Final[dict[str, dict[str, AuditedMethod]]] = {
    "cluster.v1.BrokerService": {
        "Put": _ACCESS,
        "PutStream": _ACCESS,
        "Get": _ACCESS,
        "Subscribe": _ACCESS,
        "QueryByKey": _ACCESS,
        "QueryById": _ACCESS,
        "QueryByTime": _ACCESS,
        "Offsets": _READ,
        "DescribeLog": _READ,
        "PlanLog": _READ,
        "ReadLog": _ACCESS,
        "CommitOffset": _ACCESS,
        "FetchOffset": _READ,
        "ResetOffset": _ADMIN._replace(detail=audit_details.of_offsets),
        "JoinGroup": _ACCESS,
        "LockQueues": _READ,
        "UnlockQueues": _READ,
        "ReturnMessage": _ACCESS,
        "Receive": _ACCESS,
        "Acknowledge": _ACCESS,
        "ChangeInvisible": _ACCESS,
        "SetTopic": _ADMIN._replace(detail=audit_details.of_topic),
        "DeleteTopic": _ADMIN,
        "ListTopics": _READ,
        "SetGroup": _ADMIN._replace(detail=audit_details.of_group),
        "DeleteGroup": _ADMIN,
        "ListGroups": _READ,
        "Route": _READ,
        "Status": _READ,
        "DelayLevels": _READ,
        "SetDelayLevels": _ADMIN._replace(detail=audit_details.of_delay_levels),
        "RecallMessage": _ACCESS,
        "EndTransaction": _ACCESS,
        "EndTransactions": _ACCESS,
        "TransactionChecks": _ACCESS,
        "ListTransactions": _READ,
    },
    "cluster.v1.AccessService": {
        "StartLogin": _LOGIN,
        "FinishLogin": _LOGIN,
        "SetUser": _SET_USER,
        "DeleteUser": _USER_NAME,
        "ListUsers": _USER_NAME._replace(recorded=Recorded.ADMIN_READ),
        "SetRole": _SET_ROLE,
        "DeleteRole": _ROLE_NAME,
        "ListRoles": _ROLE_NAME._replace(recorded=Recorded.ADMIN_READ),
        "AddToken": _TOKEN._replace(detail=audit_details.of_token),
        "DeleteToken": _TOKEN,
        "RotateTokenKey": _ADMIN,
        "AddAccessKey": _ACCESS_KEY,
        "DeleteAccessKey": _ACCESS_KEY,
        "Explain": AuditedMethod(Recorded.ADMIN_READ, lambda request: [f"User:{request.user}", request.resource]),
    },
    "cluster.v1.NameServer": {
        "Register": AuditedMethod(Recorded.BINDING, _registration, audit_details.of_registration),
        "Heartbeat": _READ,
        "Unregister": AuditedMethod(Recorded.ADMIN, _of_broker, audit_details.of_removed_registration),
        "Route": _READ,
        "ListTopics": _READ,
        "ListBrokers": _READ,
        "SetWritable": AuditedMethod(Recorded.ADMIN, _of_broker, audit_details.of_writable),
    },
    "dledger.v1.LogService": {"Append": _ACCESS, "AppendStream": _ACCESS, "Read": _ACCESS, "Status": _READ},
    "dledger.v1.AdminService": {
        "ListMembers": _READ,
        "AddMember": _MEMBER._replace(detail=audit_details.of_new_member),
        "PromoteMember": _MEMBER,
        "RemoveMember": _MEMBER,
        "TransferLeadership": _MEMBER,
        "Watch": _READ,
    },
    "grpc.health.v1.Health": {"Check": _READ, "Watch": _READ, "List": _READ},
    "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": _READ},
}

# By the path of the method, as gRPC has it.
AUDITED: Final[dict[str, AuditedMethod]] = {
    f"/{service}/{method}": row for service, rows in _ROWS.items() for method, row in rows.items()
}
