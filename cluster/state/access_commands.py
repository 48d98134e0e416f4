"""Commands that change users, roles and tokens, and their encoding; see `cluster.state.commands`.

Commands that are based on a read contain the access version that was read. They are refused if the state has another
version, so that no administrator overwrites the change of another one. 0: any version.

| field | encoding (`cluster.state.compact_bytes`) |
| --- | --- |
| policies | how many; type, pattern, name, actions, 1 for allow, how many sources, each source |
| role | name, policies |
| settings of a user | name, 1 for super, 1 for enabled, how many roles, each role, policies, verifier |
| verifier | rounds; if they are not 0: salt, stored key, server key |
| token | id, digest, expiry |
| access key | `cluster.state.access_keys` |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cluster.access.model import ALL_ACTIONS, Action, IllegalAccessChange, Pattern, Policy, Resource, ResourceType
from cluster.access.users import AccessRole, ApiToken, UserSettings
from cluster.state.access_keys import read_access_key, write_access_key
from dledger.authentication.tokens import KEY_SIZE
from dledger.authentication.verifier import Verifier

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cluster.access.access_keys import AccessKey
    from cluster.state.compact_bytes import Reader, Writer

_ANY_VERSION: Final = 0
_VERSION_END: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class SetUser:
    """Create a user or change it; with `is_new`, only create it. Tokens of the user are kept."""

    settings: UserSettings
    is_new: bool = False
    version: int = _ANY_VERSION


@dataclass(frozen=True, slots=True)
class DeleteUser:
    """Delete a user and its tokens."""

    name: str
    version: int = _ANY_VERSION


@dataclass(frozen=True, slots=True)
class SetRole:
    """Create a role or change it; with `is_new`, only create it."""

    role: AccessRole
    is_new: bool = False
    version: int = _ANY_VERSION


@dataclass(frozen=True, slots=True)
class DeleteRole:
    """Delete a role that no user has."""

    name: str
    version: int = _ANY_VERSION


@dataclass(frozen=True, slots=True)
class AddApiToken:
    """Add an API token of a user."""

    user: str
    token: ApiToken


@dataclass(frozen=True, slots=True)
class DeleteApiToken:
    """Delete a token, which becomes invalid immediately."""

    user: str
    token_id: str


@dataclass(frozen=True, slots=True)
class SetTokenKey:
    """Sign new session tokens with this key; tokens of the previous key remain valid, older ones do not."""

    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class AddAccessKey:
    """Add an access key of a user."""

    key: AccessKey


@dataclass(frozen=True, slots=True)
class DeleteAccessKey:
    """Delete an access key of a user, which becomes invalid immediately."""

    user: str
    name: str


AccessCommand = (
    SetUser
    | DeleteUser
    | SetRole
    | DeleteRole
    | AddApiToken
    | DeleteApiToken
    | SetTokenKey
    | AddAccessKey
    | DeleteAccessKey
)


def check_access_command(command: AccessCommand) -> None:
    """Raise unless the command is valid.

    Raises:
        store.errors.IllegalMessage: a field is invalid.
    """
    match command:
        case SetUser(settings):
            settings.check()
        case SetRole(role):
            role.check()
        case DeleteUser(name) | DeleteRole(name):
            _check_short("name", name)
        case AddApiToken(user, token):
            _check_short("user", user)
            token.check()
        case DeleteApiToken(user, token_id):
            _check_short("user", user)
            _check_short("token", token_id)
        case AddAccessKey(access_key):
            _check_short("user", access_key.user)
            access_key.check()
        case DeleteAccessKey(user, access_key_name):
            _check_short("user", user)
            _check_short("access key", access_key_name)
        case SetTokenKey(key):
            if len(key) != KEY_SIZE:
                raise IllegalAccessChange("token key", f"{KEY_SIZE} bytes", f"{len(key)} bytes")
    if not 0 <= getattr(command, "version", _ANY_VERSION) < _VERSION_END:
        raise IllegalAccessChange("access version", "0 to 2^63 - 1", "another number")


def _check_short(what: str, name: str) -> None:
    # Not the full check of names: whatever was once created can be deleted.
    if not 1 <= len(name) <= 255:
        raise IllegalAccessChange(what, "1 to 255 characters", str(len(name)))


# -------------------------------------------------------------------------------------------------------------- bytes


def write_policies(writer: Writer, policies: Sequence[Policy]) -> None:
    """Append policies."""
    writer.number(len(policies))
    for policy in policies:
        writer.number(policy.resource.type)
        writer.number(policy.resource.pattern)
        writer.text(policy.resource.name)
        writer.number(policy.actions)
        writer.number(policy.is_allowed)
        writer.number(len(policy.sources))
        for source in policy.sources:
            writer.text(source)


def read_policies(reader: Reader) -> tuple[Policy, ...]:
    """Read policies.

    Raises:
        cluster.state.compact_bytes.Unreadable: there are none, or they have kinds that this version does not know.
    """
    return tuple(_read_policy(reader) for _ in range(reader.count()))


def _read_policy(reader: Reader) -> Policy:
    resource_type = ResourceType(reader.number_up_to(max(ResourceType), "a type of resources", 1))
    pattern = Pattern(reader.number_up_to(max(Pattern), "a pattern", 1))
    name = reader.text()
    # Unknown actions are refused: nodes of different versions would decide differently.
    actions = Action(reader.number_up_to(int(ALL_ACTIONS), "actions"))
    is_allowed = bool(reader.number())
    sources = tuple(reader.text() for _ in range(reader.count()))
    return Policy(Resource(resource_type, pattern, name), actions, is_allowed, sources)


def write_role(writer: Writer, role: AccessRole) -> None:
    """Append a role."""
    writer.text(role.name)
    write_policies(writer, role.policies)


def read_role(reader: Reader) -> AccessRole:
    """Read a role."""
    return AccessRole(reader.text(), read_policies(reader))


def write_settings(writer: Writer, settings: UserSettings) -> None:
    """Append the settings of a user."""
    writer.text(settings.name)
    writer.number(settings.is_super)
    writer.number(settings.is_enabled)
    writer.number(len(settings.roles))
    for role in settings.roles:
        writer.text(role)
    write_policies(writer, settings.policies)
    verifier = settings.verifier
    writer.number(0 if verifier is None else verifier.rounds)
    if verifier is not None:
        for part in (verifier.salt, verifier.stored_key, verifier.server_key):
            writer.raw(part)


def read_settings(reader: Reader) -> UserSettings:
    """Read the settings of a user."""
    name, is_super, is_enabled = reader.text(), bool(reader.number()), bool(reader.number())
    roles = tuple(reader.text() for _ in range(reader.count()))
    policies = read_policies(reader)
    rounds = reader.number()
    verifier = Verifier(reader.raw(), rounds, reader.raw(), reader.raw()) if rounds else None
    return UserSettings(name, is_super, is_enabled, roles, policies, verifier)


def write_token(writer: Writer, token: ApiToken) -> None:
    """Append a token."""
    writer.text(token.id)
    writer.raw(token.digest)
    writer.number(token.expires_s)


def read_token(reader: Reader) -> ApiToken:
    """Read a token."""
    return ApiToken(reader.text(), reader.raw(), reader.number())


def _write_set_user(writer: Writer, command: SetUser) -> None:
    writer.number(command.is_new)
    writer.number(command.version)
    write_settings(writer, command.settings)


def _read_set_user(reader: Reader) -> SetUser:
    is_new, version = bool(reader.number()), reader.number()
    return SetUser(read_settings(reader), is_new, version)


def _write_set_role(writer: Writer, command: SetRole) -> None:
    writer.number(command.is_new)
    writer.number(command.version)
    write_role(writer, command.role)


def _read_set_role(reader: Reader) -> SetRole:
    is_new, version = bool(reader.number()), reader.number()
    return SetRole(read_role(reader), is_new, version)


def _write_deletion(writer: Writer, command: DeleteUser | DeleteRole) -> None:
    writer.number(command.version)
    writer.text(command.name)


def _write_add_token(writer: Writer, command: AddApiToken) -> None:
    writer.text(command.user)
    write_token(writer, command.token)


def _write_delete_token(writer: Writer, command: DeleteApiToken) -> None:
    writer.text(command.user)
    writer.text(command.token_id)


def _write_delete_access_key(writer: Writer, command: DeleteAccessKey) -> None:
    writer.text(command.user)
    writer.text(command.name)


def _read_delete_user(reader: Reader) -> DeleteUser:
    version = reader.number()
    return DeleteUser(reader.text(), version)


def _read_delete_role(reader: Reader) -> DeleteRole:
    version = reader.number()
    return DeleteRole(reader.text(), version)


ACCESS_WRITERS: Final[dict[type[Any], tuple[int, Callable[[Writer, Any], None]]]] = {
    SetUser: (9, _write_set_user),
    DeleteUser: (10, _write_deletion),
    SetRole: (11, _write_set_role),
    DeleteRole: (12, _write_deletion),
    AddApiToken: (13, _write_add_token),
    DeleteApiToken: (14, _write_delete_token),
    SetTokenKey: (15, lambda writer, command: writer.raw(command.key)),
    AddAccessKey: (30, lambda writer, command: write_access_key(writer, command.key)),
    DeleteAccessKey: (31, _write_delete_access_key),
}
ACCESS_READERS: Final[dict[int, Callable[[Reader], AccessCommand]]] = {
    9: _read_set_user,
    10: _read_delete_user,
    11: _read_set_role,
    12: _read_delete_role,
    13: lambda reader: AddApiToken(reader.text(), read_token(reader)),
    14: lambda reader: DeleteApiToken(reader.text(), reader.text()),
    15: lambda reader: SetTokenKey(reader.raw()),
    30: lambda reader: AddAccessKey(read_access_key(reader)),
    31: lambda reader: DeleteAccessKey(reader.text(), reader.text()),
}
