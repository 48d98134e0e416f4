"""How the connections between nodes are secured: plain, by a shared secret, or TLS. Values; no sockets.

A node never chooses a weaker kind by itself: it accepts and dials the kinds of its settings only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from dledger.security.revoked import CurrentRevoked, nothing_revoked

if TYPE_CHECKING:
    from dledger.security.contexts import PeerContexts
    from dledger.security.credentials import Credentials
    from dledger.security.shared_secret import SharedSecret

# First byte of a TLS handshake, and of the greeting that proves a secret (`dledger.peer.sealing`).
TLS_HANDSHAKE: Final = 0x16
_SECRET_GREETING: Final = ord("D")


class PeerKind(StrEnum):
    """One kind of connection between nodes; the values are those of the settings."""

    PLAIN = "off"
    SECRET = "secret"  # noqa: S105  (the name of a kind)
    TLS = "tls"


@dataclass(frozen=True, slots=True)
class PeerSecurity:
    """The kinds of connections that a node accepts and dials.

    Attributes:
        kind: dialed first.
        also: accepted, too, and dialed if `kind` fails; for a change of all nodes, one after the other. None: no other.
        credentials: of TLS: the certificates of this node; needed if one of the kinds is TLS.
        secret: of the group; needed if one of the kinds is SECRET.
        revoked: returns the certificates that are refused now; another object after a change.

    Raises:
        ValueError: what one of the kinds needs is missing, or the certificate is not that of a node.
    """

    kind: PeerKind = PeerKind.PLAIN
    also: PeerKind | None = None
    credentials: Credentials | None = None
    secret: SharedSecret | None = None
    revoked: CurrentRevoked = nothing_revoked

    def __post_init__(self) -> None:
        if self.kind is self.also:
            raise ValueError(f"expected two different kinds of connections, found {self.kind} twice")
        if PeerKind.TLS in self.kinds and (self.credentials is None or self.credentials.current.peers is None):
            raise ValueError("TLS between nodes needs the certificate of a node")
        if PeerKind.SECRET in self.kinds and self.secret is None:
            raise ValueError("connections with a secret need one")

    @property
    def kinds(self) -> tuple[PeerKind, ...]:
        """All kinds, the preferred one first."""
        return (self.kind,) if self.also is None else (self.kind, self.also)

    @property
    def is_plain(self) -> bool:
        """Whether all connections are plain."""
        return self.kinds == (PeerKind.PLAIN,)

    def generation_of(self, kind: PeerKind) -> int:
        """Return the generation of the certificates or secrets of new connections; each change raises it."""
        if kind is PeerKind.TLS:
            return 0 if self.credentials is None else self.credentials.current.generation
        return 0 if kind is PeerKind.PLAIN or self.secret is None else self.secret.generation

    def kind_of(self, first_byte: int) -> PeerKind | None:
        """Return the kind of an accepted connection by its first byte; None: it is refused."""
        kind = _KINDS.get(first_byte, PeerKind.PLAIN)
        return kind if kind in self.kinds else None

    def contexts(self) -> PeerContexts:
        """Return the certificates that the next TLS connection uses."""
        assert self.credentials is not None, "checked by __post_init__"
        contexts = self.credentials.current.peers
        assert contexts is not None, "the files of a node are replaced by those of a node only"
        return contexts

    def secrets(self) -> tuple[bytes, ...]:
        """Return the secrets that are accepted; the first one is used to dial."""
        assert self.secret is not None, "checked by __post_init__"
        return self.secret.current


_KINDS: Final = {TLS_HANDSHAKE: PeerKind.TLS, _SECRET_GREETING: PeerKind.SECRET}
PLAIN_PEERS: Final = PeerSecurity()
