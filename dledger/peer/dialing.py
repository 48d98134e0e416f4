"""Opens one connection to another node, secured as the settings say.

Not here: when to dial (`dledger.peer.dialer`), which node the other side claims to be (`dledger.peer.handshake`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from dledger.security.peers import PeerKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.config import Address
    from dledger.security.peers import PeerSecurity

# With mutual TLS each side of a handshake takes about a millisecond of processor time.
HANDSHAKE_TIMEOUT_S: Final = 2.0
# A connection that ends after a refusal waits this long for the other side to read the reason.
SHUTDOWN_TIMEOUT_S: Final = 0.5
Protocol = TypeVar("Protocol", bound=asyncio.BaseProtocol)


async def open_peer_connection(
    new_protocol: Callable[[], Protocol], address: Address, security: PeerSecurity, kind: PeerKind
) -> tuple[asyncio.Transport, Protocol]:
    """Connect to `address`; with TLS, return when the handshake has ended.

    The certificate must be signed by the authority. No host name is compared: ids of nodes are no host names, a name
    that resolves to another machine would still fit, and one name may lead to several nodes of one machine. The caller
    compares the identity in the certificate with the node that it dials.

    Raises:
        OSError, TimeoutError: there is no connection, or the other side's certificate is refused.
        ValueError: the host is no valid name.
    """
    loop = asyncio.get_running_loop()
    if kind is PeerKind.PLAIN:
        return await loop.create_connection(new_protocol, address.host, address.port)
    return await loop.create_connection(
        new_protocol,
        address.host,
        address.port,
        ssl=security.contexts().dialing,
        server_hostname="",
        ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
        ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
    )
