"""The bounds of all request fields of AccessService; `cluster.access.model` checks their meaning."""

from __future__ import annotations

from typing import Final

from dledger.authentication.scram import MESSAGE_LENGTH_MAX
from dledger.service.limits.field_bounds import ANY_NUMBER, FIELDS, Bound, Bounds, Many, Text
from dledger.service.limits.request_bounds import NAME

# Equal to the limits of `cluster.access.model`, which is in a higher layer.
_POLICIES_MAX: Final = 1_000
_SOURCES_MAX: Final = 256
_ROLES_MAX: Final = 16
# A name and its type.
_RESOURCE: Final = Text(272)
_ADDRESS: Final = Text(64)
_SCRAM: Final = Text(MESSAGE_LENGTH_MAX)
_POLICIES: Final = Many(_POLICIES_MAX, FIELDS, {"sources": _SOURCES_MAX})
_PAGE: Final[dict[str, Bound]] = {"name": NAME, "after": NAME}
_DELETION: Final[dict[str, Bound]] = {"name": NAME, "access_version": ANY_NUMBER}
_TOKEN: Final[dict[str, Bound]] = {"user": NAME, "id": NAME}

ACCESS_BOUNDS: Final[Bounds] = {
    "cluster.v1.StartLoginRequest": {"client_first": _SCRAM},
    "cluster.v1.FinishLoginRequest": {"client_final": _SCRAM},
    "cluster.v1.AccessPolicy": {
        "resource": _RESOURCE,
        "actions": ANY_NUMBER,
        "is_denied": ANY_NUMBER,
        "sources": Many(_SOURCES_MAX, _ADDRESS),
    },
    "cluster.v1.AccessUser": {
        "name": NAME,
        "is_super": ANY_NUMBER,
        "is_disabled": ANY_NUMBER,
        "roles": Many(_ROLES_MAX, NAME),
        "policies": _POLICIES,
    },
    "cluster.v1.AccessRole": {"name": NAME, "policies": _POLICIES},
    "cluster.v1.SetUserRequest": {
        "user": FIELDS,
        "verifier": Text(256),
        "is_password_removed": ANY_NUMBER,
        "is_new": ANY_NUMBER,
        "access_version": ANY_NUMBER,
    },
    "cluster.v1.DeleteUserRequest": _DELETION,
    "cluster.v1.ListUsersRequest": _PAGE,
    "cluster.v1.SetRoleRequest": {"role": FIELDS, "is_new": ANY_NUMBER, "access_version": ANY_NUMBER},
    "cluster.v1.DeleteRoleRequest": _DELETION,
    "cluster.v1.ListRolesRequest": _PAGE,
    "cluster.v1.AddTokenRequest": {**_TOKEN, "digest": Text(32), "expires_s": ANY_NUMBER},
    "cluster.v1.DeleteTokenRequest": _TOKEN,
    "cluster.v1.RotateTokenKeyRequest": {},
    "cluster.v1.AddAccessKeyRequest": {**_TOKEN, "secret": Text(128)},
    "cluster.v1.DeleteAccessKeyRequest": _TOKEN,
    "cluster.v1.ExplainRequest": {"user": NAME, "resource": _RESOURCE, "actions": ANY_NUMBER, "address": _ADDRESS},
}
