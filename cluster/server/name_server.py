"""The process of a name server: its ports, and the certificates that they use as these change.

| `tls` | callers | registrations are bound to |
| --- | --- | --- |
| off | everyone | the process that registered first (ADR 34) |
| on | everyone, over TLS | the same |
| mutual | certificates of the authority, by `cluster.api.gates.registrant_rights` | the certificate of the node |

With TLS a second, plain port may serve the same routes, for as long as brokers and clients change one after another.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from cluster.api.gates.registrant_rights import SCOPE, registrant_policy
from cluster.api.name_server import NameServer
from cluster.api.name_servers.links import ask_leader
from cluster.config.audit_settings import AuditSettings
from cluster.config.quotas import QuotaSettings
from cluster.process.serving import GRACE_S, print_ready, run_process, wait_end
from cluster.process.tasks import end_tasks
from cluster.protocol.route_table import SCAN_INTERVAL_MS
from cluster.server.gates import gate_of, opened_audit
from dledger.security.credentials import Credentials
from dledger.service.grpc_server import start_grpc_server

if TYPE_CHECKING:
    import signal

    from cluster.nameserver.ports import AskLeader, LeaderReport
    from dledger.config import Address
    from dledger.security.credentials import CertificateFiles
    from dledger.security.identity import CertificateIdentity

_CALLS_MAX: Final = 1_024

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NameServerConfig:
    """The settings of a name server.

    Attributes:
        address: of the port for brokers and clients.
        certificates: files for TLS on `address`; None: plain connections.
        is_mutual: callers must present a certificate, and access control is on.
        administrators: identities that may take brokers out of use; with `is_mutual`.
        plain_address: of a plain port beside that with TLS, without access control; None: there is none.
        audit_directory: of the audit log; empty: nothing is recorded.
        quotas: what users and addresses may take of this process.
    """

    address: Address
    certificates: CertificateFiles | None = None
    is_mutual: bool = False
    administrators: tuple[CertificateIdentity, ...] = ()
    plain_address: Address | None = None
    audit_directory: str = ""
    quotas: QuotaSettings = field(default_factory=QuotaSettings)


def run_name_server(config: NameServerConfig) -> int:
    """Run a name server until it receives a signal to stop; return the exit code of the process."""
    return run_process("nameserver", partial(_serve, config))


async def _serve(config: NameServerConfig, stopped: asyncio.Future[signal.Signals]) -> None:
    """Serve, and drop silent brokers, until a signal to stop.

    Raises:
        ServerNotStarted: an address is taken or wrong.
        dledger.security.errors.CertificateFault: the certificates cannot be used.
    """
    async with AsyncExitStack() as stack:
        refusals = QuotaRefusals()
        service = await serve_name_server(config, stack, refusals)
        print_ready(nameserver=config.address)
        while not stopped.done():
            await asyncio.wait([stopped], timeout=SCAN_INTERVAL_MS / 1000)
            service.scan()
            refusals.log()
        await wait_end(stopped)


class QuotaRefusals:
    """Counts requests above a quota, for the log of the process: a name server has no metrics page."""

    def __init__(self) -> None:
        self.count = 0
        self._logged = 0

    def add(self) -> None:
        """Count a refusal."""
        self.count += 1

    def log(self) -> None:
        """Log the count, if it has changed since the last time."""
        if self.count != self._logged:
            logger.warning("quota_refused requests=%d since the start", self.count)
            self._logged = self.count


async def serve_name_server(
    config: NameServerConfig, stack: AsyncExitStack, refusals: QuotaRefusals | None = None
) -> NameServer:
    """Serve a name server until `stack` is closed; the caller calls its `scan` every `SCAN_INTERVAL_MS`.

    Args:
        config: its settings.
        stack: closes its parts.
        refusals: counts requests above a quota.

    Raises:
        cluster.audit.log.AuditUnusable: the audit log cannot be written.
        ServerNotStarted: an address is taken or wrong.
        dledger.security.errors.CertificateFault: the certificates cannot be used.
    """
    audit = None
    if config.audit_directory:
        audit = opened_audit(AuditSettings(directory=config.audit_directory), "", str(config.address), stack)
    count = (refusals or QuotaRefusals()).add
    without_certificates = gate_of(None, SCOPE, audit, config.quotas, count)
    if config.certificates is None:
        service = NameServer()
        server = await start_grpc_server(
            config.address, [service.served()], calls_max=_CALLS_MAX, gate=without_certificates
        )
        stack.push_async_callback(server.stop, GRACE_S)
        return service
    used = await asyncio.to_thread(Credentials, config.certificates, is_certificate_required=config.is_mutual)
    stack.push_async_callback(end_tasks, [asyncio.create_task(used.watch())])
    logger.info("client_tls mutual=%s expires=%s", config.is_mutual, used.current.expires_at.isoformat())
    service = NameServer(ask=_asking(config, used))
    gate = without_certificates
    if config.is_mutual:
        gate = gate_of(registrant_policy(config.administrators), SCOPE, audit, config.quotas, count)
    server = await start_grpc_server(
        config.address, [service.served()], security=used.current_tls, calls_max=_CALLS_MAX, gate=gate
    )
    stack.push_async_callback(server.stop, GRACE_S)
    if config.plain_address is not None:
        logger.warning(
            "plain_port address=%s: it has no access control; remove it after the change", config.plain_address
        )
        plain = await start_grpc_server(
            config.plain_address, [service.served()], calls_max=_CALLS_MAX, gate=without_certificates
        )
        stack.push_async_callback(plain.stop, GRACE_S)
    return service


def _asking(config: NameServerConfig, used: Credentials) -> AskLeader:
    """Return how this name server asks nodes whether they lead, for callers without a certificate."""
    over_tls = partial(ask_leader, security=used.current_tls)
    if config.plain_address is None:
        # Without an authority it cannot trust nodes that use TLS.
        return over_tls if used.files.authority else ask_leader

    async def either(address: str) -> LeaderReport | None:
        # During a change nodes use the one or the other.
        reports = await asyncio.gather(over_tls(address), ask_leader(address))
        return next((each for each in reports if each is not None), None)

    return either
