"""The security of a node's ports: plain, or TLS with certificates that are reloaded when they change."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.process.tasks import end_tasks
from dledger.security.credentials import Credentials
from dledger.security.identity import CertificateIdentity, IdentityKind
from dledger.security.metrics import CertificateMetrics
from dledger.security.peers import PLAIN_PEERS, PeerKind, PeerSecurity
from dledger.security.settings import PLAIN
from dledger.security.shared_secret import SharedSecret

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AsyncExitStack

    from prometheus_client import CollectorRegistry

    from cluster.config.load import ServerConfig
    from dledger.security.server_port import PortSecurity
    from dledger.security.settings import Security

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeSecurity:
    """The security of one node.

    Attributes:
        clients: of the port for clients.
        peers: of connections with other nodes.
        name_servers: returns that of the next connection to a name server.
    """

    clients: PortSecurity = PLAIN
    peers: PeerSecurity = PLAIN_PEERS
    name_servers: Callable[[], Security] = lambda: PLAIN


async def node_security(config: ServerConfig, registry: CollectorRegistry, stack: AsyncExitStack) -> NodeSecurity:
    """Load the certificates, and watch their files until `stack` is closed.

    Raises:
        dledger.security.errors.CertificateFault: the certificates cannot be used.
    """
    for port in config.exposed_ports:
        logger.warning("insecure_port option=%s address=%s", port.option, port.address)
    used: dict[str, Credentials] = {}
    if config.client_certificates is not None:
        used["clients"] = await asyncio.to_thread(
            Credentials, config.client_certificates, is_certificate_required=config.is_client_certificate_required
        )
    own = CertificateIdentity(config.node.group, IdentityKind.NODE, config.node.self_id)
    for use, files in (("peers", config.peer_certificates), ("name_servers", config.name_server_certificates)):
        if files is not None:
            used[use] = await asyncio.to_thread(Credentials, files, expected=own)
    if used:
        CertificateMetrics(registry, used)
    for use, credentials in used.items():
        stack.push_async_callback(end_tasks, [asyncio.create_task(credentials.watch())])
        expires = credentials.current.expires_at.isoformat()
        if use == "clients":
            logger.info("client_tls mutual=%s expires=%s", config.is_client_certificate_required, expires)
        else:
            logger.info("%s expires=%s", "peer_tls" if use == "peers" else "name_server_tls", expires)
    secret: SharedSecret | None = None
    if config.peer_secret_file:
        secret = await asyncio.to_thread(SharedSecret, config.peer_secret_file)
        stack.push_async_callback(end_tasks, [asyncio.create_task(secret.watch())])
        logger.info("peer_secret secrets=%d", len(secret.current))
    return NodeSecurity(
        used["clients"].current_tls if "clients" in used else PLAIN,
        _peers_of(config.peer_kinds, used.get("peers"), secret),
        used["name_servers"].current_tls if "name_servers" in used else lambda: PLAIN,
    )


def _peers_of(
    kinds: tuple[PeerKind, ...], credentials: Credentials | None, secret: SharedSecret | None
) -> PeerSecurity:
    kind, *others = kinds
    if PeerKind.PLAIN in others:
        logger.warning("peer_connections_may_be_plain: remove peer_security_also when all nodes have changed")
    return PeerSecurity(kind, others[0] if others else None, credentials, secret)
