"""Users, roles, tokens and keys of a broker, as part of broker state.

| command | done when | otherwise |
| --- | --- | --- |
| set user, role | limits are kept, its roles exist | TOO_MUCH_STATE, UNKNOWN_ROLE; `is_new`: USER_EXISTS, ROLE_EXISTS |
| delete user, role | it exists; no user has the role | UNKNOWN_USER, UNKNOWN_ROLE; ROLE_IN_USE |
| set, delete user | an administrator is left | LAST_ADMINISTRATOR |
| the four above | the command has the current access version, or none | ACCESS_CHANGED |
| add token | the user exists, no limit is exceeded, the id is new | UNKNOWN_USER, TOO_MUCH_STATE, TOKEN_EXISTS |
| delete token | it exists | UNKNOWN_USER, UNKNOWN_TOKEN |
| add access key | as a token; its name is new in the broker | UNKNOWN_USER, TOO_MUCH_STATE, ACCESS_KEY_EXISTS |
| delete access key | the user has it | UNKNOWN_ACCESS_KEY |
| set token key | always | |

Access control is on as soon as there is a user. From then on there is always an administrator: an enabled super user
with a password. So the first user is an administrator, and no command switches access control off or locks out all
users.

Every change increments the access version and replaces `rules`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, assert_never

from cluster.access.rules import AccessRules, SubjectRules
from cluster.access.users import TOKENS_PER_USER_MAX, AccessRole, ApiToken, User
from cluster.state.access_commands import (
    AccessCommand,
    AddAccessKey,
    AddApiToken,
    DeleteAccessKey,
    DeleteApiToken,
    DeleteRole,
    DeleteUser,
    SetRole,
    SetTokenKey,
    SetUser,
    read_role,
    read_settings,
    read_token,
    write_role,
    write_settings,
    write_token,
)
from cluster.state.access_keys import AccessKeys
from cluster.state.verdicts import CHANGED, UNCHANGED, Applied, CommandVerdict, too_much
from dledger.authentication.verifier import keyed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cluster.access.access_keys import AccessKey
    from cluster.access.model import Policy
    from cluster.access.rules import UserRules
    from cluster.access.users import UserSettings
    from cluster.state.compact_bytes import Reader, Writer
    from dledger.authentication.verifier import Verifier

USERS_MAX: Final = 10_000
ROLES_MAX: Final = 1_000
POLICIES_MAX: Final = 100_000
TOKENS_MAX: Final = 20_000
# The signing key, and the previous one.
TOKEN_KEYS_MAX: Final = 2


@dataclass(frozen=True, slots=True)
class AccessContent:
    """Access control in a snapshot, at one moment.

    Attributes:
        version: number of changes.
        token_keys: keys that sign session tokens, the newest first.
        salt_key: derives the salts of unknown users; empty before the first token key.
        roles: roles by name.
        users: users by name.
    """

    version: int
    token_keys: tuple[bytes, ...]
    salt_key: bytes
    roles: Mapping[str, AccessRole]
    users: Mapping[str, User]


class AccessState:
    """Access control of one replica.

    Attributes:
        rules: rules for decisions; a new object after each change.
        version: number of changes.
        token_keys: keys that sign session tokens, the newest first; empty until one is set.
        salt_key: secret that derives the salts of unknown users; it never changes after it was set.
        access_keys: of all users; another part of a snapshot. Changed only by commands.
    """

    def __init__(self) -> None:
        self.rules = AccessRules()
        self.version = 0
        self.token_keys: tuple[bytes, ...] = ()
        self.salt_key = b""
        self.access_keys = AccessKeys()
        self._users: dict[str, User] = {}
        self._roles: dict[str, AccessRole] = {}
        self._user_rules: dict[str, UserRules] = {}
        self._role_rules: dict[str, SubjectRules] = {}
        self._tokens: dict[bytes, tuple[str, ApiToken]] = {}
        self._policies_count = 0

    # ------------------------------------------------------------------------------------------------------ reading

    @property
    def users(self) -> Mapping[str, User]:
        """All users by name; a read-only view, valid until the next change."""
        return self._users

    @property
    def roles(self) -> Mapping[str, AccessRole]:
        """All roles by name; a read-only view, valid until the next change."""
        return self._roles

    def verifier_of(self, name: str) -> Verifier | None:
        """Return the verifier of a user's password; None: no such user, or it may not log in with a password."""
        user = self._users.get(name)
        return user.settings.verifier if user is not None and user.settings.is_enabled else None

    def has_epoch(self, name: str, epoch: int) -> bool:
        """Return whether a user's session that began at `epoch` is still valid."""
        user = self._users.get(name)
        return user is not None and user.settings.is_enabled and user.epoch == epoch

    def user_of_token(self, digest: bytes, now_s: int) -> str | None:
        """Return the user of an API token; None: there is none, it expired, or the user is disabled.

        Args:
            digest: SHA-256 of the token.
            now_s: seconds since 1970.
        """
        found = self._tokens.get(digest)
        if found is None:
            return None
        name, token = found
        is_valid = self._users[name].settings.is_enabled and (token.expires_s == 0 or now_s < token.expires_s)
        return name if is_valid else None

    def access_key_of(self, name: str) -> AccessKey | None:
        """Return an access key; None: there is none, or its user is disabled."""
        found = self.access_keys.by_name.get(name)
        user = None if found is None else self._users.get(found.user)
        return found if user is not None and user.settings.is_enabled else None

    def content(self) -> AccessContent:
        """Return the current content for a snapshot."""
        return AccessContent(self.version, self.token_keys, self.salt_key, dict(self._roles), dict(self._users))

    # ----------------------------------------------------------------------------------------------------- changing

    def apply(self, command: AccessCommand) -> Applied:
        """Apply one command that passed `check_access_command`."""
        match command:
            case SetUser():
                applied = self._set_user(command)
            case DeleteUser():
                applied = self._delete_user(command)
            case SetRole():
                applied = self._set_role(command)
            case DeleteRole():
                applied = self._delete_role(command)
            case AddApiToken(user, token):
                applied = self._add_token(user, token)
            case DeleteApiToken(user, token_id):
                applied = self._delete_token(user, token_id)
            case AddAccessKey(access_key):
                is_known = access_key.user in self._users
                applied = self.access_keys.add(access_key) if is_known else _unknown_user(access_key.user)
            case DeleteAccessKey(user, access_key_name):
                applied = self.access_keys.delete(user, access_key_name)
            case SetTokenKey(key):
                applied = self._set_key(key)
            case _:
                assert_never(command)
        if applied is CHANGED:
            self.version += 1
            self._renew_rules()
        return applied

    def _renew_rules(self) -> None:
        self.rules = AccessRules(dict(self._user_rules), dict(self._role_rules), self.version)

    def _set_user(self, command: SetUser) -> Applied:
        settings = command.settings
        known = self._users.get(settings.name)
        if known is not None and known.settings == settings:
            return UNCHANGED
        if known is not None and command.is_new:
            return Applied(CommandVerdict.USER_EXISTS, f"user {settings.name!r} exists, with other settings")
        more = len(settings.policies) - (0 if known is None else len(known.settings.policies))
        is_space = known is not None or len(self._users) < USERS_MAX
        no_space = self._no_space(more) if is_space else too_much("users", USERS_MAX)
        refused = self._refused(command) or no_space or self._fault_of(settings)
        if refused is not None:
            return refused
        self._put(User(settings, *self._kept_of(known, settings)))
        self._policies_count += more
        return CHANGED

    def _no_space(self, policies: int) -> Applied | None:
        return too_much("policies", POLICIES_MAX) if self._policies_count + policies > POLICIES_MAX else None

    def _fault_of(self, settings: UserSettings) -> Applied | None:
        """Return the refusal of settings with an unknown role, or that leave no administrator."""
        unknown = next((role for role in settings.roles if role not in self._roles), None)
        if unknown is not None:
            return _unknown_role(unknown)
        if not settings.is_administrator and not self._has_administrator_besides(settings.name):
            return _last_administrator(settings.name)
        return None

    def _kept_of(self, known: User | None, settings: UserSettings) -> tuple[int, tuple[ApiToken, ...]]:
        """Return the epoch and the tokens that a user keeps when its settings change."""
        if known is None:
            return self.version + 1, ()
        before = known.settings
        is_same_login = (before.verifier, before.is_enabled) == (settings.verifier, settings.is_enabled)
        return known.epoch if is_same_login else self.version + 1, known.tokens

    def _delete_user(self, command: DeleteUser) -> Applied:
        known = self._users.get(command.name)
        if known is None:
            return _unknown_user(command.name)
        if (refused := self._refused(command)) is not None:
            return refused
        if not self._has_administrator_besides(command.name):
            return _last_administrator(command.name)
        for token in known.tokens:
            del self._tokens[token.digest]
        self.access_keys.forget_user(command.name)
        self._policies_count -= len(known.settings.policies)
        del self._users[command.name], self._user_rules[command.name]
        return CHANGED

    def _set_role(self, command: SetRole) -> Applied:
        role = command.role
        known = self._roles.get(role.name)
        if known == role:
            return UNCHANGED
        if known is not None and command.is_new:
            return Applied(CommandVerdict.ROLE_EXISTS, f"role {role.name!r} exists, with other policies")
        more = len(role.policies) - (0 if known is None else len(known.policies))
        is_space = known is not None or len(self._roles) < ROLES_MAX
        no_space = self._no_space(more) if is_space else too_much("roles", ROLES_MAX)
        refused = self._refused(command) or no_space
        if refused is not None:
            return refused
        self._put_role(role)
        self._policies_count += more
        return CHANGED

    def _delete_role(self, command: DeleteRole) -> Applied:
        known = self._roles.get(command.name)
        if known is None:
            return _unknown_role(command.name)
        if (refused := self._refused(command)) is not None:
            return refused
        holder = next((name for name, user in self._users.items() if command.name in user.settings.roles), None)
        if holder is not None:
            text = f"role {command.name!r} is a role of user {holder!r}: take it from its users first"
            return Applied(CommandVerdict.ROLE_IN_USE, text)
        self._policies_count -= len(known.policies)
        del self._roles[command.name], self._role_rules[command.name]
        return CHANGED

    def _add_token(self, name: str, token: ApiToken) -> Applied:
        user = self._users.get(name)
        if user is None:
            return _unknown_user(name)
        if token in user.tokens:
            return UNCHANGED
        if token.digest in self._tokens or any(each.id == token.id for each in user.tokens):
            return Applied(CommandVerdict.TOKEN_EXISTS, f"user {name!r} has a token {token.id!r}: delete it first")
        if len(user.tokens) >= TOKENS_PER_USER_MAX:
            return too_much(f"tokens of user {name!r}", TOKENS_PER_USER_MAX)
        if len(self._tokens) >= TOKENS_MAX:
            return too_much("tokens", TOKENS_MAX)
        self._put(replace(user, tokens=tuple(sorted((*user.tokens, token), key=lambda each: each.id))))
        return CHANGED

    def _delete_token(self, name: str, token_id: str) -> Applied:
        user = self._users.get(name)
        if user is None:
            return _unknown_user(name)
        token = next((each for each in user.tokens if each.id == token_id), None)
        if token is None:
            return Applied(CommandVerdict.UNKNOWN_TOKEN, f"user {name!r} has no token {token_id!r}")
        del self._tokens[token.digest]
        self._put(replace(user, tokens=tuple(each for each in user.tokens if each is not token)))
        return CHANGED

    def _set_key(self, key: bytes) -> Applied:
        if self.token_keys[:1] == (key,):
            return UNCHANGED
        self.token_keys = (key, *self.token_keys)[:TOKEN_KEYS_MAX]
        self.salt_key = self.salt_key or keyed(key, b"dledger salts of unknown users")
        return CHANGED

    def _put(self, user: User) -> None:
        self._users[user.settings.name] = user
        self._user_rules[user.settings.name] = user.settings.compiled()
        for token in user.tokens:
            self._tokens[token.digest] = user.settings.name, token

    def _put_role(self, role: AccessRole) -> None:
        self._roles[role.name] = role
        self._role_rules[role.name] = SubjectRules(role.policies)

    def _refused(self, command: SetUser | DeleteUser | SetRole | DeleteRole) -> Applied | None:
        """Return the refusal of a command that is based on another version; None: it may be applied."""
        if command.version in (0, self.version):
            return None
        text = (
            f"users or roles have changed: expected access version {command.version}, found {self.version}; read again"
        )
        return Applied(CommandVerdict.ACCESS_CHANGED, text)

    def _has_administrator_besides(self, name: str) -> bool:
        return any(user.settings.is_administrator for key, user in self._users.items() if key != name)

    # ---------------------------------------------------------------------------------------------------- snapshots

    def loading(self, reader: Reader) -> Iterator[None]:
        """Load the output of `write_access` into a new state, in steps of a few milliseconds.

        Raises:
            cluster.state.compact_bytes.Unreadable: the bytes are invalid.
        """
        self.version = reader.number()
        self.token_keys = tuple(reader.raw() for _ in range(reader.count()))
        self.salt_key = reader.raw()
        for _ in range(reader.count()):
            role = read_role(reader)
            _check_sources(role.policies, reader)
            self._put_role(role)
            self._policies_count += len(role.policies)
            if reader.ends_piece():
                yield
        for _ in range(reader.count()):
            settings, epoch = read_settings(reader), reader.number()
            _check_sources(settings.policies, reader)
            self._put(User(settings, epoch, tuple(read_token(reader) for _ in range(reader.count()))))
            self._policies_count += len(settings.policies)
            if reader.ends_piece():
                yield
        self._renew_rules()


def _check_sources(policies: Iterable[Policy], reader: Reader) -> None:
    """Raise `Unreadable` unless the sources of policies are networks; commands are checked before they are proposed."""
    try:
        for policy in policies:
            policy.networks()
    except ValueError as error:
        raise reader.fault("networks as sources of policies", str(error)) from error


def write_access(writer: Writer, content: AccessContent) -> Iterator[None]:
    """Append the content in small steps; yield after each.

    Version, token keys (how many, each), salt key; roles (how many, each); users (how many; settings, epoch and tokens
    of each); roles and users in order of their names.
    """
    writer.number(content.version)
    writer.number(len(content.token_keys))
    for key in content.token_keys:
        writer.raw(key)
    writer.raw(content.salt_key)
    writer.number(len(content.roles))
    for _, role in sorted(content.roles.items()):
        write_role(writer, role)
        yield
    writer.number(len(content.users))
    for _, user in sorted(content.users.items()):
        write_settings(writer, user.settings)
        writer.number(user.epoch)
        writer.number(len(user.tokens))
        for token in user.tokens:
            write_token(writer, token)
        yield


def _unknown_user(name: str) -> Applied:
    return Applied(CommandVerdict.UNKNOWN_USER, f"there is no user {name!r}")


def _unknown_role(name: str) -> Applied:
    return Applied(CommandVerdict.UNKNOWN_ROLE, f"there is no role {name!r}")


def _last_administrator(name: str) -> Applied:
    text = f"user {name!r} is the last administrator (an enabled super user with a password)"
    return Applied(CommandVerdict.LAST_ADMINISTRATOR, text)
