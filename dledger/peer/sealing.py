"""The cryptography of connections between nodes that share a secret: a greeting that proves it, and sealed records.

Not here: sockets (`dledger.peer.sealed`), files (`dledger.security.shared_secret`).

Each side sends one greeting; K is a key that is derived from the secret:

| from   | size, type   | field     | meaning                                                           |
| ------ | ------------ | --------- | ----------------------------------------------------------------- |
| both   | 4 bytes      | magic     | `DLS1`; a frame begins with 0 and TLS with 0x16                   |
|        | u16          | body size | bytes from here to the proof, big-endian as all integers          |
|        | 32 bytes     | nonce     | random                                                            |
|        | 32 bytes     | public    | an X25519 key for this connection alone                           |
| dialer | three names  | names     | group, its own id, the id of the node that it dials: u8 and bytes |
| both   | 32 bytes     | proof     | HMAC-SHA-256 with K over direction and greeting                   |

The acceptor's proof also covers the dialer's greeting.

The keys of the records are derived by HKDF from the secret and the X25519 agreement, with a salt of both greetings. So
the first record proves that the dialer knows the secret and has seen this very answer; recorded greetings open nothing,
and a recording cannot be read later by means of the secret.

A record is a piece of the stream, sealed by AES-256-GCM:

| size     | field    | meaning                                                                               |
| -------- | -------- | ------------------------------------------------------------------------------------- |
| u32      | size     | bytes of the sealed part; authenticated with it                                       |
| u32      | checksum | CRC-32C of size and number: damage is found before the whole record has arrived       |
| size     | sealed   | the piece and 16 bytes of authentication                                              |

The nonce is the number of the record in its direction, which is not sent: a record that is repeated, left out, moved,
altered, or sent back to its sender does not open, and the connection ends. Each direction has a key, and takes the next
one, derived from it, after some records: AES-GCM must not seal too much with one.
"""

from __future__ import annotations

import hmac
import os
import struct
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from crc32c import crc32c
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dledger.errors import DLedgerError

MAGIC: Final = b"DLS1"
GREETING_HEAD: Final = struct.Struct(">4sH")
RECORD_HEAD: Final = struct.Struct(">II")
_NUMBERED_SIZE: Final = struct.Struct(">IQ")
_NONCE: Final = struct.Struct(">IQ")
_NONCE_SIZE: Final = 32
_KEY_SIZE: Final = 32
_PROOF_SIZE: Final = 32
_FIXED_SIZE: Final = _NONCE_SIZE + _KEY_SIZE
_NAME_SIZE_MAX: Final = 255
_BODY_SIZE_MAX: Final = _FIXED_SIZE + 3 * (1 + _NAME_SIZE_MAX)
GREETING_SIZE_MAX: Final = GREETING_HEAD.size + _BODY_SIZE_MAX + _PROOF_SIZE
# Of the piece in one record; a larger one is sent in several.
PIECE_SIZE_BYTES_MAX: Final = 256 * 1024
_TAG_SIZE: Final = 16
SEALED_SIZE_BYTES_MAX: Final = PIECE_SIZE_BYTES_MAX + _TAG_SIZE
# With the largest records 2^34 blocks for each key: an attacker's advantage stays below 2^-60.
_RECORDS_PER_KEY: Final = 1 << 20
_LABEL: Final = b"dledger peer v1 "


class NotProven(DLedgerError):
    """The other side does not know the secret, or dials another node; the connection ends without an answer."""


class RecordAltered(DLedgerError):
    """A record does not open: it was altered, repeated, left out or moved on its way. The connection ends."""


@dataclass(frozen=True, slots=True)
class SealedSession:
    """A connection after both greetings.

    Attributes:
        peer_id: the node at the other side, by its greeting.
        sealer: of this side's records.
        opener: of the other side's records.
    """

    peer_id: str
    sealer: RecordSealer
    opener: RecordOpener


class DialersGreeting:
    """The dialing side.

    Args:
        secret: shared by the group.
        group: name of the group.
        self_id: this node.
        peer_id: the node that is dialed.

    Attributes:
        first: what this side sends first.
    """

    def __init__(self, secret: bytes, group: str, self_id: str, peer_id: str) -> None:
        self._secret = secret
        self._peer_id = peer_id
        self._private = X25519PrivateKey.generate()
        names = b"".join(_with_size(name.encode()) for name in (group, self_id, peer_id))
        self.first = _greeting(secret, b"dialer", os.urandom(_NONCE_SIZE) + _public(self._private) + names, b"")

    def finish(self, answer: bytes) -> tuple[bytes, SealedSession]:
        """Check the acceptor's greeting; return what is sent next (nothing), and the session.

        Raises:
            NotProven: it is not of a node that knows the secret, or answers another greeting.
        """
        body = _body_of(answer)
        if len(body) != _FIXED_SIZE or not _is_proven(self._secret, b"acceptor", answer, self.first):
            raise NotProven(f"{self._peer_id} does not prove that it knows the secret")
        outgoing, incoming = _keys(self._secret, self._private, body, self.first + answer)
        return b"", SealedSession(self._peer_id, RecordSealer(outgoing), RecordOpener(incoming))


class AcceptorsGreeting:
    """The accepting side.

    Args:
        secrets: acceptable ones; two while they change.
        group: name of the group.
        self_id: this node.
    """

    first = b""

    def __init__(self, secrets: tuple[bytes, ...], group: str, self_id: str) -> None:
        self._secrets = secrets
        self._group = group
        self._self_id = self_id

    def finish(self, asked: bytes) -> tuple[bytes, SealedSession]:
        """Check the dialer's greeting; return the answer, and the session.

        Raises:
            NotProven: it is not of a node that knows a secret and dials this one.
        """
        body = _body_of(asked)
        secret = next((each for each in self._secrets if _is_proven(each, b"dialer", asked, b"")), None)
        if secret is None:
            raise NotProven("the greeting does not prove that the other side knows the secret")
        group, peer_id, self_id = _names_of(body[_FIXED_SIZE:])
        if (group, self_id) != (self._group, self._self_id):
            raise NotProven(f"{peer_id} dials node {self_id} of group {group!r}, and this is {self._self_id}")
        private = X25519PrivateKey.generate()
        answer = _greeting(secret, b"acceptor", os.urandom(_NONCE_SIZE) + _public(private), asked)
        incoming, outgoing = _keys(secret, private, body, asked + answer)
        return answer, SealedSession(peer_id, RecordSealer(outgoing), RecordOpener(incoming))


class RecordSealer:
    """Seals the records of one direction."""

    def __init__(self, key: bytes) -> None:
        self._keys = _KeyChain(key)

    def seal(self, piece: bytes | memoryview) -> tuple[bytes, bytes]:
        """Return head and sealed part of the next record.

        Args:
            piece: at most `PIECE_SIZE_BYTES_MAX` bytes.
        """
        assert len(piece) <= PIECE_SIZE_BYTES_MAX, len(piece)
        cipher, number = self._keys.next()
        head = _record_head(len(piece) + _TAG_SIZE, number)
        return head, cipher.encrypt(_NONCE.pack(0, number), piece, head)


class RecordOpener:
    """Opens the records of one direction, in their order."""

    def __init__(self, key: bytes) -> None:
        self._keys = _KeyChain(key)

    def size_of(self, head: bytes) -> int:
        """Return the size of the sealed part that follows a head.

        Raises:
            RecordAltered: the head is not that of the next record.
        """
        size: int = RECORD_HEAD.unpack(head)[0]
        if not _TAG_SIZE <= size <= SEALED_SIZE_BYTES_MAX or head != _record_head(size, self._keys.number):
            raise RecordAltered(f"record {self._keys.number}: its head was altered, or another record was expected")
        return size

    def open(self, head: bytes, sealed: bytes | memoryview) -> bytes:
        """Return the piece in the next record.

        Raises:
            RecordAltered: it is not what the other side sent next.
        """
        cipher, number = self._keys.next()
        try:
            return cipher.decrypt(_NONCE.pack(0, number), sealed, head)
        except InvalidTag:
            raise RecordAltered(f"record {number} does not open: it was altered, repeated, left out or moved") from None


class _KeyChain:
    """The key of each record of one direction, and its number."""

    def __init__(self, key: bytes) -> None:
        self.number = 0
        self._key = key
        self._cipher = AESGCM(key)

    def next(self) -> tuple[AESGCM, int]:
        number = self.number
        if number and number % _RECORDS_PER_KEY == 0:
            self._key = hmac.digest(self._key, _LABEL + b"next key", "sha256")
            self._cipher = AESGCM(self._key)
        self.number = number + 1
        return self._cipher, number


def _record_head(size: int, number: int) -> bytes:
    return RECORD_HEAD.pack(size, crc32c(_NUMBERED_SIZE.pack(size, number)))


def greeting_size(head: bytes) -> int:
    """Return the size of a whole greeting by its head.

    Raises:
        NotProven: it is no greeting.
    """
    magic: bytes
    size: int
    magic, size = GREETING_HEAD.unpack(head)
    if magic != MAGIC or not _FIXED_SIZE <= size <= _BODY_SIZE_MAX:
        raise NotProven("the other side sent no greeting of a node that knows a secret")
    return GREETING_HEAD.size + size + _PROOF_SIZE


def _greeting(secret: bytes, direction: bytes, body: bytes, before: bytes) -> bytes:
    unproven = GREETING_HEAD.pack(MAGIC, len(body)) + body
    return unproven + _proof(secret, direction, unproven, before)


def _is_proven(secret: bytes, direction: bytes, greeting: bytes, before: bytes) -> bool:
    unproven, proof = greeting[:-_PROOF_SIZE], greeting[-_PROOF_SIZE:]
    return hmac.compare_digest(proof, _proof(secret, direction, unproven, before))


def _proof(secret: bytes, direction: bytes, unproven: bytes, before: bytes) -> bytes:
    key = _derived(secret, None, b"greeting", _KEY_SIZE)
    # The first greeting has a fixed place in the text: its own size is in its head.
    return hmac.digest(key, _LABEL + direction + before + unproven, "sha256")


def _body_of(greeting: bytes) -> bytes:
    return greeting[GREETING_HEAD.size : -_PROOF_SIZE]


def _keys(secret: bytes, private: X25519PrivateKey, other_body: bytes, greetings: bytes) -> tuple[bytes, bytes]:
    """Return the keys of the dialer's records and of the acceptor's."""
    try:
        agreed = private.exchange(X25519PublicKey.from_public_bytes(other_body[_NONCE_SIZE:_FIXED_SIZE]))
    except ValueError as error:
        raise NotProven("the greeting has no usable key") from error
    both = _derived(agreed + secret, sha256(greetings).digest(), b"records", 2 * _KEY_SIZE)
    return both[:_KEY_SIZE], both[_KEY_SIZE:]


def _derived(material: bytes, salt: bytes | None, purpose: bytes, size: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=size, salt=salt, info=_LABEL + purpose).derive(material)


def _public(private: X25519PrivateKey) -> bytes:
    return private.public_key().public_bytes_raw()


def _with_size(name: bytes) -> bytes:
    if len(name) > _NAME_SIZE_MAX:
        raise NotProven(f"a name has more than {_NAME_SIZE_MAX} bytes")
    return bytes((len(name),)) + name


def _names_of(content: bytes) -> tuple[str, str, str]:
    names = []
    for _ in range(3):
        size = content[0] if content else 0
        names.append(content[1 : 1 + size].decode("utf-8", "replace"))
        content = content[1 + size :]
    group, dialer, acceptor = names
    return group, dialer, acceptor
