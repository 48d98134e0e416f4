"""Reads files of certificates, keys and secrets, and finds in their bytes what can be judged without decoding them.

The files are small and a person copies them by hand, so every way in which one can be wrong has an error of its own.

Not here: whether certificate, key and authority fit together (`dledger.security.contexts`).
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from dledger.security.errors import (
    CertificateFileEmpty,
    CertificateFileForeign,
    CertificateFileMissing,
    CertificateFileUnreadable,
    PrivateKeyExposed,
)
from dledger.security.secret_files import is_exposed
from store.fs.linux.regular_files import open_with_status

# A certificate has about 1 KiB. A bundle of all public authorities has 250 KiB.
PEM_SIZE_BYTES_MAX: Final = 1 << 20
_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_KEY: Final = re.compile(
    rb"-----BEGIN ((?:EC |RSA |ENCRYPTED )?)PRIVATE KEY-----(.+?)-----END \1PRIVATE KEY-----", re.DOTALL
)

FileState = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class PemFile:
    """What was read of one file.

    Attributes:
        path: of the file.
        content: all its bytes.
        state: modification time in ns, size, and inode when it was opened.
    """

    path: str
    content: bytes
    state: FileState


def file_state(path: str) -> FileState | None:
    """Return the properties that change with a file's content (time in ns, size, inode); None: there is no file."""
    try:
        found = os.stat(path)  # noqa: PTH116  # this package does not import pathlib
    except OSError:
        return None
    return _state_of(found)


def read_certificates(path: str) -> PemFile:
    """Read a file of one or more certificates.

    Raises:
        CertificateFault: its subclasses name the fault.
    """
    found = _read(path, "certificates", is_secret=False)
    # A bundle that is cut off inside its second certificate would silently lose an authority.
    if found.content.count(_BEGIN) != len(_CERTIFICATE.findall(found.content)) or _BEGIN not in found.content:
        raise CertificateFileForeign(
            f"{path}: expected certificates in PEM (-----BEGIN CERTIFICATE-----), found {_kind_of(found.content)}"
        )
    return found


def read_key(path: str) -> PemFile:
    """Read a file of one private key without a password, of the same modes as `read_secret`.

    Raises:
        CertificateFault: its subclasses name the fault.
    """
    found = _read(path, "a private key", is_secret=True)
    key = _KEY.search(found.content)
    if key is None:
        raise CertificateFileForeign(
            f"{path}: expected a private key in PEM (-----BEGIN PRIVATE KEY-----), found {_kind_of(found.content)}"
        )
    # OpenSSL would ask for the password on the terminal, and a service would wait for it without end.
    if key[1] == b"ENCRYPTED " or b"Proc-Type: 4,ENCRYPTED" in key[2]:
        raise CertificateFileForeign(f"{path}: expected a private key without a password, found an encrypted one")
    return found


def read_secret(path: str) -> PemFile:
    """Read a file of a secret; its content is not judged.

    Its mode must be 0600, or 0640 if root owns it (`secret_files.is_exposed`).

    Raises:
        CertificateFault: as `read_certificates`; `PrivateKeyExposed`: others may read it.
    """
    return _read(path, "a secret", is_secret=True)


def read_public(path: str, what: str) -> PemFile:
    """Read a file that is not secret; its content is not judged.

    Raises:
        CertificateFault: as `read_certificates`.
    """
    return _read(path, what, is_secret=False)


def _read(path: str, what: str, *, is_secret: bool) -> PemFile:
    try:
        descriptor, status = open_with_status(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CertificateFileMissing(
            f"{path}: expected {what}, found no file; check the path, or copy it there"
        ) from error
    except OSError as error:
        raise CertificateFileUnreadable(
            f"{path}: expected {what}, found a file that cannot be read: {error.strerror}; check its owner and mode"
        ) from error
    with os.fdopen(descriptor, "rb") as stream:
        if is_secret:
            _check_owner(path, status, what)
        if status.st_size > PEM_SIZE_BYTES_MAX:
            raise CertificateFileUnreadable(
                f"{path}: expected {what} in at most {PEM_SIZE_BYTES_MAX} bytes, found {status.st_size} bytes"
            )
        try:
            content = stream.read(PEM_SIZE_BYTES_MAX)
        except OSError as error:
            raise CertificateFileUnreadable(f"{path}: cannot be read: {error.strerror}; check the disk") from error
    if not content.strip():
        raise CertificateFileEmpty(f"{path}: expected {what}, found an empty file; copy it again")
    return PemFile(path, content, _state_of(status))


def _check_owner(path: str, status: os.stat_result, what: str) -> None:
    """Refuse a key or secret that others may read."""
    if is_exposed(status):
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        raise PrivateKeyExposed(
            f"{path}: expected {what} of mode 0600, found mode {mode}: other users may read it. "
            f"Run `chmod 600 {path}`; if others had access, renew it"
        )


def _state_of(status: os.stat_result) -> FileState:
    return status.st_mtime_ns, status.st_size, status.st_ino


def _kind_of(content: bytes) -> str:
    """Return in words what a file has instead of what is expected; never a part of it, for it may be a key."""
    if content.count(_BEGIN) > len(_CERTIFICATE.findall(content)):
        return "a certificate that is cut off"
    if _BEGIN in content:
        return "a certificate"
    if _KEY.search(content):
        return "a private key"
    if b"-----BEGIN" in content:
        return "PEM that is incomplete or of another kind"
    return f"{len(content)} bytes that are not PEM"


# ------------------------------------------------------------------------------------------------ dates of certificates


def expiry_of(found: PemFile) -> datetime:
    """Return when the first of these certificates to expire expires.

    Raises:
        CertificateFileForeign: one of them is no certificate.
    """
    return min(end for _, end in validity_of(found))


def validity_of(found: PemFile) -> list[tuple[datetime, datetime]]:
    """Return from when and until when each certificate of a file is valid, in the order of the file.

    `ssl` decodes a certificate only when the other side of a connection shows it, so this reads the one field that is
    needed (RFC 5280 §4.1): Certificate > TBSCertificate > version, serial number, algorithm, issuer, *validity*.

    Raises:
        CertificateFileForeign: one of them is no certificate.
    """
    try:
        return [_validity(base64.b64decode(each[1])) for each in _CERTIFICATE.finditer(found.content)]
    except (ValueError, IndexError, binascii.Error) as error:
        raise CertificateFileForeign(f"{found.path}: expected certificates, found one that is damaged") from error


def validity_of_shown(certificate: bytes) -> tuple[datetime, datetime]:
    """Return from when and until when a certificate is valid that the other side of a connection has shown, in PEM.

    Raises:
        CertificateFileForeign: it is none, or is damaged.
    """
    validity = validity_of(PemFile("", certificate, (0, 0, 0)))
    if not validity:
        raise CertificateFileForeign("expected a certificate, found none")
    return validity[0]


def _validity(der: bytes) -> tuple[datetime, datetime]:
    position, _ = _inside(der, 0)
    position, _ = _inside(der, position)
    if der[position] == 0xA0:  # the version, which the first version of X.509 has not
        position = _after(der, position)
    for _field in ("serial number", "algorithm", "issuer"):
        position = _after(der, position)
    begin, _ = _inside(der, position)
    end = _after(der, begin)
    return _time(der, begin), _time(der, end)


def _inside(der: bytes, position: int) -> tuple[int, int]:
    """Return the start and the end of the content of an element."""
    size, begin = der[position + 1], position + 2
    if size & 0x80:
        count = size & 0x7F
        size, begin = int.from_bytes(der[begin : begin + count]), begin + count
    if begin + size > len(der):
        raise ValueError("an element is longer than the certificate")
    return begin, begin + size


def _after(der: bytes, position: int) -> int:
    return _inside(der, position)[1]


def _time(der: bytes, position: int) -> datetime:
    begin, end = _inside(der, position)
    text = der[begin:end].decode("ascii")
    if der[position] == 0x17:  # UTCTime: two digits of the year, 1950 to 2049
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
