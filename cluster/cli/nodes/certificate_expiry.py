"""When the certificates of nodes expire, as `dledger status` shows it: read from a handshake with each node.

Not here: the metric of all certificates of a process (`dledger.security.metrics`).
"""

from __future__ import annotations

import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from dledger.config import Address
from dledger.security.contexts import client_context
from dledger.security.settings import Tls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dledger.security.settings import Security

_THREADS_MAX: Final = 32
_WARNED_DAYS: Final = 14


def certificate_expiries(endpoints: Iterable[str], security: Security, timeout_s: float) -> dict[str, datetime]:
    """Return when the certificate of each node expires; nodes without TLS, or that do not answer, are omitted.

    Args:
        endpoints: `host:port` of the nodes' ports for clients.
        security: of the client; its certificate is presented, and its authority verifies those of the nodes.
        timeout_s: of one handshake.
    """
    wanted = list(endpoints)
    if not isinstance(security, Tls) or not wanted:
        return {}
    context = client_context(security)

    def expiry(endpoint: str) -> datetime | None:
        try:
            return _expiry_at(endpoint, security.server_name, context, timeout_s)
        except (OSError, ValueError):
            # Its row shows the reason, by the call that failed.
            return None

    with ThreadPoolExecutor(min(len(wanted), _THREADS_MAX)) as threads:
        found = zip(wanted, threads.map(expiry, wanted), strict=True)
        return {endpoint: ends_at for endpoint, ends_at in found if ends_at is not None}


def _expiry_at(endpoint: str, server_name: str, context: ssl.SSLContext, timeout_s: float) -> datetime | None:
    """Return when the certificate at an address expires.

    Raises:
        OSError: there is no connection, or the certificate is not trusted.
        ValueError: the address is none.
    """
    address = Address.parse(endpoint)
    with (
        socket.create_connection((address.host, address.port), timeout_s) as plain,
        context.wrap_socket(plain, server_hostname=server_name or address.host) as secured,
    ):
        text = (secured.getpeercert() or {}).get("notAfter")
    return None if text is None else datetime.fromtimestamp(ssl.cert_time_to_seconds(str(text)), UTC)


def expiry_text(ends_at: datetime | None, now: datetime) -> str:
    """Return the time that is left, in a table's markup; None: it is not known."""
    if ends_at is None:
        return "-"
    days = (ends_at - now).days
    if days < 0:
        return "[red]expired[/]"
    return f"{days} days" if days >= _WARNED_DAYS else f"[red]{days} days[/]"
