"""The end of the validity of a certificate with which a connection was opened.

A handshake checks it once. Connections stay open for months, so servers compare it again: with each request of a
client, and each second with the connections between nodes.
"""

from __future__ import annotations

import ssl
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from dledger.security.errors import CertificateExpired, CertificateFault
from dledger.security.pem_files import validity_of_shown
from dledger.security.revoked import TIME_FORMAT

if TYPE_CHECKING:
    from collections.abc import Mapping

NEVER_S: Final = float("inf")
# Certificates whose end is remembered; a server has at most some thousand connections.
_REMEMBERED_MAX: Final = 4_096


def wall_clock_s() -> float:
    """Return the seconds since 1970."""
    return time.time()  # noqa: TID251  (validity is a time of day)


@lru_cache(_REMEMBERED_MAX)
def end_of_pem(certificate: bytes) -> float:
    """Return until when a certificate in PEM is valid, in seconds since 1970; 0 if its dates are damaged."""
    try:
        _, end = validity_of_shown(certificate)
    except CertificateFault:
        return 0.0
    return end.timestamp()


def refuse_expired(end_s: float, now_s: float) -> None:
    """Raise if a certificate is no longer valid.

    Args:
        end_s: the end of its validity, in seconds since 1970.
        now_s: the current time.

    Raises:
        CertificateExpired: it is not.
    """
    if now_s > end_s:
        text = f"{datetime.fromtimestamp(end_s, UTC):{TIME_FORMAT}}"
        raise CertificateExpired(f"the certificate of this connection was valid until {text}; renew it")


def refuse_expired_peer(certificate: Mapping[str, Any] | None) -> None:
    """Raise if the certificate of a connection between nodes is no longer valid.

    Args:
        certificate: as `ssl` reports it (`getpeercert()`); None: there is none.

    Raises:
        CertificateExpired: it is not.
    """
    if certificate:
        refuse_expired(ssl.cert_time_to_seconds(certificate["notAfter"]), wall_clock_s())
