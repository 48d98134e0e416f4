"""The caller of a call: names and identity in the certificate of its connection."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from dledger.errors import CallRefused
from dledger.security.errors import CertificateRevoked, NoIdentity
from dledger.security.identity import identity_among
from dledger.security.validity import NEVER_S, end_of_pem

if TYPE_CHECKING:
    from dledger.security.identity import CertificateIdentity
    from dledger.security.revoked import Revoked
    from dledger.service.call_gate import Context


class Caller(NamedTuple):
    """The caller of a method.

    Attributes:
        user: name; empty: not authenticated.
        via: by what the user was authenticated.
        peer: address, as gRPC has it.
    """

    user: str
    via: str
    peer: str


def names_of_certificate(context: Context) -> tuple[str, ...]:
    """Return the alternative names in the certificate of a caller; none without a certificate."""
    return _texts_of(context, "x509_subject_alternative_name")


def uris_of_certificate(context: Context) -> tuple[str, ...]:
    """Return the URIs among the alternative names; an authority may sign names of other kinds with fewer checks."""
    return _texts_of(context, "peer_uri")


def _texts_of(context: Context, name: str) -> tuple[str, ...]:
    found: Any = context.auth_context().get(name, ())
    return tuple(each.decode(errors="replace") for each in found)


def refuse_revoked(context: Context, revoked: Revoked) -> None:
    """Refuse a call on a connection whose certificate was revoked.

    Raises:
        CallRefused: it was.
    """
    if not revoked.until:
        return
    try:
        revoked.refuse_pem(names_of_certificate(context), _pem_of(context))
    except CertificateRevoked as error:
        raise CallRefused(f"{error}. Nothing was done", is_authenticated=False) from error


def end_of_certificate(context: Context) -> float:
    """Return until when the certificate of a call's connection is valid, in seconds since 1970."""
    certificate = _pem_of(context)
    return end_of_pem(certificate) if certificate else NEVER_S


def _pem_of(context: Context) -> bytes:
    return b"".join(context.auth_context().get("x509_pem_cert", ()))


def identity_of_call(context: Context) -> CertificateIdentity:
    """Return the identity in the certificate of a call's connection.

    Raises:
        dledger.security.errors.NoIdentity: there is none.
    """
    return identity_among(uris_of_certificate(context))


def caller_of_certificate(context: Context) -> Caller:
    """Return the caller where access control is off: by its certificate, if it has one."""
    with suppress(NoIdentity):
        return Caller(identity_of_call(context).uri, "certificate", context.peer())
    return Caller("", "", context.peer())
