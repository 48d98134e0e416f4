"""Faults of certificates and keys. Each names the file, what was expected and found, and what to do."""

from __future__ import annotations

from dledger.errors import DLedgerError


class CertificateFault(DLedgerError):
    """A certificate, a key or an authority cannot be used; base of all faults here.

    What was in use before stays in use; see `dledger.security.credentials`.
    """


class CertificateFileMissing(CertificateFault):
    """A configured file does not exist: correct its path, or make it with `dledger certs`."""


class CertificateFileEmpty(CertificateFault):
    """A file has no bytes: it was cut off, or is being written; copy it again."""


class CertificateFileUnreadable(CertificateFault):
    """The operating system refuses to read a file, or it is no regular file of a plausible size."""


class CertificateFileForeign(CertificateFault):
    """A file has something else than the PEM that is expected in it: a key for a certificate, or another format."""


class SecretFileForeign(CertificateFault):
    """A file has something else than the secret that nodes share: make one with `dledger certs secret`."""


class PrivateKeyExposed(CertificateFault):
    """Other users of the machine may read a key or secret: change its mode, and consider it as stolen."""


class KeyMismatch(CertificateFault):
    """Certificate and key do not belong together: one of them was renewed or exchanged alone."""


class CertificateExpired(CertificateFault):
    """A certificate is no longer valid: renew it."""


class CertificateNotYetValid(CertificateFault):
    """A certificate is not valid yet: check the clock of this machine, or of the one that made it."""


class ForeignAuthority(CertificateFault):
    """No authority of the given file has signed a certificate, or not for this use."""


class NoIdentity(CertificateFault):
    """A certificate names no node or user of this project, or not exactly one."""


class WrongIdentity(CertificateFault):
    """A certificate names another node or user than the one that is expected."""


class RevokedFileForeign(CertificateFault):
    """A file has something else than lines of revoked certificates: `dledger certs revoke` writes it."""


class CertificateRevoked(CertificateFault):
    """The other side's certificate was revoked: its owner needs a new one."""
