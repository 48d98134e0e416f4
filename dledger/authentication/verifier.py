"""SCRAM-SHA-256 verifiers: what a server stores in place of a password.

| text of a verifier (the form of PostgreSQL) | |
| --- | --- |
| `SCRAM-SHA-256$8192:SALT$STORED_KEY:SERVER_KEY` | salt and keys in base64 |

A verifier is made where the password is known, so that passwords never travel. `StoredKey` checks a client's proof,
but does not make one; `ServerKey` proves to the client that the server has the verifier.

Source: RFC 5802 §3, RFC 7677, RFC 4013 (SASLprep).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import stringprep
import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dledger.errors import DLedgerError

if TYPE_CHECKING:
    from collections.abc import Callable

KEY_SIZE: Final = 32
SALT_SIZE: Final = 16
SALT_SIZE_MAX: Final = 64
# RFC 7677: at least 4,096. More cost only the client; far more would lock its user out.
ROUNDS_MIN: Final = 4_096
ROUNDS_MAX: Final = 1_000_000
ROUNDS_DEFAULT: Final = 8_192
PASSWORD_LENGTH_MIN: Final = 8
PASSWORD_LENGTH_MAX: Final = 256

_TEXT: Final = re.compile(
    r"SCRAM-SHA-256\$([0-9]{4,7}):([A-Za-z0-9+/=]{1,96})\$([A-Za-z0-9+/=]{44}):([A-Za-z0-9+/=]{44})"
)
_TEXT_LENGTH_MAX: Final = 256
# RFC 4013 §2.3, without the table of spaces: these were mapped before.
_PROHIBITED: Final[tuple[Callable[[str], bool], ...]] = (
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
)


class IllegalCredential(DLedgerError):
    """A password or verifier that is not accepted. Nothing was changed; choose another one. The text has no secret."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """What a server knows about a password.

    Attributes:
        salt: random, of the user; 16 to 64 bytes.
        rounds: of PBKDF2, 4,096 to 1,000,000.
        stored_key: 32 bytes; left out of `repr`, like `server_key`, so that no log shows it.
        server_key: 32 bytes.
    """

    salt: bytes = field(repr=False)
    rounds: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    def check(self) -> None:
        """Raise unless a server may store it.

        Raises:
            IllegalCredential: what is wrong.
        """
        if not SALT_SIZE <= len(self.salt) <= SALT_SIZE_MAX:
            raise IllegalCredential(f"verifier: expected {SALT_SIZE} to {SALT_SIZE_MAX} bytes of salt")
        if not ROUNDS_MIN <= self.rounds <= ROUNDS_MAX:
            raise IllegalCredential(f"verifier: expected {ROUNDS_MIN} to {ROUNDS_MAX} rounds, found {self.rounds}")
        if len(self.stored_key) != KEY_SIZE or len(self.server_key) != KEY_SIZE:
            raise IllegalCredential(f"verifier: expected keys of {KEY_SIZE} bytes")

    def text(self) -> str:
        """Return the text of the module's table; it is as secret as the verifier."""
        salt, stored, server = (
            base64.b64encode(each).decode() for each in (self.salt, self.stored_key, self.server_key)
        )
        return f"SCRAM-SHA-256${self.rounds}:{salt}${stored}:{server}"


def verifier_of_text(text: str) -> Verifier:
    """Return the verifier that a text is.

    Raises:
        IllegalCredential: it is none, or one that `Verifier.check` refuses.
    """
    found = _TEXT.fullmatch(text) if len(text) <= _TEXT_LENGTH_MAX else None
    expected = "verifier: expected SCRAM-SHA-256$ROUNDS:SALT$STORED_KEY:SERVER_KEY, as `verifier.text` writes it"
    if found is None:
        raise IllegalCredential(expected)
    try:
        salt, stored, server = (base64.b64decode(part, validate=True) for part in found.groups()[1:])
    except binascii.Error:
        raise IllegalCredential(expected) from None
    verifier = Verifier(salt, int(found[1]), stored, server)
    verifier.check()
    return verifier


def make_verifier(password: str, salt: bytes, rounds: int = ROUNDS_DEFAULT) -> Verifier:
    """Return the verifier of a password; at 8,192 rounds this takes 2 ms.

    Args:
        password: 8 to 256 characters.
        salt: 16 random bytes (`secrets.token_bytes`).
        rounds: the default suffices for random passwords, and slows the guessing of chosen ones from a stolen verifier.

    Raises:
        IllegalCredential: the password is too short or too long, or has characters that SASLprep prohibits.
    """
    if not PASSWORD_LENGTH_MIN <= len(password) <= PASSWORD_LENGTH_MAX:
        expected = f"{PASSWORD_LENGTH_MIN} to {PASSWORD_LENGTH_MAX} characters"
        raise IllegalCredential(f"password: expected {expected}, found {len(password)}")
    salted = salted_password(password, salt, rounds)
    stored_key = hashlib.sha256(keyed(salted, b"Client Key")).digest()
    verifier = Verifier(salt, rounds, stored_key, keyed(salted, b"Server Key"))
    verifier.check()
    return verifier


def salted_password(password: str, salt: bytes, rounds: int) -> bytes:
    """Return RFC 5802's `SaltedPassword`: the expensive part of a login, on the client.

    Raises:
        IllegalCredential: see `prepared`.
    """
    return hashlib.pbkdf2_hmac("sha256", prepared(password).encode(), salt, rounds)


def keyed(key: bytes, data: bytes) -> bytes:
    """Return the HMAC-SHA-256 of `data`."""
    return hmac.digest(key, data, "sha256")


def prepared(password: str) -> str:
    """Return a password as SASLprep normalizes it: equal for a person means equal bytes.

    Raises:
        IllegalCredential: it is empty or too long, or holds control characters and the like.
    """
    if password.isascii() and password.isprintable() and 0 < len(password) <= PASSWORD_LENGTH_MAX:
        return password
    if len(password) > PASSWORD_LENGTH_MAX:
        raise IllegalCredential(f"password: expected at most {PASSWORD_LENGTH_MAX} characters, found {len(password)}")
    mapped = "".join(
        " " if stringprep.in_table_c12(each) else each for each in password if not stringprep.in_table_b1(each)
    )
    normalized = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    is_prohibited = any(is_in(each) for each in normalized for is_in in _PROHIBITED)
    if not normalized or is_prohibited or _mixes_directions(normalized):
        raise IllegalCredential("password: expected characters that SASLprep (RFC 4013) allows, found another one")
    return normalized


def _mixes_directions(text: str) -> bool:
    """Return whether RFC 3454 §6 prohibits a text: right-to-left characters and others in one."""
    if not any(map(stringprep.in_table_d1, text)):
        return False
    is_framed = stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])
    return not is_framed or any(map(stringprep.in_table_d2, text))
