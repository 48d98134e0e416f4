"""Authorities and certificates for tests, made in memory, and handshakes between two contexts in memory."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cluster.certificates.making import KeyPair, issue, make_authority
from dledger.security.credentials import CertificateFiles
from dledger.security.identity import CertificateIdentity, IdentityKind
from dledger.security.settings import Tls

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dledger.security.contexts import PeerContexts

GROUP = "g0"
LOCAL_HOSTS = ("localhost", "127.0.0.1")


def days_ago(days: int) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


def node_identity(node_id: str, group: str = GROUP) -> CertificateIdentity:
    return CertificateIdentity(group, IdentityKind.NODE, node_id)


def user_identity(name: str, group: str = GROUP) -> CertificateIdentity:
    return CertificateIdentity(group, IdentityKind.USER, name)


def new_authority(name: str = "an authority", *, days: int = 10) -> KeyPair:
    return make_authority(name, days_ago(2), days)


def node_pair(
    authority: KeyPair,
    node_id: str,
    *,
    group: str = GROUP,
    hosts: Sequence[str] = LOCAL_HOSTS,
    is_expired: bool = False,
) -> KeyPair:
    """Create a node's certificate, valid since yesterday, or expired yesterday."""
    return issue(
        authority, node_identity(node_id, group), hosts, days_ago(2 if is_expired else 1), 1 if is_expired else 5
    )


def user_pair(authority: KeyPair, name: str, *, group: str = GROUP, is_expired: bool = False) -> KeyPair:
    return issue(authority, user_identity(name, group), (), days_ago(2 if is_expired else 1), 1 if is_expired else 5)


def tls_of(pair: KeyPair, *authorities: KeyPair, **settings: Any) -> Tls:
    """Return a context that presents a certificate and trusts some authorities."""
    return Tls(
        b"".join(each.certificate_pem() for each in authorities), pair.certificate_pem(), pair.key_pem(), **settings
    )


def write_tls(folder: Path, tls: Tls) -> CertificateFiles:
    """Write or replace the three files of a node; each write creates a new file."""
    folder.mkdir(exist_ok=True)
    for name, content in (("authority.crt", tls.authority), ("node.crt", tls.certificate), ("node.key", tls.key)):
        draft = folder / f"{name}.new"
        draft.touch(mode=0o600)
        draft.write_bytes(content)
        draft.rename(folder / name)
    return CertificateFiles(*(str(folder / name) for name in ("authority.crt", "node.crt", "node.key")))


@dataclass(frozen=True)
class Greeted:
    """The result of a handshake: the certificates that each side received, or the error of the side that refused."""

    shown_to_acceptor: dict[str, Any] | None
    shown_to_dialer: dict[str, Any] | None
    refused_by: str = ""
    reason: str = ""


def handshake(accepting: PeerContexts | ssl.SSLContext, dialing: PeerContexts | ssl.SSLContext) -> Greeted:
    """Connect two contexts in memory."""
    accepting = accepting if isinstance(accepting, ssl.SSLContext) else accepting.accepting
    dialing = dialing if isinstance(dialing, ssl.SSLContext) else dialing.dialing
    to_dialer, to_acceptor = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = {
        "dialer": dialing.wrap_bio(to_dialer, to_acceptor, server_side=False),
        "acceptor": accepting.wrap_bio(to_acceptor, to_dialer, server_side=True),
    }
    waiting = list(ends)
    for _ in range(10):
        for name in tuple(waiting):
            try:
                ends[name].do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return Greeted(None, None, name, getattr(error, "verify_message", "") or str(error.reason))
            waiting.remove(name)
    assert not waiting, f"the handshake does not end: {waiting}"
    return Greeted(ends["acceptor"].getpeercert(), ends["dialer"].getpeercert())
