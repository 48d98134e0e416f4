"""The token by which a front calls the leader for a client whose signature it has verified.

The client signs in a way that only the front can verify, so the front names to the leader the access key and the
address of the client. The leader looks up the access key itself: a key that was deleted is refused, whatever the front
knows. The text is `dlf1_` and base64url of, big-endian:

| offset | size | type | field | meaning |
| ---: | ---: | --- | --- | --- |
| 0 | 8 | u64 | expires | seconds since 1970 |
| 8 | 16 | IPv6 | address | of the client, IPv4 as `::ffff:a.b.c.d`; zero: not known |
| 24 | n | text | access key | 1 to 64 ASCII characters |
| 24 + n | 32 | bytes | MAC | HMAC-SHA-256 of all before it and the secret, with a key of the cluster |

The secret is in the MAC so that a token ends with the secret. It never leaves the nodes.
"""

from __future__ import annotations

import base64
import hmac
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Final

from dledger.authentication.tokens import TokenRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Also the largest difference of the clocks of two nodes.
FRONT_TOKEN_S: Final = 900
FRONT_PREFIX: Final = "dlf1_"
_HEAD: Final = struct.Struct(">Q16s")
assert _HEAD.size == 24
_MAC_SIZE: Final = 32
_LENGTH_MAX: Final = 256
# Without this a MAC of another use of the key would count.
_PURPOSE: Final = b"dledger front token 1\0"
_UNKNOWN: Final = bytes(16)


@dataclass(frozen=True, slots=True)
class FrontClient:
    """For which client a front calls.

    Attributes:
        access_key: name of its access key.
        address: of the client; None: not known.
    """

    access_key: str
    address: IPv4Address | IPv6Address | None


def front_token(client: FrontClient, secret: str, key: bytes, now_s: int) -> str:
    """Return the token of a client; it is valid for `FRONT_TOKEN_S`.

    Args:
        client: whose signature was verified.
        secret: of its access key.
        key: the newest of the cluster, 32 bytes.
        now_s: seconds since 1970.
    """
    data = _HEAD.pack(now_s + FRONT_TOKEN_S, _packed(client.address)) + client.access_key.encode("ascii")
    return FRONT_PREFIX + base64.urlsafe_b64encode(data + _mac(key, data, secret)).decode().rstrip("=")


def read_front_token(
    token: str, keys: Sequence[bytes], secret_of: Callable[[str], str | None], now_s: int
) -> tuple[FrontClient, int]:
    """Return the client of a token, and until when it is valid, in seconds since 1970.

    Args:
        token: from a caller: anything.
        keys: of the cluster, the newest first.
        secret_of: returns the secret of an access key; None: there is none.
        now_s: seconds since 1970.

    Raises:
        TokenRefused: it is none, has expired, is not of this cluster, or of an access key that does not exist.
    """
    text = token.removeprefix(FRONT_PREFIX)
    if len(token) > _LENGTH_MAX or text == token or not text.isascii():
        raise TokenRefused("token: expected one of a front")
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        data, mac = raw[:-_MAC_SIZE], raw[-_MAC_SIZE:]
        access_key = data[_HEAD.size :].decode("ascii")
    except ValueError:
        raise TokenRefused("token: expected one of a front") from None
    secret = secret_of(access_key) if access_key else None
    # Each key is compared: the time does not show which one it was.
    is_ours = sum(hmac.compare_digest(mac, _mac(key, data, secret or "")) for key in keys) > 0
    if secret is None or not is_ours:
        raise TokenRefused("token: not of a front of this broker, or its access key has changed")
    expires_s, address = _HEAD.unpack_from(data)
    if not now_s < expires_s <= now_s + 2 * FRONT_TOKEN_S:
        raise TokenRefused("token: expired, or valid for longer than any of a front")
    return FrontClient(access_key, _address(address)), expires_s


def _packed(address: IPv4Address | IPv6Address | None) -> bytes:
    if address is None:
        return _UNKNOWN
    return address.packed if isinstance(address, IPv6Address) else b"\0" * 10 + b"\xff\xff" + address.packed


def _address(packed: bytes) -> IPv4Address | IPv6Address | None:
    if packed == _UNKNOWN:
        return None
    address = IPv6Address(packed)
    return address.ipv4_mapped or address


def _mac(key: bytes, data: bytes, secret: str) -> bytes:
    return hmac.digest(key, _PURPOSE + data + b"\0" + secret.encode(), "sha256")
