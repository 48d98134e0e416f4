"""The identity in a certificate: a node or a user of a group, as one URI among its alternative names.

    dledger://<group>/node/<id>        dledger://<group>/user/<name>

The group is percent-encoded. Ids may have `_` and `.`, which host names of DNS may not, so nothing here is a host name,
and two identities are compared whole and exactly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote, unquote

from dledger.security.errors import NoIdentity, WrongIdentity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SCHEME: Final = "dledger://"
_URI: Final = re.compile(r"dledger://([^/]{1,384})/(node|user)/([A-Za-z0-9_.@-]{1,64})")


class IdentityKind(StrEnum):
    """What a certificate names."""

    NODE = "node"
    USER = "user"


@dataclass(frozen=True, slots=True)
class CertificateIdentity:
    """A node or a user of one group.

    Attributes:
        group: name of the replication group.
        kind: node or user. A user's certificate is never accepted where a node's is expected.
        name: the node's id, or the user's name.
    """

    group: str
    kind: IdentityKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name} of group {self.group}"

    @property
    def uri(self) -> str:
        """The form in certificates."""
        return f"{_SCHEME}{quote(self.group, safe='')}/{self.kind}/{self.name}"

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Return the identity that a URI names.

        Raises:
            NoIdentity: it names none, or not in the form in which `uri` writes it.
        """
        found = _URI.fullmatch(uri)
        if found is not None:
            identity = cls(unquote(found[1]), IdentityKind(found[2]), found[3])
            if identity.uri == uri:
                return identity
        raise NoIdentity(f"expected {_SCHEME}<group>/node/<id> or {_SCHEME}<group>/user/<name>, found {uri[:256]!r}")


def identity_among(uris: Iterable[str]) -> CertificateIdentity:
    """Return the identity among the URIs of one certificate; other schemes are ignored.

    Raises:
        NoIdentity: there is none, or several: which one holds would be a guess.
    """
    ours = [uri for uri in uris if uri.startswith(_SCHEME)]
    if len(ours) != 1:
        raise NoIdentity(f"expected one name {_SCHEME}... in the certificate, found {len(ours)}")
    return CertificateIdentity.parse(ours[0])


def identity_of_peer(certificate: Mapping[str, Any] | None) -> CertificateIdentity:
    """Return the identity in what `ssl` says of the other side's certificate (`getpeercert()`).

    Raises:
        NoIdentity: the other side has shown no certificate, or one without an identity.
    """
    names = (certificate or {}).get("subjectAltName", ())
    return identity_among(value for kind, value in names if kind == "URI")


def require_identity(certificate: Mapping[str, Any] | None, expected: CertificateIdentity) -> None:
    """Check that the other side of a connection is the expected one.

    Args:
        certificate: what `ssl` says of the other side's certificate (`getpeercert()`).
        expected: of a connection that this node opened: the node that it dialed. Of one that it accepted: a node of
            its own group with the id in the greeting. Compare before anything else in the greeting is judged.

    Raises:
        NoIdentity: as `identity_of_peer`.
        WrongIdentity: the certificate is that of another node, of a user, or of another group.
    """
    found = identity_of_peer(certificate)
    if found != expected:
        raise WrongIdentity(f"expected the certificate of {expected}, found that of {found}")
