"""The security of the ports of a node or a standalone broker: plain, or TLS with certificates that may change."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cluster.fronts.front_security import PLAIN_FRONTS, FrontSecurity
from cluster.process.tasks import end_tasks
from dledger.security.credentials import CertificateFiles, Credentials
from dledger.security.identity import CertificateIdentity, IdentityKind
from dledger.security.metrics import CertificateMetrics, RevokedMetrics
from dledger.security.peers import PLAIN_PEERS, PeerKind, PeerSecurity
from dledger.security.revoked import CurrentRevoked, nothing_revoked, open_revoked
from dledger.security.server_port import WithoutClientCertificates
from dledger.security.settings import PLAIN
from dledger.security.shared_secret import open_shared_secret

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable
    from contextlib import AsyncExitStack

    from prometheus_client import CollectorRegistry

    from cluster.config.exposure import ExposedPort
    from cluster.config.load import ServerConfig
    from cluster.config.port_tls import ProcessTls
    from dledger.security.server_port import PortSecurity
    from dledger.security.settings import Security
    from dledger.security.shared_secret import SharedSecret

_EVENTS: Final = {
    "clients": "client_tls",
    "metrics": "metrics_tls",
    "peers": "peer_tls",
    "name_servers": "name_server_tls",
    "fronts": "front_tls",
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProcessSecurity:
    """The security of one node, or of a standalone broker.

    Attributes:
        clients: of the port for clients.
        metrics: returns the context of the next connection to the page of metrics; None: plain HTTP.
        name_servers: returns the security of the next connection to a name server.
        peers: of connections with other nodes.
        revoked: returns the certificates that are refused now; another object after a change.
        fronts: of the ports for RocketMQ's clients.
    """

    clients: PortSecurity = PLAIN
    metrics: Callable[[], ssl.SSLContext] | None = None
    name_servers: Callable[[], Security] = lambda: PLAIN
    peers: PeerSecurity = PLAIN_PEERS
    revoked: CurrentRevoked = nothing_revoked
    fronts: FrontSecurity = PLAIN_FRONTS


async def node_security(config: ServerConfig, registry: CollectorRegistry, stack: AsyncExitStack) -> ProcessSecurity:
    """Load the certificates of a node, and watch their files until `stack` is closed.

    Raises:
        dledger.security.errors.CertificateFault: the certificates cannot be used.
    """
    log_exposed_ports(config.exposed_ports)
    own = CertificateIdentity(config.node.group, IdentityKind.NODE, config.node.self_id)
    used = await _opened(config.tls, own, config.peer_certificates, registry, stack)
    secret: SharedSecret | None = None
    if config.peer_secret_file:
        secret = await asyncio.to_thread(open_shared_secret, config.peer_secret_file)
        stack.push_async_callback(end_tasks, [asyncio.create_task(secret.watch())])
        logger.info("peer_secret secrets=%d", len(secret.current))
    revoked = await opened_revoked(config.revoked_file, registry, stack)
    peers = replace(_peers_of(config.peer_kinds, used.get("peers"), secret), revoked=revoked)
    return replace(_security_of(used), peers=peers, revoked=revoked)


def log_exposed_ports(ports: Iterable[ExposedPort]) -> None:
    """Log ports that other machines can use without authentication, because the settings allow them."""
    for port in ports:
        logger.warning("insecure_port option=%s address=%s", port.option, port.address)


async def standalone_security(
    tls: ProcessTls, revoked_file: str, broker: str, registry: CollectorRegistry, stack: AsyncExitStack
) -> ProcessSecurity:
    """Load the certificates of a standalone broker, and watch their files until `stack` is closed.

    Args:
        tls: its settings.
        revoked_file: certificates that are refused; empty: none.
        broker: its name: to name servers it is the node of this name, of the group of this name.
        registry: of the metrics.
        stack: ends the watching.

    Raises:
        dledger.security.errors.CertificateFault: the certificates cannot be used.
    """
    own = CertificateIdentity(broker, IdentityKind.NODE, broker)
    used = await _opened(tls, own, None, registry, stack)
    return replace(_security_of(used), revoked=await opened_revoked(revoked_file, registry, stack))


async def opened_revoked(path: str, registry: CollectorRegistry, stack: AsyncExitStack) -> CurrentRevoked:
    """Return the function that returns the revoked certificates; their file is watched until `stack` is closed.

    Args:
        path: of the file; empty: nothing is revoked.
        registry: of the metrics.
        stack: ends the watching.

    Raises:
        dledger.security.errors.CertificateFault: the file cannot be used.
    """
    if not path:
        return nothing_revoked
    revoked = await asyncio.to_thread(open_revoked, path)
    RevokedMetrics(registry, revoked)
    stack.push_async_callback(end_tasks, [asyncio.create_task(revoked.watch())])
    logger.info("revoked owners=%d", len(revoked.current.until))
    return lambda: revoked.current


async def _opened(
    tls: ProcessTls,
    own: CertificateIdentity,
    peers: CertificateFiles | None,
    registry: CollectorRegistry,
    stack: AsyncExitStack,
) -> dict[str, Credentials]:
    """Return the certificates of each use; they are watched until `stack` is closed."""
    used: dict[str, Credentials] = {}
    for use, port in (("clients", tls.clients), ("metrics", tls.metrics)):
        if port is not None:
            used[use] = await asyncio.to_thread(Credentials, port.files, is_certificate_required=port.is_mutual)
    # A leader that demands certificates must see that of a node; another one does not look at it.
    of_fronts = own if tls.clients is not None and tls.clients.is_mutual else None
    dialing = (("peers", peers, own), ("name_servers", tls.name_servers, own), ("fronts", tls.fronts, of_fronts))
    for use, files, expected in dialing:
        if files is not None:
            used[use] = await asyncio.to_thread(Credentials, files, expected=expected)
    watch_certificates(used, registry, stack)
    return used


def watch_certificates(used: dict[str, Credentials], registry: CollectorRegistry, stack: AsyncExitStack) -> None:
    """Watch the files of certificates, by use, until `stack` is closed, and register their metrics."""
    if used:
        CertificateMetrics(registry, used)
    for use, credentials in used.items():
        stack.push_async_callback(end_tasks, [asyncio.create_task(credentials.watch())])
        mutual = (
            ""
            if use in ("peers", "name_servers", "fronts")
            else f" mutual={credentials.current.tls.is_certificate_required}"
        )
        logger.info("%s%s expires=%s", _EVENTS[use], mutual, credentials.current.expires_at.isoformat())


def _security_of(used: dict[str, Credentials]) -> ProcessSecurity:
    return ProcessSecurity(
        used["clients"].current_tls if "clients" in used else PLAIN,
        used["metrics"].current_page if "metrics" in used else None,
        used["name_servers"].current_tls if "name_servers" in used else lambda: PLAIN,
        fronts=_fronts_of(used),
    )


def _fronts_of(used: dict[str, Credentials]) -> FrontSecurity:
    if "fronts" not in used:
        return PLAIN_FRONTS
    return FrontSecurity(WithoutClientCertificates(used["clients"].current_tls), used["fronts"].current_tls)


def _peers_of(
    kinds: tuple[PeerKind, ...], credentials: Credentials | None, secret: SharedSecret | None
) -> PeerSecurity:
    kind, *others = kinds
    if PeerKind.PLAIN in others:
        logger.warning("peer_connections_may_be_plain: remove peer_security_also when all nodes have changed")
    return PeerSecurity(kind, others[0] if others else None, credentials, secret)
