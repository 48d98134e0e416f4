"""The settings of the users that may use a log of raw entries, by their certificates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dledger.security.errors import NoIdentity
from dledger.security.identity import CertificateIdentity, IdentityKind

if TYPE_CHECKING:
    from collections.abc import Collection

NO_USER: Final = "none"
EVERY_USER: Final = "all"
# A longer list would be looked up as fast, but is better kept as one identity for each program.
USERS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Users:
    """Users of certificates.

    Attributes:
        has_all: all users whose certificate names the group of the log.
        named: these, of any group.
    """

    has_all: bool = False
    named: Collection[CertificateIdentity] = frozenset()

    def has(self, identity: CertificateIdentity, group: str) -> bool:
        """Return whether an identity is one of them, for the log of `group`."""
        return identity in self.named or (
            self.has_all and identity.kind is IdentityKind.USER and identity.group == group
        )


@dataclass(frozen=True, slots=True)
class LogCallers:
    """The callers of a log of raw entries, with mutual TLS.

    Attributes:
        administrators: may also change the members.
        writers: may append.
        readers: may read.
    """

    administrators: Users = Users()
    writers: Users = Users(has_all=True)
    readers: Users = Users(has_all=True)


def users_of(text: str) -> Users:
    """Return the users of an option whose text was checked by `parse_users`."""
    if text in (NO_USER, EVERY_USER):
        return Users(has_all=text == EVERY_USER)
    return Users(named=frozenset(map(CertificateIdentity.parse, text.split(","))))


def parse_users(value: object) -> str:
    """Check `all`, `none`, or users of certificates separated by commas; return them in the same form.

    Raises:
        ValueError: it is neither; the text has expected and found.
    """
    if not isinstance(value, str):
        # A ValueError, which pydantic reports as a fault of the option; a TypeError would propagate.
        raise ValueError(f"expected all, none, or dledger://<group>/user/<name>,... as text, found {value!r}")  # noqa: TRY004
    parts = [part.strip() for part in value.split(",")]
    if parts in ([NO_USER], [EVERY_USER]):
        return parts[0]
    if len(parts) > USERS_MAX:
        raise ValueError(f"expected at most {USERS_MAX} users, found {len(parts)}")
    for part in parts:
        parse_user(part)
    if len(set(parts)) < len(parts):
        raise ValueError(f"expected each user once, found {value!r}")
    return ",".join(parts)


def parse_user(text: str) -> CertificateIdentity:
    """Return the user that a URI names.

    Raises:
        ValueError: it names none, or a node.
    """
    try:
        identity = CertificateIdentity.parse(text)
    except NoIdentity as error:
        raise ValueError(str(error)) from None
    if identity.kind is not IdentityKind.USER:
        raise ValueError(f"expected a user, dledger://<group>/user/<name>, found {identity}")
    return identity
