"""The certificates that were revoked, read from a file and read again when the file changes.

Each line names an owner and a time: certificates of this owner that are valid from this time, or from an earlier one,
are refused, also those whose files are lost. A new certificate is valid from a later time, so it is accepted.

    dledger://default/user/alice 2026-11-28T10:00:00Z

Lines that begin with `#` are comments. Not here: certificates without an identity, which no line can name.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from dledger.security.errors import CertificateFault, CertificateRevoked, NoIdentity, RevokedFileForeign
from dledger.security.identity import CertificateIdentity
from dledger.security.pem_files import PemFile, file_state, read_public, validity_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CHECK_INTERVAL_S: Final = 10.0
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
            valid_from: the begin of its validity.

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
            ((valid_from, _), *_) = validity_of(PemFile("", certificate, (0, 0, 0)))
        except (CertificateFault, ValueError):
            text = "the owner has revoked certificates, and the dates of this one are damaged"
            raise CertificateRevoked(text) from None
        self.refuse(uris, valid_from)


NOTHING_REVOKED: Final = Revoked()
# Returns the revoked certificates: another object after a change. It must not wait; any thread may call it.
CurrentRevoked = Callable[[], Revoked]


def nothing_revoked() -> Revoked:
    """Return that no certificate is revoked."""
    return NOTHING_REVOKED


class RevokedFile:
    """The lines in use.

    Args:
        path: of the file.

    Attributes:
        failed_reloads: attempts to read a file that cannot be used.

    Raises:
        CertificateFault: the file cannot be used.
    """

    def __init__(self, path: str) -> None:
        self.failed_reloads = 0
        self._path = path
        self._state = file_state(path)
        self._current = read_revoked(path)
        self._fault = ""

    @property
    def fault(self) -> str:
        """Why the file as it is now is not used; empty: it is in use."""
        return self._fault

    def current(self) -> Revoked:
        """Return the revoked certificates: another object after a change. Any thread may call it."""
        return self._current

    def reload_if_changed(self) -> bool:
        """Read the file if it has changed; return whether other certificates are revoked now. It blocks briefly.

        A file with a fault is logged, and the lines in use stay in use.
        """
        state = file_state(self._path)
        if state == self._state and not self._fault:
            return False
        self._state = state
        try:
            current = read_revoked(self._path)
        except CertificateFault as fault:
            self.failed_reloads += 1
            if str(fault) != self._fault:
                self._fault = str(fault)
                logger.warning("revoked_kept owners=%d fault=%s", len(self._current.until), fault)
            return False
        self._fault = ""
        if current == self._current:
            return False
        self._current = current
        logger.info("revoked_changed owners=%d", len(current.until))
        return True

    async def watch(self, interval_s: float = CHECK_INTERVAL_S) -> None:
        """Check the file every `interval_s` seconds, in a thread, until this is cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            await asyncio.to_thread(self.reload_if_changed)


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
