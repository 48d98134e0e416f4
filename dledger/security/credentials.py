"""The certificates of a process, read from files and read again when the files change.

A change is judged whole before it is used: all files are readable, certificate and key belong together, nothing has
expired, the authority has signed the certificate, and it names this node. Then one assignment replaces what is in use.
Files that are not good are logged, once for each fault, and the certificates in use stay in use: a copy that is half
done, or done in the wrong order, interrupts nothing.

Open connections keep the certificates that they began with. `current` may be read by any thread.

Not here: closing connections that use an authority that was removed; that is up to the listeners.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from dledger.security.contexts import PeerContexts, check_contexts, check_pair, page_context, peer_contexts
from dledger.security.errors import CertificateExpired, CertificateFault, CertificateNotYetValid
from dledger.security.identity import require_identity
from dledger.security.pem_files import expiry_of, file_state, read_certificates, read_key, validity_of
from dledger.security.reloaded_file import CHECK_INTERVAL_S
from dledger.security.settings import Tls

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

    from dledger.security.identity import CertificateIdentity
    from dledger.security.pem_files import FileState, PemFile
    from dledger.security.settings import Token

_WARNED_DAYS: Final = (30, 7, 1, 0)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Paths of the files in PEM.

    Attributes:
        authority: certificates of the authority; two during a rotation.
        certificate: the own certificate, with intermediate ones after it.
        key: its private key, mode 0600.
    """

    authority: str
    certificate: str
    key: str

    def paths(self) -> tuple[str, ...]:
        """Return those that are set."""
        return tuple(path for path in (self.authority, self.certificate, self.key) if path)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the files held at one time, found to be good.

    Attributes:
        tls: for gRPC.
        peers: for connections between nodes; None: the certificate is not a node's.
        page: for a page over HTTP; None: the files are those of `peers`.
        expires_at: when the first certificate of these files expires.
        generation: 1 at the start, and 1 more after each change.
    """

    tls: Tls
    peers: PeerContexts | None
    page: ssl.SSLContext | None
    expires_at: datetime
    generation: int = 1


def utc_now() -> datetime:
    """Return the time by the wall clock: certificates are valid by it."""
    return datetime.now(UTC)


def load_certificates(
    files: CertificateFiles,
    *,
    expected: CertificateIdentity | None = None,
    is_certificate_required: bool = False,
    now: Callable[[], datetime] = utc_now,
) -> Loaded:
    """Read the files and check that they can be used. It blocks for some milliseconds.

    Args:
        files: what to read.
        expected: the node that the certificate must name; it is then tried on both ends of a connection. None: a
            listener's own certificate, which another installation's authority may have signed.
        is_certificate_required: clients of a listener must show a certificate of `files.authority`.
        now: the wall clock.

    Raises:
        CertificateFault: what is wrong, with the file; nothing of these files may be used.
    """
    authority = read_certificates(files.authority) if files.authority else None
    certificate, key = read_certificates(files.certificate), read_key(files.key)
    read = [each for each in (authority, certificate) if each is not None]
    # An authority that has expired in a bundle of two does no harm; the certificate itself must be valid.
    _check_dates(certificate, now())
    tls = Tls(
        authority=authority.content if authority else b"",
        certificate=certificate.content,
        key=key.content,
        is_certificate_required=is_certificate_required,
    )
    with _faults_with_paths(files):
        peers = None if expected is None else _peers_of(tls, expected)
        page = page_context(tls) if expected is None else None
    return Loaded(tls, peers, page, min(map(expiry_of, read)))


def load_client_tls(
    files: CertificateFiles,
    *,
    server_name: str = "",
    token: Token | None = None,
    now: Callable[[], datetime] = utc_now,
) -> Tls:
    """Read the files of a client.

    Args:
        files: the authority that signs the servers' certificates, empty for the roots that gRPC has; the client's own
            certificate and key, both empty for a client without one.
        server_name: see `Tls`.
        token: see `Tls`.
        now: the wall clock.

    Raises:
        CertificateFault: a file cannot be used.
        ValueError: a certificate without a key, or a key without a certificate.
    """
    authority = read_certificates(files.authority) if files.authority else None
    certificate = read_certificates(files.certificate) if files.certificate else None
    key = read_key(files.key) if files.key else None
    tls = Tls(
        authority.content if authority else b"",
        certificate.content if certificate else b"",
        key.content if key else b"",
        server_name,
        token=token,
    )
    if certificate is not None:
        _check_dates(certificate, now())
        with _faults_with_paths(files):
            check_pair(tls)
    return tls


def _check_dates(certificate: PemFile, now: datetime) -> None:
    for begin, end in validity_of(certificate):
        if now >= end:
            raise CertificateExpired(
                f"{certificate.path}: expected a certificate that is valid now ({now:%F %R} UTC), found one that "
                f"expired on {end:%F %R}; renew it (`dledger certs renew`)"
            )
        if now < begin:
            raise CertificateNotYetValid(
                f"{certificate.path}: expected a certificate that is valid now ({now:%F %R} UTC), found one that is "
                f"valid from {begin:%F %R} on; check the clock of this machine"
            )


@contextmanager
def _faults_with_paths(files: CertificateFiles) -> Iterator[None]:
    try:
        yield
    except CertificateFault as fault:
        raise type(fault)(f"{', '.join(files.paths())}: {fault}") from fault


def _peers_of(tls: Tls, expected: CertificateIdentity) -> PeerContexts:
    contexts = peer_contexts(tls)
    require_identity(check_contexts(contexts), expected)
    return contexts


class Credentials:
    """The certificates in use, and the files that they come from.

    Args:
        files: what to read.
        expected: see `load_certificates`.
        is_certificate_required: see `load_certificates`.
        now: the wall clock.

    Raises:
        CertificateFault: the files are not good at the start.
    """

    def __init__(
        self,
        files: CertificateFiles,
        *,
        expected: CertificateIdentity | None = None,
        is_certificate_required: bool = False,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.files = files
        self._expected = expected
        self._is_certificate_required = is_certificate_required
        self._now = now
        # Before the files are read: a change in between is then found by the next check.
        self._states = self._file_states()
        self._current = self._load()
        self._fault = ""
        self._warned_days: int | None = None
        self.failed_reloads = 0
        self._warn_of_expiry()

    @property
    def current(self) -> Loaded:
        """What new connections use. Take it once for one connection: the next call may return newer certificates."""
        return self._current

    def current_tls(self) -> Tls:
        """Return the certificates for gRPC: a `dledger.security.server_port.CurrentTls`."""
        return self._current.tls

    def current_page(self) -> ssl.SSLContext:
        """Return the context of a page; the files must be those of a listener."""
        assert self._current.page is not None
        return self._current.page

    @property
    def fault(self) -> str:
        """Why the files as they are now are not used; empty: they are in use."""
        return self._fault

    def seconds_left(self) -> float:
        """Return the time until the first certificate in use expires; negative afterwards."""
        return (self._current.expires_at - self._now()).total_seconds()

    def reload_if_changed(self) -> bool:
        """Read the files if they have changed; return whether other certificates are in use now.

        It blocks for some milliseconds, so call it in a thread, and not in two at once. Files with a fault are read
        again at each call, because the fault may pass without a change: a certificate becomes valid.
        """
        self._warn_of_expiry()
        states = self._file_states()
        if states == self._states and not self._fault:
            return False
        self._states = states
        try:
            loaded = self._load()
        except CertificateFault as fault:
            self.failed_reloads += 1
            if str(fault) != self._fault:
                self._fault = str(fault)
                logger.warning("certificates_kept expires=%s fault=%s", self._current.expires_at.isoformat(), fault)
            return False
        self._fault = ""
        if loaded.tls == self._current.tls:
            return False
        self._current = replace(loaded, generation=self._current.generation + 1)
        logger.info(
            "certificates_changed generation=%d expires=%s", self._current.generation, loaded.expires_at.isoformat()
        )
        return True

    async def watch(
        self, on_change: Callable[[Loaded], None] | None = None, interval_s: float = CHECK_INTERVAL_S
    ) -> None:
        """Check the files every `interval_s` seconds, in a thread, until this is cancelled.

        Args:
            on_change: is called in the event loop after each change; for listeners that drain old connections.
            interval_s: bounds how late a change is seen.
        """
        while True:
            await asyncio.sleep(interval_s)
            if await asyncio.to_thread(self.reload_if_changed) and on_change is not None:
                on_change(self._current)

    def _load(self) -> Loaded:
        return load_certificates(
            self.files,
            expected=self._expected,
            is_certificate_required=self._is_certificate_required,
            now=self._now,
        )

    def _file_states(self) -> tuple[FileState | None, ...]:
        return tuple(map(file_state, self.files.paths()))

    def _warn_of_expiry(self) -> None:
        """Log once when 30, 7 and 1 day are left, and when none is."""
        days = self.seconds_left() / 86_400
        due = min((limit for limit in _WARNED_DAYS if days <= limit), default=None)
        if due is not None and due != self._warned_days:
            logger.warning("certificates_expire expires=%s days=%.1f", self._current.expires_at.isoformat(), days)
        self._warned_days = due
