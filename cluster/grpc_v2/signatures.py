"""How a call of gRPC is signed.

| metadata | value |
| --- | --- |
| `authorization` | `MQv2-HMAC-SHA1 Credential=KEY[/…], SignedHeaders=x-mq-date-time, Signature=HEX` |
| `x-mq-date-time` | `yyyyMMddTHHmmssZ`; the only thing that is signed |

Source: RocketMQ `AuthenticationInterceptor`, `DefaultAuthenticationContextBuilder`; what clients send is in their
`Signature`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from cluster.access.access_keys import SIGNATURE_SIZE, SignatureRefused
from cluster.fronts.callers import Signed

if TYPE_CHECKING:
    from collections.abc import Iterable

# Several clients write the time of their time zone, up to 14 hours from UTC, and call it UTC.
DATE_WINDOW_S: Final = 15 * 3_600
_DATE_FORMAT: Final = "%Y%m%dT%H%M%SZ"
# The second form is that of RFC 3339, which the client in Rust writes.
_DATE: Final = re.compile(
    r"[0-9]{8}T[0-9]{6}Z"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)
_SIGNED: Final = re.compile(
    r"MQv2-HMAC-SHA1 +Credential=([^,/ ]{0,64})(?:/[^, ]{0,128})?, *SignedHeaders=x-mq-date-time, *"
    rf"Signature=([0-9A-Fa-f]{{{2 * SIGNATURE_SIZE}}})",
    re.ASCII,
)
_HEADERS: Final = ("authorization", "x-mq-date-time")
_HEADER_LENGTH_MAX: Final = 512
_ANONYMOUS: Final = re.compile(r"MQv2-HMAC-SHA1 +Credential=[,/ ]", re.ASCII)


def signed_call(metadata: Iterable[tuple[str, Any]], now_s: int) -> Signed | None:
    """Return the signature in the metadata of a call; None: it is anonymous: some clients send an empty key.

    Args:
        metadata: of the call.
        now_s: seconds since 1970.

    Raises:
        SignatureRefused: the metadata have not the expected form, or the date is not near enough to the time.
    """
    found = _headers(metadata)
    authorization, date = found.get("authorization", ""), found.get("x-mq-date-time", "")
    if not authorization or _ANONYMOUS.match(authorization):
        return None
    parts = _SIGNED.fullmatch(authorization)
    if parts is None or not _DATE.fullmatch(date):
        raise SignatureRefused("malformed metadata")
    check_date(date, now_s)
    return Signed(parts[1], bytes.fromhex(parts[2]), date.encode())


def _headers(metadata: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Return the headers of a signature; of those that come more than once the last ones.

    A Go client adds the headers of each attempt of a call to those of the attempt before.

    Raises:
        SignatureRefused: one is too long, or no text.
    """
    found: dict[str, str] = {}
    for name, value in metadata:
        if name in _HEADERS:
            if not isinstance(value, str) or len(value) > _HEADER_LENGTH_MAX:
                raise SignatureRefused("malformed metadata")
            found[name] = value
    return found


def check_date(date: str, now_s: int) -> None:
    """Raise unless a date is near enough to the time.

    Raises:
        SignatureRefused: it is not, or no date.
    """
    try:
        if "-" in date:
            signed_s = datetime.fromisoformat(date).timestamp()
        else:
            signed_s = datetime.strptime(date, _DATE_FORMAT).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        raise SignatureRefused("malformed metadata") from None
    if abs(signed_s - now_s) > DATE_WINDOW_S:
        raise SignatureRefused(f"signed at {date}, which is more than {DATE_WINDOW_S // 3_600} h from now")
