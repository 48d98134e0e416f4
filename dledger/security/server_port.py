"""The security of every port for clients: the only place that chooses between a plain and a TLS port.

One port is either: a client without TLS is disconnected by a TLS port, and never served.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

from dledger.security.contexts import page_context
from dledger.security.settings import Plain, Tls

if TYPE_CHECKING:
    import ssl

# Returns the certificates that the next handshakes use. A thread of gRPC calls it at each handshake, so it returns what
# is prepared: it must not wait, read files, or start processes.
CurrentTls = Callable[[], Tls]
PortSecurity = Plain | Tls | CurrentTls
_NO_CERTIFICATE: Final = "a TLS port needs a certificate and its key"


def add_server_port(server: grpc.aio.Server, address: str, security: PortSecurity) -> int:
    """Listen on `address` when `server` starts; return the port.

    Args:
        server: not started yet.
        address: `host:port`; port 0 chooses a free one.
        security: plain, TLS with fixed certificates, or TLS with certificates that change while the server runs.
            Connections that are open when they change keep the old ones. Whether clients need a certificate is fixed
            when the port is added.

    Raises:
        RuntimeError: the address is taken or wrong.
        ValueError: a TLS port without certificate and key.
    """
    if isinstance(security, Plain):
        return server.add_insecure_port(address)
    first = _current(security)
    changes = _Changes(first, None if isinstance(security, Tls) else security)
    credentials = grpc.dynamic_ssl_server_credentials(
        _configuration(first),
        changes.fetch,  # type: ignore[arg-type]  # the stubs do not know that None means "not changed"
        require_client_authentication=first.is_certificate_required,
    )
    return server.add_secure_port(address, credentials)


def requires_certificates(security: PortSecurity) -> bool:
    """Return whether a port refuses clients without a certificate."""
    if isinstance(security, Plain):
        return False
    return _current(security).is_certificate_required


def _current(security: Tls | CurrentTls) -> Tls:
    return security if isinstance(security, Tls) else security()


class WithoutClientCertificates:
    """The certificates of a port whose clients show none: a `CurrentTls`, made of that of another port.

    Args:
        current: of the other port.
    """

    def __init__(self, current: CurrentTls) -> None:
        self._current = current
        # What the other port has, and what is made of it. One object, because several threads call.
        self._made: tuple[Tls, Tls] | None = None

    def __call__(self) -> Tls:
        """Return the certificates of the next handshake: the same object until they change."""
        source, made = self._current(), self._made
        if made is None or made[0] is not source:
            made = self._made = (source, replace(source, authority=b"", is_certificate_required=False))
        return made[1]


class PortContexts:
    """The TLS contexts of a port that gRPC does not serve, with the same settings as for `add_server_port`.

    Args:
        security: plain, TLS with fixed certificates, or TLS with certificates that change while the server runs.
        make: makes the context of some certificates.

    Raises:
        dledger.security.errors.CertificateFault: the certificates cannot be used.
        ValueError: a TLS port without certificate and key.
    """

    def __init__(self, security: PortSecurity, make: Callable[[Tls], ssl.SSLContext] = page_context) -> None:
        self._security = security
        self._make = make
        self._used: Tls | None = None
        self._context: ssl.SSLContext | None = None
        self.current()

    def current(self) -> ssl.SSLContext | None:
        """Return the context of the next connection; None: it is plain.

        Raises:
            dledger.security.errors.CertificateFault: the certificates that are current now cannot be used.
        """
        if isinstance(self._security, Plain):
            return None
        tls = _current(self._security)
        if tls is not self._used:
            if not tls.certificate:
                raise ValueError(_NO_CERTIFICATE)
            self._context = self._make(tls)
            self._used = tls
        return self._context


class _Changes:
    """Answers gRPC at each handshake: the new certificates, or None if they have not changed."""

    def __init__(self, first: Tls, current: CurrentTls | None) -> None:
        self._used = first
        self._current = current
        # Two handshakes may ask at once.
        self._lock = threading.Lock()

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        if self._current is None:
            return None
        with self._lock:
            current = self._current()
            if current is self._used:
                return None
            # If this raises, gRPC keeps the previous certificates.
            configuration = _configuration(current)
            self._used = current
            return configuration


def _configuration(tls: Tls) -> grpc.ServerCertificateConfiguration:
    if not tls.certificate:
        raise ValueError(_NO_CERTIFICATE)
    return grpc.ssl_server_certificate_configuration(
        [(tls.key, tls.certificate)], root_certificates=tls.authority or None
    )
