"""The process of a name server: its ports, and the certificates that they use as these change.

| `tls` | callers | registrations are bound to |
| --- | --- | --- |
| off | everyone | the process that registered first (ADR 34) |
| on | everyone, over TLS | the same |
| mutual | certificates of the authority, by `cluster.api.gates.registrant_rights` | the certificate of the node |

With TLS a second, plain port may serve the same routes, for as long as brokers and clients change one after another.
The page `/metrics` has an address of its own, with or without TLS.
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
from cluster.api.name_servers.metrics import NameServerMetrics
from cluster.config.audit_settings import AuditSettings
from cluster.config.quotas import QuotaSettings
from cluster.process.health import Health
from cluster.process.metrics_page import metrics_page
from cluster.process.serving import GRACE_S, print_ready, process_registry, run_process, wait_end
from cluster.protocol.errors import Reason
from cluster.protocol.route_table import SCAN_INTERVAL_MS
from cluster.server.gates import gate_of, opened_audit
from cluster.server.security import log_exposed_ports, opened_revoked, watch_certificates
from dledger.security.credentials import Credentials
from dledger.security.settings import PLAIN
from dledger.service.grpc_server import start_grpc_server

if TYPE_CHECKING:
    import signal

    from prometheus_client import CollectorRegistry

    from cluster.config.exposure import ExposedPort
    from cluster.config.port_tls import PortTls
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
        brokers: names of the brokers that may register, with `is_mutual`; empty: all.
        plain_address: of a plain port beside that with TLS, without access control; None: there is none.
        audit_directory: of the audit log; empty: nothing is recorded.
        quotas: what users and addresses may take of this process.
        metrics_address: address of `/metrics`; None: not served.
        metrics_tls: TLS of that page; None: plain HTTP.
        revoked_file: certificates that are refused; empty: none.
        exposed_ports: unsecured ports that other machines can reach; `--insecure` allows them.
        is_debuggable: other processes of the same user may read the memory of the process.
    """

    address: Address
    certificates: CertificateFiles | None = None
    is_mutual: bool = False
    administrators: tuple[CertificateIdentity, ...] = ()
    plain_address: Address | None = None
    audit_directory: str = ""
    quotas: QuotaSettings = field(default_factory=QuotaSettings)
    metrics_address: Address | None = None
    metrics_tls: PortTls | None = None
    revoked_file: str = ""
    brokers: tuple[str, ...] = ()
    exposed_ports: tuple[ExposedPort, ...] = ()
    is_debuggable: bool = False


def run_name_server(config: NameServerConfig) -> int:
    """Run a name server until it receives a signal to stop; return the exit code of the process."""
    return run_process("nameserver", partial(_serve, config), is_debuggable=config.is_debuggable)


async def _serve(config: NameServerConfig, stopped: asyncio.Future[signal.Signals]) -> None:
    """Serve, and drop silent brokers, until a signal to stop.

    Raises:
        ServerNotStarted: an address is taken or wrong.
        dledger.security.errors.CertificateFault: the certificates cannot be used.
    """
    registry = process_registry()
    metrics = NameServerMetrics(registry)
    logged = 0
    async with AsyncExitStack() as stack:
        service = await serve_name_server(config, stack, metrics, registry)
        page = {} if config.metrics_address is None else {"metrics": config.metrics_address}
        print_ready(nameserver=config.address, **page)
        while not stopped.done():
            await asyncio.wait([stopped], timeout=SCAN_INTERVAL_MS / 1000)
            service.scan()
            if metrics.quota_refused != logged:
                logged = metrics.quota_refused
                logger.warning("quota_refused requests=%d since the start", logged)
        await wait_end(stopped)


async def serve_name_server(
    config: NameServerConfig, stack: AsyncExitStack, metrics: NameServerMetrics, registry: CollectorRegistry
) -> NameServer:
    """Serve a name server until `stack` is closed; the caller calls its `scan` every `SCAN_INTERVAL_MS`.

    Args:
        config: its settings.
        stack: closes its parts.
        metrics: of this name server.
        registry: of the process; it has `metrics`, and gets those of certificates.

    Raises:
        cluster.audit.log.AuditUnusable: the audit log cannot be written.
        ServerNotStarted: an address is taken or wrong.
        OSError: the address of the metrics cannot be listened on.
        dledger.security.errors.CertificateFault: the certificates cannot be used.
    """
    log_exposed_ports(config.exposed_ports)
    used = await _opened(config)
    watch_certificates(used, registry, stack)
    revoked = await opened_revoked(config.revoked_file, registry, stack)
    page_tls = used["metrics"].current_page if "metrics" in used else None
    health = Health()
    stack.enter_context(metrics_page(config.metrics_address, registry, tls=page_tls, revoked=revoked, health=health))
    if config.audit_directory:
        metrics.audit = opened_audit(AuditSettings(directory=config.audit_directory), "", str(config.address), stack)
    clients = used.get("clients")
    service = NameServer(ask=ask_leader if clients is None else _asking(config, clients), metrics=metrics)
    without_certificates = gate_of(None, SCOPE, metrics.audit, config.quotas, metrics)
    gate = without_certificates
    if config.is_mutual:
        if not config.brokers:
            logger.warning(
                "all_brokers address=%s: a node of any group of the authority can register a broker with the topics of "
                "others; name yours with --broker",
                config.address,
            )
        policy = registrant_policy(config.administrators, config.brokers)
        gate = gate_of(policy, SCOPE, metrics.audit, config.quotas, metrics, revoked)
    ports = [(config.address, PLAIN if clients is None else clients.current_tls, gate)]
    if config.plain_address is not None:
        logger.warning(
            "plain_port address=%s: it has no access control; remove it after the change", config.plain_address
        )
        ports.append((config.plain_address, PLAIN, without_certificates))
    for address, security, port_gate in ports:
        server = await start_grpc_server(
            address,
            [service.served()],
            security=security,
            calls_max=_CALLS_MAX,
            gate=port_gate,
            count_overloaded=partial(metrics.count_refusal, Reason.OVERLOADED.name),
        )
        stack.push_async_callback(server.stop, GRACE_S)
    health.watch(tuple)
    stack.callback(health.stop)
    return service


async def _opened(config: NameServerConfig) -> dict[str, Credentials]:
    """Return the certificates of each use."""
    used: dict[str, Credentials] = {}
    if config.certificates is not None:
        used["clients"] = await asyncio.to_thread(
            Credentials, config.certificates, is_certificate_required=config.is_mutual
        )
    if config.metrics_tls is not None:
        page = config.metrics_tls
        used["metrics"] = await asyncio.to_thread(Credentials, page.files, is_certificate_required=page.is_mutual)
    return used


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
