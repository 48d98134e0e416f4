"""The certificates that were revoked, read from a file and read again when the file changes.

Each line names an owner and a time: certificates of this owner that are valid from this time, or from an earlier one,
are refused, also those whose files are lost. A new certificate is valid from a later time, so it is accepted.

    dledger://default/user/alice 2026-11-28T10:00:00Z

Lines that begin with `#` are comments. Not here: certificates without an identity, which no line can name.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dledger.security.errors import CertificateFault, CertificateRevoked, NoIdentity, RevokedFileForeign
from dledger.security.identity import CertificateIdentity
from dledger.security.pem_files import read_public, validity_of_shown
from dledger.security.reloaded_file import ReloadedFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OWNERS_MAX: Final = 10_000
TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Revoked:
    """Revoked certificates.

    Attributes:
        until: by the URI of an owner: certificates that are valid from this time or an earlier one are revoked.
    """

    until: Mapping[str, datetime] = field(default_factory=dict)

    def names(self, uris: Iterable[str]) -> bool:
        """Return whether one of the names in a certificate has a line, so that its time must be compared."""
        return any(uri in self.until for uri in uris)

    def refuse(self, uris: Iterable[str], valid_from: datetime) -> None:
        """Raise if a certificate is revoked.

        Args:
            uris: the names in it.
            valid_from: the start of its validity.

        Raises:
            CertificateRevoked: it is.
        """
        for uri in uris:
            until = self.until.get(uri)
            if until is not None and valid_from <= until:
                raise CertificateRevoked(
                    f"the certificate of {uri} that is valid from {valid_from:{TIME_FORMAT}} was revoked; renew it"
                )

    def refuse_peer(self, certificate: Mapping[str, Any] | None) -> None:
        """Raise if a certificate is revoked, of which `ssl` reports the fields (`getpeercert()`); None: there is none.

        Raises:
            CertificateRevoked: it is.
        """
        uris = [value for kind, value in (certificate or {}).get("subjectAltName", ()) if kind == "URI"]
        if certificate and self.names(uris):
            seconds = ssl.cert_time_to_seconds(certificate["notBefore"])
            self.refuse(uris, datetime.fromtimestamp(seconds, UTC))

    def refuse_pem(self, uris: Iterable[str], certificate: bytes) -> None:
        """Raise if a certificate in PEM is revoked.

        Args:
            uris: the names in it.
            certificate: the certificate itself; it is decoded only if a line names its owner.

        Raises:
            CertificateRevoked: it is, or its validity cannot be read.
        """
        if not self.names(uris):
            return
        try:
            valid_from, _ = validity_of_shown(certificate)
        except CertificateFault:
            text = "the owner has revoked certificates, and the dates of this one are damaged"
            raise CertificateRevoked(text) from None
        self.refuse(uris, valid_from)


NOTHING_REVOKED: Final = Revoked()
# Returns the revoked certificates: another object after a change. It must not wait; any thread may call it.
CurrentRevoked = Callable[[], Revoked]


def nothing_revoked() -> Revoked:
    """Return that no certificate is revoked."""
    return NOTHING_REVOKED


RevokedFile: TypeAlias = ReloadedFile[Revoked]


def open_revoked(path: str) -> RevokedFile:
    """Return the revoked certificates in a file.

    Raises:
        CertificateFault: the file cannot be used.
    """
    return ReloadedFile(path, read_revoked, _log_kept, _log_changed)


def _log_kept(current: Revoked, fault: CertificateFault) -> None:
    logger.warning("revoked_kept owners=%d fault=%s", len(current.until), fault)


def _log_changed(current: Revoked, _: int) -> None:
    logger.info("revoked_changed owners=%d", len(current.until))


def read_revoked(path: str) -> Revoked:
    """Read a file of revoked certificates.

    Raises:
        CertificateFault: it cannot be read, or a line has another form; the message has its number.
    """
    content = read_public(path, "revoked certificates").content
    until: dict[str, datetime] = {}
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        try:
            uri, text = words
            time = datetime.strptime(text, TIME_FORMAT).replace(tzinfo=UTC)
            CertificateIdentity.parse(uri)
        except (ValueError, NoIdentity):
            raise RevokedFileForeign(
                f"{path}, line {number}: expected dledger://<group>/user/<name> or dledger://<group>/node/<id>, and a "
                f"time such as 2026-11-28T10:00:00Z, found {line[:256]!r}"
            ) from None
        until[uri] = max(time, until.get(uri, time))
    if len(until) > OWNERS_MAX:
        raise RevokedFileForeign(f"{path}: expected at most {OWNERS_MAX} owners, found {len(until)}")
    return Revoked(until)


def text_of(revoked: Revoked) -> str:
    """Return the content of a file; it is never empty, so that a copy without content is detected."""
    head = "# Certificates of these owners that are valid from these times or earlier are revoked."
    # Not by the format: it writes years before 1000 with fewer digits than it reads.
    lines = [
        f"{uri} {until.replace(tzinfo=None).isoformat(timespec='seconds')}Z"
        for uri, until in sorted(revoked.until.items())
    ]
    return "\n".join([head, *lines, ""])
