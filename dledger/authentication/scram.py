"""SCRAM-SHA-256: a client proves that it knows a password, and the server that it has the verifier.

| # | from | message |
| --- | --- | --- |
| 1 | client | `n,,n=USER,r=NONCE` |
| 2 | server | `r=NONCE+SERVER_NONCE,s=SALT,i=ROUNDS` |
| 3 | client | `c=biws,r=NONCE+SERVER_NONCE,p=PROOF` |
| 4 | server | `v=SIGNATURE` |

Both sides are values and functions: the caller sends the messages, and passes random nonces in. A name that is unknown
gets a salt that is made up from a key of the cluster, the same at each attempt and on each node, and fails at message
3, as a wrong password does: neither the messages nor the work show which names exist.

Not here: channel binding (the connection is bound by TLS to the name that the client checks; Python has no exporter),
and authorization as another user; both are refused.

Source: RFC 5802, RFC 7677.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dledger.authentication.verifier import (
    KEY_SIZE,
    ROUNDS_DEFAULT,
    ROUNDS_MAX,
    ROUNDS_MIN,
    SALT_SIZE,
    SALT_SIZE_MAX,
    Verifier,
    keyed,
    salted_password,
)
from dledger.errors import DLedgerError

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGE_LENGTH_MAX: Final = 1_024
USER_LENGTH_MAX: Final = 64
# 24 random bytes in base64; others may send what RFC 5802 allows.
NONCE_LENGTH_MIN: Final = 16
NONCE_LENGTH_MAX: Final = 128
_ATTRIBUTES_MAX: Final = 8
_NONCE: Final = re.compile(r"[!-+\--~]+")
_NO_BINDING: Final = ("n,,", "y,,")
# What the client says about channel binding in message 3: base64 of how its message 1 began.
_BINDINGS: Final = {header: base64.b64encode(header.encode()).decode() for header in _NO_BINDING}


class LoginRefused(DLedgerError):
    """A login failed. The text is the same for each cause that depends on the user or the password.

    Attributes:
        cause: for the audit log, never for the client.
    """

    def __init__(self, cause: str, text: str = "user or password is wrong, or the login took too long") -> None:
        super().__init__(text)
        self.cause = cause


class ServerRefused(DLedgerError):
    """What a server sent during a login is not SCRAM, or it did not prove that it knows the user. Do not trust it."""


# -------------------------------------------------------------------------------------------------------------- server


@dataclass(frozen=True, slots=True)
class ScramExchange:
    """A login between messages 2 and 3, on the server.

    Attributes:
        user: the name that the client gave; not proven yet.
        nonce: of both sides; the client repeats it in message 3.
        server_first: message 2.
        verifier: of the user when the exchange began, or a made-up one.
        is_known: whether there is such a user.
    """

    user: str
    nonce: str
    server_first: str
    verifier: Verifier = field(repr=False)
    is_known: bool
    _header: str
    _client_first_bare: str

    def finish(self, client_final: str) -> str:
        """Return message 4: the client has proven that it knows the password.

        Args:
            client_final: message 3.

        Raises:
            LoginRefused: it has not, or message 3 is malformed.
        """
        without_proof, separator, proof_text = client_final[: MESSAGE_LENGTH_MAX + 1].rpartition(",p=")
        values = _attributes(without_proof)
        if not separator or [name for name, _ in values[:2]] != ["c", "r"]:
            raise _malformed("c=…,r=…,p=…")
        if values[0][1] != _BINDINGS[self._header]:
            raise _malformed(f"c={_BINDINGS[self._header]}: no channel binding")
        if not hmac.compare_digest(values[1][1].encode(), self.nonce.encode()):
            raise LoginRefused("wrong nonce")
        proof = _decoded(proof_text, KEY_SIZE, KEY_SIZE)
        if proof is None:
            raise _malformed(f"a proof of {KEY_SIZE} bytes in base64")
        message = f"{self._client_first_bare},{self.server_first},{without_proof}".encode()
        client_key = _xor(proof, keyed(self.verifier.stored_key, message))
        is_proven = hmac.compare_digest(hashlib.sha256(client_key).digest(), self.verifier.stored_key)
        if not is_proven or not self.is_known:
            raise LoginRefused("wrong password" if self.is_known else "unknown user")
        return f"v={_encoded(keyed(self.verifier.server_key, message))}"


def begin_exchange(
    client_first: str, server_nonce: str, verifier_of: Callable[[str], Verifier | None], salt_key: bytes
) -> ScramExchange:
    """Return the exchange that message 1 begins; its `server_first` is message 2.

    Args:
        client_first: message 1.
        server_nonce: random: `secrets.token_urlsafe(24)`; never used twice.
        verifier_of: of a user; None: there is no such user, or it may not log in.
        salt_key: secret of the cluster, equal on all nodes, never changed: makes up the salts of unknown users.

    Raises:
        LoginRefused: message 1 is malformed, or asks for what is not supported.
    """
    header = client_first[:3]
    if header not in _NO_BINDING:
        raise _malformed("n,,n=USER,r=NONCE: no channel binding, no other user to act for")
    bare = client_first[3 : MESSAGE_LENGTH_MAX + 1]
    values = _attributes(bare)
    if len(client_first) > MESSAGE_LENGTH_MAX or [name for name, _ in values[:2]] != ["n", "r"]:
        raise _malformed("n,,n=USER,r=NONCE")
    user, client_nonce = values[0][1], values[1][1]
    # Names of users have neither "," nor "=", so that no user has a name with escapes (=2C, =3D).
    if not 1 <= len(user) <= USER_LENGTH_MAX or not _is_nonce(client_nonce):
        raise _malformed(f"a name of at most {USER_LENGTH_MAX}, a nonce of {NONCE_LENGTH_MIN} to {NONCE_LENGTH_MAX}")
    found = verifier_of(user)
    verifier = _made_up_verifier(salt_key, user)
    if found is not None:
        verifier = found
    nonce = client_nonce + server_nonce
    server_first = f"r={nonce},s={_encoded(verifier.salt)},i={verifier.rounds}"
    return ScramExchange(user, nonce, server_first, verifier, found is not None, header, bare)


def nonce_of(client_final: str) -> str:
    """Return the nonce in message 3, by which the server finds the exchange; empty: there is none."""
    parts = client_final[:MESSAGE_LENGTH_MAX].split(",", 2)
    return parts[1][2:] if len(parts) > 2 and parts[1].startswith("r=") else ""


def _made_up_verifier(salt_key: bytes, user: str) -> Verifier:
    def part(what: bytes) -> bytes:
        return keyed(salt_key, what + b"\0" + user.encode())

    return Verifier(part(b"salt")[:SALT_SIZE], ROUNDS_DEFAULT, part(b"stored"), part(b"server"))


def _malformed(expected: str) -> LoginRefused:
    text = f"login: expected {expected} (SCRAM-SHA-256, RFC 7677)"
    return LoginRefused("malformed message", text)


# -------------------------------------------------------------------------------------------------------------- client


class ScramClient:
    """The client's side of one login.

    Args:
        user: name.
        password: of the user.
        nonce: random: `secrets.token_urlsafe(24)`; never used twice.
    """

    def __init__(self, user: str, password: str, nonce: str) -> None:
        self._password = password
        self._nonce = nonce
        self._bare = f"n={user},r={nonce}"
        self._server_signature = b""

    @property
    def first(self) -> str:
        """Message 1."""
        return f"n,,{self._bare}"

    def final(self, server_first: str) -> str:
        """Return message 3; with the rounds that servers of ours ask for this takes 2 ms.

        Args:
            server_first: message 2.

        Raises:
            ServerRefused: message 2 is malformed, of another login, or asks for too few or too many rounds.
            dledger.authentication.verifier.IllegalCredential: the password is none that SASLprep allows.
        """
        if len(server_first) > MESSAGE_LENGTH_MAX:
            raise ServerRefused(f"login: expected at most {MESSAGE_LENGTH_MAX} characters of the server")
        try:
            values = _attributes(server_first)
        except LoginRefused as error:
            raise ServerRefused(f"the server's answer is malformed: {error}") from None
        if [name for name, _ in values[:3]] != ["r", "s", "i"]:
            raise ServerRefused("login: expected r=…,s=…,i=… of the server")
        nonce, salt, rounds_text = values[0][1], _decoded(values[1][1], 1, SALT_SIZE_MAX), values[2][1]
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ServerRefused("login: expected the client's nonce and the server's, found another one")
        is_number = rounds_text.isascii() and rounds_text.isdigit() and len(rounds_text) <= 7
        rounds = int(rounds_text) if is_number else 0
        if salt is None or not ROUNDS_MIN <= rounds <= ROUNDS_MAX:
            # Fewer would let a false server guess quickly, more would keep the client busy.
            raise ServerRefused(f"login: expected a salt, and {ROUNDS_MIN} to {ROUNDS_MAX} rounds of the server")
        salted = salted_password(self._password, salt, rounds)
        client_key = keyed(salted, b"Client Key")
        without_proof = f"c={_BINDINGS['n,,']},r={nonce}"
        message = f"{self._bare},{server_first},{without_proof}".encode()
        proof = _xor(client_key, keyed(hashlib.sha256(client_key).digest(), message))
        self._server_signature = keyed(keyed(salted, b"Server Key"), message)
        return f"{without_proof},p={_encoded(proof)}"

    def check(self, server_final: str) -> None:
        """Raise unless message 4 proves that the server knows the user.

        Raises:
            ServerRefused: it does not.
        """
        signature = _decoded(server_final[2:MESSAGE_LENGTH_MAX], KEY_SIZE, KEY_SIZE)
        is_proven = signature is not None and hmac.compare_digest(signature, self._server_signature)
        if not server_final.startswith("v=") or not self._server_signature or not is_proven:
            raise ServerRefused("login: the server did not prove that it knows the user. Do not trust its address")


# -------------------------------------------------------------------------------------------------------------- common


def _attributes(text: str) -> list[tuple[str, str]]:
    """Return the attributes of a message: pairs of a letter and a value, in order.

    Raises:
        LoginRefused: there are none, or too many; or one must be understood (`m=`), and is not.
    """
    parts = text.split(",", _ATTRIBUTES_MAX)
    pairs = [(part[:1], part[2:]) for part in parts]
    is_formed = all(part[:1].isascii() and part[:1].isalpha() and part[1:2] == "=" for part in parts)
    if len(parts) > _ATTRIBUTES_MAX or not is_formed or any(name == "m" for name, _ in pairs):
        raise _malformed(f"at most {_ATTRIBUTES_MAX} attributes, none of which is mandatory")
    return pairs


def _is_nonce(text: str) -> bool:
    return NONCE_LENGTH_MIN <= len(text) <= NONCE_LENGTH_MAX and _NONCE.fullmatch(text) is not None


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str, size_min: int, size_max: int) -> bytes | None:
    """Return the bytes of a base64 text; None: it is none, or they are too few or too many."""
    if len(text) > (size_max + 2) // 3 * 4:
        return None
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:  # also of characters beyond ASCII
        return None
    return data if size_min <= len(data) <= size_max else None


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(left, right, strict=True))
