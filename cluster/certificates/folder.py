"""A folder with an authority and the certificates that it has signed.

| file | content |
| --- | --- |
| `authority.crt` | the certificates to trust: of the authority; of two during a rotation |
| `authority.key` | the key that signs; it stays on the machine where certificates are made |
| `authority-next.key` | during a rotation: the key of the new authority, which does not sign yet |
| `<group>.node.<id>.crt`, `.key` | certificate and key of a node |
| `<group>.user.<name>.crt`, `.key` | certificate and key of a user |
| `revoked` | the certificates that nodes refuse (`dledger.security.revoked`) |

A node gets `authority.crt` and its own two files. A crash between the two files of a renewal leaves a key that does not
fit its certificate; `check_all` reports it, and renewing again repairs it. Servers continue with their loaded files
meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as changed
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from cluster.certificates.files import certificates_in, key_in, locked_folder, replace, taken, write_new
from cluster.certificates.making import (
    KeyPair,
    hosts_in,
    identity_in,
    is_signed_by,
    issue,
    make_authority,
    name_of,
    pem_of,
    valid_from,
)
from dledger.security.errors import (
    CertificateExpired,
    CertificateFault,
    CertificateFileMissing,
    KeyMismatch,
    NoIdentity,
)
from dledger.security.identity import CertificateIdentity
from dledger.security.revoked import NOTHING_REVOKED, Revoked, read_revoked, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cryptography import x509

AUTHORITY_DAYS: Final = 3650
LEAF_DAYS: Final = 365
_AUTHORITY: Final = "authority"
_NEXT_KEY: Final = "authority-next.key"
_REVOKED: Final = "revoked"


class RotationOutOfOrder(CertificateFault):
    """A step of the authority's rotation was requested out of order; the message has the next step."""


@dataclass(frozen=True, slots=True)
class Made:
    """One certificate of a folder.

    Attributes:
        file: its path.
        identity: of the node or user; None: it is an authority, or was not made here.
        is_authority: whether it signs others.
        hosts: its host names and addresses.
        expires_at: its expiry; None if it is unreadable.
        serial: serial number in hexadecimal.
        fault: why it cannot be used; empty: it is valid.
    """

    file: Path
    identity: CertificateIdentity | None
    is_authority: bool
    hosts: tuple[str, ...]
    expires_at: datetime | None
    serial: str
    fault: str = ""


class CertificateFolder:
    """The files of one folder; every change locks it.

    Args:
        path: of the folder.
        now: the wall clock.

    Attributes:
        revoked_file: the certificates that nodes refuse; folders of older versions have none until the first is.
    """

    def __init__(self, path: Path, now: datetime) -> None:
        self.path = path
        self._now = now
        self._bundle = path / f"{_AUTHORITY}.crt"
        self._key = path / f"{_AUTHORITY}.key"
        self._next_key = path / _NEXT_KEY
        self.revoked_file = path / _REVOKED

    def create(self, name: str, days: int = AUTHORITY_DAYS) -> Made:
        """Create the folder, and an authority in it.

        Raises:
            CertificateFault: there is one, or the folder cannot be used.
            ValueError: the name cannot be.
        """
        pair = make_authority(name, self._now, days)
        with locked_folder(self.path, is_made=True):
            self._refuse_to_overwrite(self._key, self._bundle, self.revoked_file)
            write_new(self.revoked_file, text_of(NOTHING_REVOKED).encode())
            write_new(self._key, pair.key_pem())
            write_new(self._bundle, pair.certificate_pem())
        return self._described(self._bundle, pair.certificate, is_authority=True)

    def issue(self, identity: CertificateIdentity, hosts: Sequence[str], days: int | None = None) -> Made:
        """Create a certificate.

        Args:
            identity: of a node or user.
            hosts: by which clients dial a node.
            days: None: a year, or less if the authority ends earlier.

        Raises:
            CertificateFault: there is one, or the authority cannot be used.
            ValueError: a host is none, or the certificate would outlive its authority.
        """
        certificate, key = self._files_of(f"{identity.group}.{identity.kind}.{identity.name}")
        with locked_folder(self.path):
            pair = self._issue(identity, hosts, days)
            self._refuse_to_overwrite(key, certificate)
            write_new(key, pair.key_pem())
            write_new(certificate, pair.certificate_pem())
        return self._described(certificate, pair.certificate)

    def renew(self, name: str, days: int | None = None) -> Made:
        """Replace the certificate and the key of a node or user; names and hosts stay the same.

        Args:
            name: of its files, without `.crt`.
            days: as `issue`.

        Raises:
            CertificateFault: there is no such certificate, or it or the authority cannot be used.
            ValueError: the certificate would outlive its authority.
        """
        certificate, key = self._files_of(name)
        with locked_folder(self.path):
            old = certificates_in(certificate)[0]
            pair = self._issue(identity_in(old), hosts_in(old), days)
            replace(key, pair.key_pem())
            replace(certificate, pair.certificate_pem())
        return self._described(certificate, pair.certificate)

    def revoke(self, name: str) -> CertificateIdentity:
        """Revoke all certificates of a node or user that were made until now, also those whose files are lost.

        Args:
            name: of its files, without `.crt`; or its URI, `dledger://<group>/user/<name>`.

        Returns:
            Whose certificates they are.

        Raises:
            CertificateFault: there is no such certificate, the URI is of another form, or a file cannot be used.
        """
        with locked_folder(self.path):
            is_uri = name.startswith("dledger://")
            owner = CertificateIdentity.parse(name) if is_uri else identity_in(self._certificate(name))
            until = {**self._revoked().until, owner.uri: valid_from(self._now)}
            replace(self.revoked_file, text_of(Revoked(until)).encode())
        return owner

    def _revoked(self) -> Revoked:
        return read_revoked(str(self.revoked_file)) if self.revoked_file.exists() else NOTHING_REVOKED

    def names(self) -> list[str]:
        """Return the names of all certificates of nodes and users, in order."""
        found = (path.name.removesuffix(".crt") for path in self.path.glob("*.crt"))
        return sorted(name for name in found if name != _AUTHORITY and not name.startswith("."))

    def check_all(self) -> list[Made]:
        """Return a description of each certificate, with its fault: the authorities, then the others by name.

        Raises:
            CertificateFault: there is no authority to check the others with.
        """
        trusted = certificates_in(self._bundle)
        authorities = [self._described(self._bundle, each, is_authority=True) for each in trusted]
        return authorities + [self._checked(name, trusted) for name in self.names()]

    # ------------------------------------------------------------------------------------- rotation of the authority

    def begin_rotation(self, days: int | None = None) -> list[Made]:
        """Create a new authority that is trusted, but does not sign yet.

        Args:
            days: how long it is valid; None: ten years.

        Raises:
            RotationOutOfOrder: another rotation has not ended.
            CertificateFault: the authority cannot be used.
        """
        with locked_folder(self.path):
            old = certificates_in(self._bundle)
            if len(old) > 1:
                raise RotationOutOfOrder(
                    f"{self._bundle}: expected one authority, found {len(old)}: a rotation has begun; continue it with "
                    f"`{'use' if self._next_key.exists() else 'finish'}`"
                )
            name = name_of(self._signer().certificate)
            pair = make_authority(name, self._now, days or AUTHORITY_DAYS)
            replace(self._next_key, pair.key_pem())
            replace(self._bundle, b"".join(map(pem_of, [*old, pair.certificate])))
        return [self._described(self._bundle, each, is_authority=True) for each in (*old, pair.certificate)]

    def use_next(self) -> list[Made]:
        """Sign with the new authority from now on; the old one is still trusted, and its key is deleted.

        Raises:
            RotationOutOfOrder: no rotation has begun.
            CertificateFault: the new key cannot be used.
        """
        with locked_folder(self.path):
            trusted = certificates_in(self._bundle)
            if len(trusted) < 2 or not self._next_key.exists():
                raise RotationOutOfOrder(
                    f"{self._next_key}: expected the key of a new authority, found none: begin a rotation first"
                )
            new = _pair_among(trusted, self._next_key)
            replace(self._key, new.key_pem())
            self._next_key.unlink()
        return [self._described(self._bundle, each, is_authority=True) for each in trusted]

    def finish_rotation(self) -> list[Made]:
        """Trust only the authority that signs.

        Raises:
            RotationOutOfOrder: no rotation is in that state, or a certificate was signed by the old authority.
            CertificateFault: a file cannot be used.
        """
        with locked_folder(self.path):
            trusted = certificates_in(self._bundle)
            if len(trusted) < 2 or self._next_key.exists():
                raise RotationOutOfOrder(
                    f"{self._bundle}: expected two authorities, of which the new one signs, found {len(trusted)}; the "
                    "order is begin, use, finish"
                )
            signer = self._signer().certificate
            old = [name for name in self.names() if not is_signed_by(self._certificate(name), signer)]
            if old:
                raise RotationOutOfOrder(
                    f"{', '.join(old)}: signed by the old authority; renew and distribute them first "
                    "(`dledger certs renew --all`)"
                )
            replace(self._bundle, pem_of(signer))
        return [self._described(self._bundle, signer, is_authority=True)]

    # --------------------------------------------------------------------------------------------------------- parts

    def _issue(self, identity: CertificateIdentity, hosts: Sequence[str], days: int | None) -> KeyPair:
        signer = self._signer()
        left = (signer.certificate.not_valid_after_utc - self._now).days
        if left < 1:
            raise CertificateExpired(
                f"{self._bundle}: expected an authority that is valid for a day at least, found one that expires on "
                f"{signer.certificate.not_valid_after_utc:%F %R}; renew it (`dledger certs renew --authority begin`)"
            )
        days = min(LEAF_DAYS, left) if days is None else days
        revoked_until = self._revoked().until.get(identity.uri)
        return issue(signer, identity, hosts, self._now, days, revoked_until=revoked_until)

    def _signer(self) -> KeyPair:
        return _pair_among(certificates_in(self._bundle), self._key)

    def _certificate(self, name: str) -> x509.Certificate:
        return certificates_in(self._files_of(name)[0])[0]

    def _files_of(self, name: str) -> tuple[Path, Path]:
        if "/" in name or name.startswith(".") or name == _AUTHORITY:
            raise CertificateFileMissing(
                f"{name!r}: expected the name of a node's or user's certificate in {self.path}"
            )
        return self.path / f"{name}.crt", self.path / f"{name}.key"

    def _refuse_to_overwrite(self, *paths: Path) -> None:
        for path in paths:
            if path.exists():
                raise taken(path)

    def _described(self, file: Path, certificate: x509.Certificate, *, is_authority: bool = False) -> Made:
        try:
            identity = None if is_authority else identity_in(certificate)
        except NoIdentity:
            identity = None
        ends_at = certificate.not_valid_after_utc
        fault = "" if self._now < ends_at else "expired"
        serial = f"{certificate.serial_number:x}"
        return Made(file, identity, is_authority, hosts_in(certificate), ends_at, serial, fault)

    def _checked(self, name: str, trusted: Sequence[x509.Certificate]) -> Made:
        file, key = self._files_of(name)
        try:
            certificate = certificates_in(file)[0]
        except CertificateFault as fault:
            return Made(file, None, is_authority=False, hosts=(), expires_at=None, serial="", fault=str(fault))
        found = self._described(file, certificate)
        if found.fault:
            return found
        try:
            _pair_among([certificate], key)
        except CertificateFault as fault:
            return changed(found, fault=str(fault))
        if not any(is_signed_by(certificate, each) for each in trusted):
            return changed(found, fault=f"{file}: expected a certificate signed by {self._bundle}, found another")
        try:
            self._revoked().refuse([found.identity.uri] if found.identity else (), certificate.not_valid_before_utc)
        except CertificateFault as fault:
            return changed(found, fault=str(fault))
        return found


def _pair_among(certificates: Sequence[x509.Certificate], key_file: Path) -> KeyPair:
    """Return the certificate that belongs to a key.

    Raises:
        KeyMismatch: none does.
        CertificateFault: the key cannot be used.
    """
    key = key_in(key_file)
    for certificate in certificates:
        if certificate.public_key() == key.public_key():
            return KeyPair(certificate, key)
    raise KeyMismatch(
        f"{key_file}: expected the key of the certificate beside it, found another; copy both again, or renew"
    )


def days_left(ends_at: datetime, now: datetime) -> int:
    """Return the whole days until a certificate expires; negative afterwards."""
    return (ends_at - now) // timedelta(days=1)
