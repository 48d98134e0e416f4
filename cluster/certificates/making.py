"""Creates an authority, and certificates signed by it, in memory: X.509 with keys on the curve P-256.

Every TLS library accepts P-256, and a signature takes 0.1 ms. The extensions are those that RFC 5280 demands and that
Python 3.13 checks by default (`ssl.VERIFY_X509_STRICT`): key usage, basic constraints, key identifiers.

| certificate | usage | names |
| --- | --- | --- |
| authority | signs certificates, and none of them may sign others | a common name |
| node | both ends of a connection | `dledger://<group>/node/<id>`; hosts that clients dial |
| user | the client's end only | `dledger://<group>/user/<name>` |
"""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dledger.security.identity import CertificateIdentity, IdentityKind, identity_among

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

# A certificate is used minutes after it was made, on machines whose clocks differ.
_BACKDATED: Final = timedelta(hours=1)
_COMMON_NAME_MAX: Final = 64
_HOST_LABEL: Final = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST: Final = re.compile(rf"(\*\.)?{_HOST_LABEL}(\.{_HOST_LABEL})*")
_HOST_LENGTH_MAX: Final = 253


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key; the key is left out of `repr`."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def __repr__(self) -> str:
        return f"KeyPair({self.certificate.subject.rfc4514_string()})"

    def certificate_pem(self) -> bytes:
        """Return the certificate as a file has it."""
        return pem_of(self.certificate)

    def key_pem(self) -> bytes:
        """Return the key as a file has it: PKCS #8 without a password."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def pem_of(certificate: x509.Certificate) -> bytes:
    """Return a certificate in PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def make_authority(name: str, now: datetime, days: int) -> KeyPair:
    """Create an authority.

    Args:
        name: for people; 1 to 64 printable characters.
        now: it is valid from an hour before this time on.
        days: it is valid for this long.

    Raises:
        ValueError: the name cannot be.
    """
    if not 0 < len(name) <= _COMMON_NAME_MAX or not name.isprintable():
        raise ValueError(f"expected a name of 1 to {_COMMON_NAME_MAX} printable characters, found {name[:80]!r}")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named(name)
    builder = (
        _builder(key, now, days)
        .subject_name(subject)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    return KeyPair(builder.sign(key, hashes.SHA256()), key)


def issue(
    authority: KeyPair,
    identity: CertificateIdentity,
    hosts: Sequence[str],
    now: datetime,
    days: int,
    *,
    revoked_until: datetime | None = None,
) -> KeyPair:
    """Create a certificate for a node or a user.

    Args:
        authority: signs it.
        identity: of the node or user.
        hosts: names and addresses by which clients dial a node; none for a user.
        now: it is valid from an hour before this time on.
        days: it is valid for this long.
        revoked_until: certificates of this identity that are valid from this time or an earlier one are revoked; the
            new one is valid from a later one. None: none are.

    Raises:
        ValueError: a host is neither a name nor an address; or the certificate would outlive the authority.
    """
    ends_at = authority.certificate.not_valid_after_utc
    if now + timedelta(days=days) > ends_at:
        raise ValueError(
            f"a certificate of {days} days would outlive its authority, which expires on {ends_at:%F}; choose fewer "
            "days, or renew the authority"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    is_node = identity.kind is IdentityKind.NODE
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if is_node else [])]
    signer = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    names = [x509.UniformResourceIdentifier(identity.uri), *map(_host, hosts)]
    builder = (
        _builder(key, now, days, revoked_until)
        .subject_name(_named(identity.name))
        .issuer_name(authority.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer), critical=False)
    )
    return KeyPair(builder.sign(authority.key, hashes.SHA256()), key)


def valid_from(now: datetime) -> datetime:
    """Return the time from which a certificate is valid that is made now, in whole seconds."""
    return (now - _BACKDATED).replace(microsecond=0)


def _builder(
    key: ec.EllipticCurvePrivateKey, now: datetime, days: int, revoked_until: datetime | None = None
) -> x509.CertificateBuilder:
    begin = valid_from(now)
    if revoked_until is not None:
        begin = max(begin, revoked_until + timedelta(seconds=1))
    return (
        x509.CertificateBuilder()
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(text: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(text))
    # A number with dots that is not an address is a typing error, and not a host name.
    if len(text) > _HOST_LENGTH_MAX or not _HOST.fullmatch(text) or text.rpartition(".")[2].isdigit():
        raise ValueError(f"expected the name or address of a host without a port, found {text[:80]!r}")
    return x509.DNSName(text)


# --------------------------------------------------------------------------------------------- what a certificate holds


def name_of(authority: x509.Certificate) -> str:
    """Return the name that an authority was given."""
    return str(authority.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def identity_in(certificate: x509.Certificate) -> CertificateIdentity:
    """Return the identity in a certificate.

    Raises:
        NoIdentity: it has none, or several.
    """
    names = _names_in(certificate)
    return identity_among(names.get_values_for_type(x509.UniformResourceIdentifier) if names else ())


def hosts_in(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the names and addresses of hosts in a certificate, names first."""
    names = _names_in(certificate)
    if names is None:
        return ()
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return (*names.get_values_for_type(x509.DNSName), *addresses)


def _names_in(certificate: x509.Certificate) -> x509.SubjectAlternativeName | None:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Return whether this authority has signed this certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
