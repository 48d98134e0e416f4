"""How one connection, or one listener, is secured: plain, or TLS with these certificates. Values only; no files.

Plain connections have neither secrecy nor authentication. They are the default, and belong on loopback or in a network
that you trust. A client's settings also have the token that it sends with each call.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

# Returns the token of the moment; it is called for each call, by any thread, so it must not wait.
Token = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Plain:
    """No TLS.

    Attributes:
        token: of a client; None: it sends none. Left out of `repr`, so that no log shows it.
        is_token_exposed: the token is also sent to other machines, where anyone on the path can take it. Without it,
            only to addresses on loopback and Unix sockets.
    """

    token: Token | None = field(default=None, repr=False)
    is_token_exposed: bool = False


PLAIN: Final = Plain()


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS with certificates in PEM; the two ends of a connection use the same class.

    Attributes:
        authority: the certificates that sign acceptable certificates of the other side: one, or during a rotation of
            the authority two. A client with an empty value uses the roots that gRPC ships, which sign public servers.
        certificate: the own certificate, and intermediate ones after it; empty on a client that presents none.
        key: the private key of `certificate`; left out of `repr`, so that no log shows it.
        server_name: on a client: the name that the server's certificate must have; empty: the host of the address.
        is_certificate_required: on a server: clients without a certificate of `authority` are refused.
        token: of a client; None: it sends none. Left out of `repr`, so that no log shows it.

    Raises:
        ValueError: certificate and key belong together, and one is missing; or a server that requires certificates has
            no authority to check them with.
    """

    authority: bytes = b""
    certificate: bytes = b""
    key: bytes = field(default=b"", repr=False)
    server_name: str = ""
    is_certificate_required: bool = False
    token: Token | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            missing = "key" if self.certificate else "certificate"
            raise ValueError(f"TLS needs certificate and key together; found no {missing}")
        if self.is_certificate_required and not self.authority:
            raise ValueError("TLS that requires certificates of clients needs the authority that signs them")


Security = Plain | Tls


def is_loopback_host(host: str) -> bool:
    """Return whether only processes of this machine are at a host; names are not resolved, but `localhost` is known."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
