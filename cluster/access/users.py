"""Users and roles as stored in broker state, and their bounds."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cluster.access.model import ROLES_PER_USER_MAX, IllegalAccessChange, check_policies, check_subject_name
from cluster.access.rules import SubjectRules, UserRules
from dledger.authentication.verifier import IllegalCredential

if TYPE_CHECKING:
    from cluster.access.model import Policy
    from dledger.authentication.verifier import Verifier

TOKENS_PER_USER_MAX: Final = 16
TOKEN_ID_LENGTH_MAX: Final = 64
DIGEST_SIZE: Final = 32
_TIME_MAX: Final = (1 << 63) - 1
_TOKEN_ID: Final = re.compile(rf"[A-Za-z0-9_.\-]{{1,{TOKEN_ID_LENGTH_MAX}}}")


@dataclass(frozen=True, slots=True)
class AccessRole:
    """A named set of policies for several users.

    Attributes:
        name: name of the role.
        policies: its policies, each once, in the order of `cluster.access.model.policy_order`.
    """

    name: str
    policies: tuple[Policy, ...] = ()

    def check(self) -> None:
        """Raise unless the role is valid.

        Raises:
            IllegalAccessChange: a field is invalid.
        """
        check_subject_name("role", self.name)
        check_policies(self.policies)


@dataclass(frozen=True, slots=True)
class UserSettings:
    """The settings of a user, as an administrator sets them.

    Attributes:
        name: name of the user.
        is_super: whether everything is allowed, whatever the policies deny.
        is_enabled: whether the user can log in; if not, its tokens are invalid, too.
        roles: names of roles, each once, in order.
        policies: the user's own, as in `AccessRole`.
        verifier: verifier of the password; None: the user has no password.
    """

    name: str
    is_super: bool = False
    is_enabled: bool = True
    roles: tuple[str, ...] = ()
    policies: tuple[Policy, ...] = ()
    verifier: Verifier | None = None

    @property
    def is_administrator(self) -> bool:
        """Whether the user can log in and do everything."""
        return self.is_super and self.is_enabled and self.verifier is not None

    def check(self) -> None:
        """Raise unless the settings are valid.

        Raises:
            IllegalAccessChange: a field is invalid.
        """
        check_subject_name("user", self.name)
        if len(self.roles) > ROLES_PER_USER_MAX:
            raise IllegalAccessChange("roles", f"at most {ROLES_PER_USER_MAX} of a user", str(len(self.roles)))
        for role in self.roles:
            check_subject_name("role", role)
        if list(self.roles) != sorted(set(self.roles)):
            raise IllegalAccessChange("roles", "each once, in order", " ".join(self.roles))
        check_policies(self.policies)
        if self.verifier is not None:
            try:
                self.verifier.check()
            except IllegalCredential as error:
                raise IllegalAccessChange("verifier", "one of SCRAM-SHA-256", str(error)) from error

    def compiled(self) -> UserRules:
        """Return the compiled rules of the user."""
        return UserRules(SubjectRules(self.policies), self.roles, self.is_super, self.is_enabled)


@dataclass(frozen=True, slots=True)
class ApiToken:
    """An API token, without its secret.

    Attributes:
        id: name of the token, unique for its user.
        digest: SHA-256 of the token (`dledger.authentication.tokens.digest_of_api_token`); left out of `repr`.
        expires_s: seconds since 1970; 0: never.
    """

    id: str
    digest: bytes = field(repr=False)
    expires_s: int = 0

    def check(self) -> None:
        """Raise unless the token is valid.

        Raises:
            IllegalAccessChange: a field is invalid.
        """
        if not _TOKEN_ID.fullmatch(self.id):
            expected = f"a name of 1 to {TOKEN_ID_LENGTH_MAX} letters, digits and _ . -"
            raise IllegalAccessChange("token", expected, repr(self.id[:80]))
        if len(self.digest) != DIGEST_SIZE:
            raise IllegalAccessChange("token", f"a digest of {DIGEST_SIZE} bytes", f"{len(self.digest)} bytes")
        if not 0 <= self.expires_s <= _TIME_MAX:
            raise IllegalAccessChange("token", "an expiry of 0 or more seconds since 1970", str(self.expires_s))


@dataclass(frozen=True, slots=True)
class User:
    """A user in broker state.

    Attributes:
        settings: the settings by an administrator.
        epoch: access version at which the user was created, or its password or `is_enabled` changed; a session with
            another epoch is invalid.
        tokens: the API tokens of the user, ordered by id.
    """

    settings: UserSettings
    epoch: int
    tokens: tuple[ApiToken, ...] = ()
