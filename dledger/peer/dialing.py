"""Opens one connection to another node, secured as in the settings.

Not here: when to dial (`dledger.peer.dialer`), which node the other side claims to be (`dledger.peer.handshake`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from dledger.security.peers import PLAIN_PEERS, PeerKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.config import Address
    from dledger.security.peers import PeerSecurity

# With mutual TLS each side of a handshake takes about a millisecond of processor time.
HANDSHAKE_TIMEOUT_S: Final = 2.0
# A connection that ends after a refusal waits this long for the other side to read the reason.
SHUTDOWN_TIMEOUT_S: Final = 0.5
Protocol = TypeVar("Protocol", bound=asyncio.BaseProtocol)


@dataclass(frozen=True, slots=True)
class DialedNode:
    """The node that is dialed, and how.

    Attributes:
        peer_id: of that node.
        group, self_id: of this node.
        security: which kinds of connections are dialed.
    """

    peer_id: str = ""
    group: str = ""
    self_id: str = ""
    security: PeerSecurity = PLAIN_PEERS


async def open_peer_connection(
    new_protocol: Callable[[], Protocol], address: Address, node: DialedNode, kind: PeerKind
) -> tuple[asyncio.Transport, Protocol]:
    """Connect to `address`; return when the handshake of TLS or of the shared secret has ended.

    A certificate must be signed by the authority. No host name is compared: ids of nodes are no host names, a name
    that resolves to another machine would still fit, and one name may lead to several nodes of one machine. The caller
    compares the node that the connection proves with the one that it dials (`dledger.peer.proven`).

    Raises:
        OSError, TimeoutError: there is no connection, or the other side's certificate is refused.
        DLedgerError: the other side does not know the secret.
        ValueError: the host is no valid name.
    """
    loop = asyncio.get_running_loop()
    if kind is PeerKind.PLAIN:
        return await loop.create_connection(new_protocol, address.host, address.port)
    if kind is PeerKind.SECRET:
        # Imported here, because other kinds do not need the package cryptography, which takes a while to load.
        from dledger.peer.sealed import SealedProtocol  # noqa: PLC0415
        from dledger.peer.sealing import DialersGreeting  # noqa: PLC0415

        greeting = DialersGreeting(node.security.secrets()[0], node.group, node.self_id, node.peer_id)
        _, sealed = await loop.create_connection(
            lambda: SealedProtocol(new_protocol, greeting), address.host, address.port
        )
        return await sealed.open()
    return await loop.create_connection(
        new_protocol,
        address.host,
        address.port,
        ssl=node.security.contexts().dialing,
        server_hostname="",
        ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
        ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
    )
