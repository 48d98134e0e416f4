"""Access keys: the credentials of RocketMQ's clients, a name and a secret with which a client signs its calls.

A signature is HMAC-SHA1 of a content that the protocol chooses. To compute it the broker needs the secret itself, so a
secret is a credential of its own, and never a password.

Source: RocketMQ `AclSigner`, `DefaultAuthenticationHandler`; HMAC-SHA1 is what all its clients use.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cluster.access.model import IllegalAccessChange
from dledger.errors import DLedgerError

if TYPE_CHECKING:
    from collections.abc import Callable

ACCESS_KEY_LENGTH_MAX: Final = 64
SECRET_LENGTH_MIN: Final = 8
SECRET_LENGTH_MAX: Final = 128
SIGNATURE_SIZE: Final = 20
_ID: Final = re.compile(rf"[A-Za-z0-9_.\-]{{1,{ACCESS_KEY_LENGTH_MAX}}}")
_SECRET: Final = re.compile(rf"[!-~]{{{SECRET_LENGTH_MIN},{SECRET_LENGTH_MAX}}}")
# With which the signature of an unknown key is compared, so that the time of a refusal does not show which keys exist.
_NO_SECRET: Final = "no secret"  # noqa: S105  (no credential)


class SignatureRefused(DLedgerError):
    """A signature is not one of an access key of an enabled user. The caller must not be served.

    Attributes:
        cause: for logs and the audit log; clients get the same text for each.
    """

    def __init__(self, cause: str) -> None:
        super().__init__("access key: expected one that exists, and a signature with its secret. Nothing was done")
        self.cause = cause


@dataclass(frozen=True, slots=True)
class AccessKey:
    """An access key of a user.

    Attributes:
        id: name of the key, unique in the broker.
        user: its user.
        secret: with which calls are signed; left out of `repr`.
    """

    id: str
    user: str
    secret: str = field(repr=False)

    def check(self) -> None:
        """Raise unless the access key is valid.

        Raises:
            IllegalAccessChange: a field is invalid.
        """
        if not _ID.fullmatch(self.id):
            expected = f"a name of 1 to {ACCESS_KEY_LENGTH_MAX} letters, digits and _ . -"
            raise IllegalAccessChange("access key", expected, repr(self.id[:80]))
        if not _SECRET.fullmatch(self.secret):
            expected = f"{SECRET_LENGTH_MIN} to {SECRET_LENGTH_MAX} printable ASCII characters without blanks"
            raise IllegalAccessChange("secret", expected, f"{len(self.secret)} characters")


def signature_of(secret: str, content: bytes) -> bytes:
    """Return the signature of a content, of 20 bytes."""
    return hmac.digest(secret.encode(), content, "sha1")


def verify(find: Callable[[str], AccessKey | None], access_key: str, signature: bytes, content: bytes) -> AccessKey:
    """Return the access key that has signed a content; the time does not depend on what is wrong.

    Args:
        find: returns the access key of a name, if its user is enabled.
        access_key: the name, from a client: anything.
        signature: from a client: anything.
        content: what is signed.

    Raises:
        SignatureRefused: there is no such key, or it has not signed the content.
    """
    found = find(access_key)
    expected = signature_of(_NO_SECRET if found is None else found.secret, content)
    is_same = hmac.compare_digest(expected, signature)
    if found is None:
        raise SignatureRefused("no such access key of an enabled user")
    if not is_same:
        raise SignatureRefused(f"wrong signature of access key {access_key!r}")
    return found
