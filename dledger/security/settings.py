"""How one connection, or one listener, is secured: plain, or TLS with these certificates. Values only; no files.

Plain connections have neither secrecy nor authentication. They are the default, and belong on loopback or in a network
that you trust.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Plain:
    """No TLS."""


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

    Raises:
        ValueError: certificate and key belong together, and one is missing; or a server that requires certificates has
            no authority to check them with.
    """

    authority: bytes = b""
    certificate: bytes = b""
    key: bytes = field(default=b"", repr=False)
    server_name: str = ""
    is_certificate_required: bool = False

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            missing = "key" if self.certificate else "certificate"
            raise ValueError(f"TLS needs certificate and key together; found no {missing}")
        if self.is_certificate_required and not self.authority:
            raise ValueError("TLS that requires certificates of clients needs the authority that signs them")


Security = Plain | Tls
