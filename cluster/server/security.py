"""The security of a node's client port: plain, or TLS with certificates that are reloaded when they change."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cluster.process.tasks import end_tasks
from dledger.security.credentials import Credentials
from dledger.security.metrics import CertificateMetrics
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from prometheus_client import CollectorRegistry

    from cluster.config.load import ServerConfig
    from dledger.security.server_port import PortSecurity

logger = logging.getLogger(__name__)


async def client_port_security(
    config: ServerConfig, registry: CollectorRegistry, stack: AsyncExitStack
) -> PortSecurity:
    """Load the certificates, and watch their files until `stack` is closed.

    Raises:
        dledger.security.errors.CertificateFault: the certificates cannot be used.
    """
    if config.client_certificates is None:
        return PLAIN
    credentials = await asyncio.to_thread(
        Credentials, config.client_certificates, is_certificate_required=config.is_client_certificate_required
    )
    CertificateMetrics(registry, {"clients": credentials})
    watching = asyncio.create_task(credentials.watch())
    stack.push_async_callback(end_tasks, [watching])
    expires = credentials.current.expires_at.isoformat()
    logger.info("client_tls mutual=%s expires=%s", config.is_client_certificate_required, expires)
    return credentials.current_tls
