"""The TLS contexts of connections between nodes, and of a page, built from bytes and tried before they are used.

Between nodes both sides show a certificate, and both check the other's. The names in it are not checked here: the one
that accepts and the one that dials compare the identity (`dledger.security.identity`) with the group and id of the
greeting.

Contexts are never changed and never exchanged inside a handshake (`sni_callback`): a connection that began with one
keeps the `verify_mode` of that one, so a client without a certificate could pass. A change of files makes new contexts,
and the next connection uses them.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dledger.security.errors import CertificateFileForeign, CertificateFileUnreadable, ForeignAuthority, KeyMismatch

if TYPE_CHECKING:
    from dledger.security.settings import Tls

# Messages that each side of a handshake sends, with space to spare.
_ROUNDS_MAX: Final = 10
_OPTIONS: Final = ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_IGNORE_UNEXPECTED_EOF


@dataclass(frozen=True, slots=True)
class PeerContexts:
    """The contexts of one node.

    Attributes:
        accepting: for connections that other nodes open; they must show a certificate of the authority.
        dialing: for connections that this node opens; pass no `server_hostname`, for identities are no host names.
    """

    accepting: ssl.SSLContext
    dialing: ssl.SSLContext


def peer_contexts(tls: Tls) -> PeerContexts:
    """Return contexts that present and demand the certificates of `tls`.

    Raises:
        KeyMismatch: certificate and key do not belong together.
        CertificateFileForeign: the bytes are no certificates.
    """
    return PeerContexts(_context(ssl.PROTOCOL_TLS_SERVER, tls), _context(ssl.PROTOCOL_TLS_CLIENT, tls))


def _context(protocol: Any, tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= _OPTIONS
    if protocol is ssl.PROTOCOL_TLS_SERVER:
        # Connections last for days and are not resumed.
        context.num_tickets = 0
    _load_pair(context, tls)
    _demand_certificates(context, tls)
    return context


def _demand_certificates(context: ssl.SSLContext, tls: Tls) -> None:
    context.verify_mode = ssl.CERT_REQUIRED
    # As Python 3.13 does by default: the same certificates are accepted by every version.
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=tls.authority.decode("ascii", "replace"))
    except ssl.SSLError as error:
        raise CertificateFileForeign(f"expected certificates of an authority, found: {_reason(error)}") from error


def page_context(tls: Tls) -> ssl.SSLContext:
    """Return the context of a page that browsers and scrapers read; it demands certificates if `tls` says so.

    Raises:
        KeyMismatch: certificate and key do not belong together.
        CertificateFileForeign: the bytes are no certificates.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # In 1.2 each session would be kept for hours, and a resumed one would not be checked against a new authority.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    context.options |= _OPTIONS
    _load_pair(context, tls)
    if tls.is_certificate_required:
        _demand_certificates(context, tls)
    return context


def front_context(tls: Tls) -> ssl.SSLContext:
    """Return the context of a port for clients of other makes: TLS 1.2, too, and no certificates of clients.

    Java 8 before its update 261 has no TLS 1.3.

    Raises:
        KeyMismatch: certificate and key do not belong together.
        CertificateFileForeign: the bytes are no certificates.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.num_tickets = 0
    context.options |= _OPTIONS
    _load_pair(context, tls)
    return context


def client_context(tls: Tls) -> ssl.SSLContext:
    """Return the context of a client that checks the server's certificate and its host, and presents its own, if any.

    Raises:
        KeyMismatch: certificate and key do not belong together.
        CertificateFileForeign: the bytes are no certificates.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.options |= _OPTIONS
    if tls.certificate:
        _load_pair(context, tls)
    if tls.authority:
        _demand_certificates(context, tls)
    else:
        context.load_default_certs()
    return context


def check_pair(tls: Tls) -> None:
    """Check that the certificate and the key of `tls` belong together.

    Raises:
        KeyMismatch: they do not.
        CertificateFileForeign: the bytes are no certificate or no key.
    """
    _load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), tls)


def _load_pair(context: ssl.SSLContext, tls: Tls) -> None:
    """Have `context` present the certificate of `tls`.

    `ssl` reads only files. The bytes go through a file in memory, so that what is loaded is what was checked, even if
    the files have changed since.
    """
    try:
        descriptor = os.memfd_create("dledger-certificate", os.MFD_CLOEXEC)
    except OSError as error:
        raise CertificateFileUnreadable(f"no file descriptor for certificates: {error.strerror}") from error
    try:
        with os.fdopen(os.dup(descriptor), "wb") as stream:
            stream.write(tls.certificate + b"\n" + tls.key)
        # A password is never asked for; keys that have one are refused before.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=b"")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise KeyMismatch(
                "expected a certificate and its own key, found two that do not belong together; copy both again, or "
                "renew the certificate"
            ) from error
        raise CertificateFileForeign(f"expected a certificate and its key, found: {_reason(error)}") from error
    finally:
        os.close(descriptor)


def check_contexts(contexts: PeerContexts) -> dict[str, Any]:
    """Have a node greet itself in memory; return what it says of its certificate, as `getpeercert` does.

    So a certificate that other nodes would refuse is found before it is used: signed by another authority, expired, or
    not made for both sides of a connection. It takes about 2 ms of processor time.

    Raises:
        ForeignAuthority: with OpenSSL's reason.
    """
    to_dialer, to_acceptor = ssl.MemoryBIO(), ssl.MemoryBIO()
    dialer = contexts.dialing.wrap_bio(to_dialer, to_acceptor, server_side=False)
    acceptor = contexts.accepting.wrap_bio(to_acceptor, to_dialer, server_side=True)
    waiting = [dialer, acceptor]
    try:
        for _round in range(_ROUNDS_MAX):
            waiting = [each for each in waiting if not _is_done(each)]
            if not waiting:
                break
    except ssl.SSLError as error:
        raise ForeignAuthority(
            f"expected a certificate that the configured authority has signed for both ends of a connection, found: "
            f"{_reason(error)}; use the authority's file and the certificate of one installation"
        ) from error
    return dict(acceptor.getpeercert() or {})


def _is_done(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.reason or str(error)).lower().replace("_", " ")
