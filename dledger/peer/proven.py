"""What a transport proves of the node at the other side: by a certificate, by the shared secret, or nothing.

Not here: handshakes themselves (the event loop's TLS, `dledger.peer.sealed`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dledger.security.errors import WrongIdentity
from dledger.security.identity import CertificateIdentity, IdentityKind, require_identity
from dledger.security.peers import PeerKind
from dledger.security.validity import refuse_expired_peer

if TYPE_CHECKING:
    import asyncio

    from dledger.security.revoked import Revoked

# What `get_extra_info` of a sealed transport calls the id of the node at the other side.
SEALED_PEER_ID: Final = "sealed_peer_id"


def kind_of(transport: asyncio.BaseTransport) -> PeerKind:
    """Return how the connection is secured."""
    if transport.get_extra_info(SEALED_PEER_ID) is not None:
        return PeerKind.SECRET
    return PeerKind.PLAIN if transport.get_extra_info("sslcontext") is None else PeerKind.TLS


def require_node(transport: asyncio.BaseTransport, group: str, node_id: str, revoked: Revoked) -> None:
    """Check that the other side is a node, as far as the connection proves it; a plain one proves nothing.

    Args:
        transport: of the connection.
        group: of this node. With a secret both sides have compared it before.
        node_id: the dialed node; on the accepting end the sender of the greeting.
        revoked: certificates that are refused.

    Raises:
        CertificateFault: it is another node, a user, or of another group, or its certificate was revoked
            or is no longer valid.
    """
    kind = kind_of(transport)
    if kind is PeerKind.TLS:
        certificate = transport.get_extra_info("peercert")
        require_identity(certificate, CertificateIdentity(group, IdentityKind.NODE, node_id))
        revoked.refuse_peer(certificate)
        refuse_expired_peer(certificate)
    elif kind is PeerKind.SECRET and (found := transport.get_extra_info(SEALED_PEER_ID)) != node_id:
        raise WrongIdentity(f"expected node {node_id}, found that node {found} opened the connection")
