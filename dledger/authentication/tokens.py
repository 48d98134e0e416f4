"""Tokens that a call carries in place of a password.

| token | text | the server keeps |
| --- | --- | --- |
| of a session: after a login, for an hour | `dls1_` and base64url of what follows | a key of the cluster |
| of an API: for programs, until it is deleted | `dla1_` and 32 random bytes in base64url | its SHA-256 |

A session token, big-endian:

| offset | size | type | field | meaning |
| ---: | ---: | --- | --- | --- |
| 0 | 8 | u64 | expires | seconds since 1970 |
| 8 | 8 | u64 | epoch | of the user's credentials; a later one makes the token void |
| 16 | n | text | user | 1 to 64 ASCII characters |
| 16 + n | 32 | bytes | MAC | HMAC-SHA-256 of all before it, with a key of the cluster |

Every node of the cluster reads them without asking another one. An API token is random, so that a quick hash protects
it as well as a slow one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dledger.authentication.scram import USER_LENGTH_MAX
from dledger.errors import DLedgerError

if TYPE_CHECKING:
    from collections.abc import Sequence

SESSION_S: Final = 3_600
# Of two nodes of a cluster, at most, when one makes a session and another one checks it.
_CLOCK_DIFFERENCE_S: Final = 600
KEY_SIZE: Final = 32
API_TOKEN_SIZE: Final = 32
SESSION_PREFIX: Final = "dls1_"
API_PREFIX: Final = "dla1_"
_HEAD: Final = struct.Struct(">QQ")
assert _HEAD.size == 16
_MAC_SIZE: Final = 32
TOKEN_LENGTH_MAX: Final = len(SESSION_PREFIX) + (_HEAD.size + USER_LENGTH_MAX + _MAC_SIZE + 2) // 3 * 4
# Without this a MAC of another use of the key would count.
_PURPOSE: Final = b"dledger session token 1\0"


class TokenRefused(DLedgerError):
    """A token is none, not of this cluster, or expired. Log in again, or create another API token."""


@dataclass(frozen=True, slots=True)
class Session:
    """What a session token says.

    Attributes:
        user: name.
        epoch: of the user's credentials at the login; compare it with the current one.
        expires_s: seconds since 1970.
    """

    user: str
    epoch: int
    expires_s: int


def session_token(session: Session, key: bytes) -> str:
    """Return the token of a session; it is as good as the password until it expires.

    Args:
        session: of a user that has logged in.
        key: the newest of the cluster, 32 bytes.
    """
    data = _HEAD.pack(session.expires_s, session.epoch) + session.user.encode("ascii")
    return SESSION_PREFIX + base64.urlsafe_b64encode(data + _mac(key, data)).decode().rstrip("=")


def read_session_token(token: str, keys: Sequence[bytes], now_s: int) -> Session:
    """Return the session of a token.

    Args:
        token: from a client: anything.
        keys: of the cluster, the newest first: after a change the one before is accepted, too.
        now_s: seconds since 1970.

    Raises:
        TokenRefused: it is none, expired, or has no key of the cluster.
    """
    text = token.removeprefix(SESSION_PREFIX)
    if len(token) > TOKEN_LENGTH_MAX or text == token or not text.isascii():
        raise TokenRefused("token: expected a session token; log in again")
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise TokenRefused("token: expected a session token; log in again") from None
    data, mac = raw[:-_MAC_SIZE], raw[-_MAC_SIZE:]
    # Each key is compared: the time does not show which one it was.
    is_ours = sum(hmac.compare_digest(mac, _mac(key, data)) for key in keys) > 0
    if len(data) <= _HEAD.size or not is_ours:
        raise TokenRefused("token: not of this broker, or of a key that was replaced; log in again")
    expires_s, epoch = _HEAD.unpack_from(data)
    if now_s >= expires_s:
        raise TokenRefused("token: expired; log in again")
    if expires_s > now_s + SESSION_S + _CLOCK_DIFFERENCE_S:
        # Only with a stolen key: so it gives no session that outlives the next change of the key by more than that.
        raise TokenRefused("token: valid for longer than any session; log in again")
    return Session(data[_HEAD.size :].decode("ascii"), epoch, expires_s)


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, _PURPOSE + data, "sha256")


def api_token(secret: bytes) -> str:
    """Return the text of an API token; it is shown once and never stored.

    Args:
        secret: 32 random bytes: `secrets.token_bytes`.
    """
    assert len(secret) == API_TOKEN_SIZE, len(secret)
    return API_PREFIX + base64.urlsafe_b64encode(secret).decode().rstrip("=")


def digest_of_api_token(token: str) -> bytes | None:
    """Return by what the server finds an API token: its SHA-256; None: the text has not the form of one."""
    if len(token) > TOKEN_LENGTH_MAX or not token.startswith(API_PREFIX) or not token.isascii():
        return None
    return hashlib.sha256(token.encode("ascii")).digest()
