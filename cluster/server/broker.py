"""The composition of a broker from a replica and services; and the process of a standalone broker.

| mode | messages and state | parts |
| --- | --- | --- |
| standalone | this machine alone | `cluster.replica.standalone`: plain log, message store, snapshots of the state |
| replicated | a Raft group | the node's replica with the same port, `cluster.replica.port` |

Everything above the port is the same in both modes. Start: lock and recover the directory, start the registration with
name servers, start the services, log `ready`. Stop: stop the services and the registration, then make everything
durable and close. A failed write or sync ends the process, because the content of the disk is then unknown.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from cluster.access.quotas import Quotas
from cluster.api.access_service import AccessService
from cluster.api.broker_service import BrokerService
from cluster.api.gates.access_gate import AccessGate
from cluster.api.gates.call_audit import CallAudit
from cluster.api.gates.quota_gate import QuotaGate
from cluster.api.name_servers.links import GrpcNameServer
from cluster.api.rights import Scope
from cluster.broker.core import BrokerCore, BrokerOptions, wall_clock_ms
from cluster.broker.leader_contact import LeaderContact
from cluster.broker.metrics import BrokerGauges, BrokerMetrics
from cluster.broker.rocketmq_facts import taken_facts
from cluster.broker.rocketmq_metrics import RocketMQMetrics
from cluster.config.audit_settings import AuditSettings
from cluster.config.port_tls import ProcessTls
from cluster.delivery.compaction import TopicCompaction
from cluster.delivery.delay_levels import DelayDelivery
from cluster.delivery.timers import TimerDelivery
from cluster.delivery.transactions.checks import TransactionChecks
from cluster.delivery.transactions.ends import TransactionEnds
from cluster.fronts.callers import FrontAudit
from cluster.fronts.front_security import PLAIN_FRONTS
from cluster.nameserver.registration import Registrar
from cluster.process.health import Health
from cluster.process.metrics_page import metrics_page
from cluster.process.serving import GRACE_S, print_ready, process_registry, run_process, wait_end
from cluster.process.tasks import end_tasks
from cluster.protocol.errors import Reason
from cluster.replica.standalone import StandaloneConfig, StandaloneReplica
from cluster.server.data_modes import warn_of_readers
from cluster.server.first_user import create_first_user, first_user_of
from cluster.server.gates import opened_audit
from cluster.server.opened_spans import opened_spans
from cluster.server.rocketmq import serve_rocketmq
from cluster.server.security import log_exposed_ports, standalone_security
from cluster.server.store_host import resolve_store_host
from cluster.server.trace_topic import create_trace_topic
from dledger.security.revoked import CurrentRevoked, nothing_revoked
from dledger.security.server_port import requires_certificates
from dledger.security.settings import PLAIN
from dledger.service.call_gate import holder
from dledger.service.frames.metrics import frame_port
from dledger.service.grpc_server import Served, start_grpc_server
from store.fs.linux.files import OsFiles

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Sequence

    from prometheus_client import CollectorRegistry

    from cluster.access.users import UserSettings
    from cluster.audit.log import AuditLog
    from cluster.config.exposure import ExposedPort
    from cluster.fronts.front_security import FrontSecurity
    from cluster.protocol.route_table import Registration
    from cluster.remoting.port import RemotingPort
    from cluster.replica.port import Replica
    from cluster.server.span_export import SpanExport
    from dledger.config import Address
    from dledger.security.server_port import PortSecurity
    from dledger.security.settings import Security
    from dledger.service.call_gate import CallGate
    from dledger.service.frames.port import FramePort

# The delay of a registration after a change of nodes; changes of role or topics are registered immediately.
_REGISTRATION_INTERVAL_S: Final = 0.5
# The limit of a caller's wait for name servers after it changed a topic.
_ANNOUNCE_LIMIT_S: Final = 1.0

logger = logging.getLogger(__name__)


class Broker:
    """The services of one broker in front of a replica; `async with` starts and stops them, but not the replica.

    Args:
        replica: the open replica.
        options: settings of the broker's services.
        address: address of the client port.
        name_servers: `host:port` of each name server, comma separated; empty: none.
        name_server_security: returns the security of the next connection to a name server.
        registry: registry of the metrics; None: no metrics.
        beside: further services on the same port.
        first_user: user to create if the broker has none; until then all calls are refused.
        security: TLS settings of `address`.
        audit: takes records of calls; open until the broker has ended. None: nothing is recorded.
        revoked: returns the certificates of callers that are refused now.
        frames: the frame port of the same services, not started; None: there is none.
        spans: exports spans of puts; open until the broker has ended. None: nothing is traced.
        rocketmq_grpc_address: of the port for official clients of RocketMQ 5; None: there is none.
        remoting: the port for RocketMQ's remoting protocol; None: there is none.
        fronts: TLS settings of the ports of both.
        clock_ms: the wall clock, by which delayed messages are due; milliseconds since 1970.
    """

    def __init__(
        self,
        replica: Replica,
        options: BrokerOptions,
        address: Address,
        *,
        name_servers: str = "",
        name_server_security: Callable[[], Security] = lambda: PLAIN,
        registry: CollectorRegistry | None = None,
        beside: Sequence[Served] = (),
        first_user: UserSettings | None = None,
        security: PortSecurity = PLAIN,
        audit: AuditLog | None = None,
        revoked: CurrentRevoked = nothing_revoked,
        frames: FramePort | None = None,
        spans: SpanExport | None = None,
        rocketmq_grpc_address: Address | None = None,
        remoting: RemotingPort | None = None,
        fronts: FrontSecurity = PLAIN_FRONTS,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._replica, self._clock_ms, self._rocketmq_grpc_address = replica, clock_ms, rocketmq_grpc_address
        self._audit, self._frames, self._spans, self._remoting = audit, frames, spans, remoting
        self._address, self._beside, self._security, self._front_security = address, beside, security, fronts
        self._metrics = BrokerMetrics(registry if options.has_own_names else None, options.broker, options.self_id)
        self._rocketmq_metrics: RocketMQMetrics | None = None
        if registry is not None and options.has_rocketmq_names:
            self._rocketmq_metrics = RocketMQMetrics(registry, options.cluster, options.broker)
        replica.when_flushed(self._metrics.flush_latency_s.observe)
        self.core = BrokerCore(replica, options, self._metrics)
        self.core.caller, self.core.clock_ms = holder, clock_ms
        contact = LeaderContact(replica, time.monotonic)
        self.core.has_caught_up = lambda: contact.has_caught_up
        self._create_services()
        scope = Scope(
            options.cluster,
            has_topic=lambda name: name in replica.state.topics,
            has_group=lambda name: name in replica.state.groups,
        )
        calls = None if audit is None else self._call_audit(audit, scope)
        # Without a first user every call passes until a user exists.
        is_closed = first_user is not None
        self._access_service = AccessService(self.core, calls, is_closed=is_closed)
        gate = AccessGate(
            lambda: replica.state.access,
            scope,
            options.broker,
            is_closed=is_closed,
            is_current=self.core.is_current,
            contact=contact,
            lag_max_s=options.access_lag_max_s,
            is_strict=requires_certificates(security),
            audit=calls,
            revoked=revoked,
        )
        self._gate = self._with_quotas(gate)
        self._first_user = first_user
        dial = partial(GrpcNameServer, security=name_server_security)
        self._registrar = Registrar(name_servers, dial) if name_servers else None
        self._changed, self._stack = asyncio.Event(), AsyncExitStack()

    def _call_audit(self, audit: AuditLog, scope: Scope) -> CallAudit:
        self._metrics.count_records(audit.written, audit.summarized, audit.lost)
        return CallAudit(audit, scope)

    def _create_services(self) -> None:
        """Create the tasks of the leader, and the service that uses them."""
        self.core.put_spans = None if self._spans is None else self._spans.puts
        replica, metrics, clock_ms = self._replica, self._metrics, self._clock_ms
        self._delays = DelayDelivery(replica, clock_ms, metrics.count_delayed, metrics.count_not_delivered)
        self._timers = TimerDelivery(replica, clock_ms, metrics.count_delayed, metrics.count_not_delivered)
        self._ends = TransactionEnds(replica, clock_ms, metrics.count_transaction_end)
        self._compaction = TopicCompaction(replica, clock_ms, self.core.options.compaction)
        checks, count = self.core.options.checks, metrics.count_transaction_checks
        self._checks = TransactionChecks(replica, self._ends, checks, clock_ms, count)
        frame_address = "" if self._frames is None else str(self._frames.address)
        self._service = BrokerService(
            self.core, self._ends, self._checks, self._timers, frame_address=frame_address, clock_ms=clock_ms
        )

    def _with_quotas(self, gate: CallGate) -> CallGate:
        quotas = self.core.options.quotas
        if quotas.is_unlimited:
            return gate
        return QuotaGate(gate, Quotas(quotas, time.monotonic), self._metrics.count_quota_refused)

    async def __aenter__(self) -> Self:
        """Start serving.

        Raises:
            ServerNotStarted: the address is taken or wrong.
        """
        async with AsyncExitStack() as stack:
            self._metrics.watch(self.gauges)
            stack.callback(self._metrics.watch, None)
            if self._rocketmq_metrics is not None:
                self._rocketmq_metrics.watch(partial(taken_facts, self.core, self._service.groups.members))
                stack.callback(self._rocketmq_metrics.watch, None)
            if self._registrar is not None:
                await stack.enter_async_context(self._registrar)
                registering = asyncio.create_task(self._register(self._registrar))
                stack.push_async_callback(end_tasks, [registering])
                self.core.on_topics_changed = self._changed.set
                self.core.announced = partial(self._announced, self._registrar)
                self.core.life_digests = self._registrar.life_digests
            if self._first_user is not None:
                creating = asyncio.create_task(create_first_user(self.core, self._first_user))
                stack.push_async_callback(end_tasks, [creating])
            if self.core.options.trace_topic_enable:
                creating_topic = asyncio.create_task(create_trace_topic(self.core))
                stack.push_async_callback(end_tasks, [creating_topic])
            parts = (self._delays, self._timers, self._ends, self._checks, self._compaction)
            tasks = [asyncio.create_task(each.run()) for each in parts]
            stack.push_async_callback(end_tasks, tasks)
            stack.push_async_callback(self._service.pops.stop)
            services = [self._service.served(), self._access_service.served(), *self._beside]
            overloaded = partial(self._metrics.count_refusal, Reason.OVERLOADED.name)
            server = await start_grpc_server(
                self._address,
                services,
                security=self._security,
                gate=self._gate,
                count_overloaded=overloaded,
                frames=self._frames,
            )
            stack.push_async_callback(server.stop, GRACE_S)
            if self._frames is not None:
                stack.push_async_callback(self._frames.stop, GRACE_S)
            await self._serve_fronts(stack, overloaded)
            self._stack = stack.pop_all()
        return self

    async def _serve_fronts(self, stack: AsyncExitStack, count_overloaded: Callable[[], None]) -> None:
        """Serve RocketMQ's clients at the ports that the settings have, until `stack` is closed."""
        audit = FrontAudit(self._access_service.record_login, self._access_service.record_right)
        if self._rocketmq_grpc_address is not None:
            await serve_rocketmq(
                self.core,
                self._rocketmq_grpc_address,
                str(self._address),
                stack,
                audit=audit,
                count_overloaded=count_overloaded,
                security=self._front_security,
            )
        if self._remoting is not None:
            # Imported here, because most nodes have no such port.
            from cluster.remoting.assembly import serve_remoting  # noqa: PLC0415

            await serve_remoting(self.core, self._remoting, str(self._address), stack, audit, self._front_security)

    async def __aexit__(self, *_error: object) -> None:
        """Stop; calls in progress get half a second."""
        await self._stack.aclose()

    async def _register(self, registrar: Registrar) -> None:
        """Register this broker with name servers, and update the registration after each change."""
        self._replica.when_status_changes(self._changed.set)
        while True:
            self._changed.clear()
            registrar.publish(self._registration(), self._service.topics)
            with suppress(TimeoutError):
                async with asyncio.timeout(_REGISTRATION_INTERVAL_S):
                    await self._changed.wait()

    async def _announced(self, registrar: Registrar) -> None:
        registrar.publish(self._registration(), self._service.topics)
        await registrar.settled(_ANNOUNCE_LIMIT_S)

    def _registration(self) -> Registration | None:
        return self._service.topics.registration() if self._replica.status().is_serving_puts else None

    def gauges(self) -> BrokerGauges:
        """Return the gauges of the broker; any thread may call it."""
        store, state = self._replica.store, self._replica.state
        dispatcher, status = store.derived.dispatcher, self._replica.status()
        return BrokerGauges(
            dispatch_behind_bytes=dispatcher.behind_bytes,
            dispatched_messages=dispatcher.dispatched_count,
            long_polls=store.waiters_count,
            queues=len(store.derived.queues),
            topics=len(state.topics),
            groups=len(state.groups),
            group_members=len(self._service.groups.members),
            min_physical_offset=store.log.begin_offset,
            max_physical_offset=store.log.end_offset,
            disk_used_ratio=self._replica.disk_used_ratio(),
            serving_puts=status.is_serving_puts,
            not_ready_bytes=status.behind_bytes,
            divided_offset=self._replica.divided_offset,
            feature_level=state.feature_level,
            pop_in_flight=state.pop.count,
            pop_lost=state.pop.lost_count,
            unfit_effects=state.unfit_effects_count,
            timers_waiting=self._timers.waiting_count,
            timers_put_again=self._timers.put_again_count,
            delayed_put_again=self._delays.put_again_count,
            halves_put_again=self._ends.put_again_count,
            compacted_messages=store.compaction.rows_count,
            compaction_behind_bytes=store.compaction.behind_bytes(dispatcher.offset),
            compaction_copied=self._compaction.copied_count,
            transactions_open=state.transactions.open_count,
            transaction_producers=len(self._checks.producers),
            audit_oldest_record_age_seconds={} if self._audit is None else self._audit.ages_s(),
            spans={} if self._spans is None else self._spans.outcomes(),
        )


# --------------------------------------------------------------------------------------------------------- processes


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The configuration of a standalone broker's process.

    Attributes:
        store: settings of the replica.
        options: settings of the services.
        address: address of the client port.
        metrics_address: address of `/metrics`; None: not served.
        name_servers: `host:port` of each name server, comma separated; empty: none.
        first_user_file: file with the first user; empty: none.
        audit: settings of the audit log.
        tls: TLS of both addresses, and of connections to name servers.
        revoked_file: certificates that are refused; empty: none.
        frame_address: of the frame port; None: there is none.
        exposed_ports: unsecured ports that other machines can reach; `--insecure` allows them.
        otlp_endpoint: URL of a collector of OpenTelemetry to which spans are exported; empty: none.
        is_debuggable: other processes of the same user may read the memory of the process.
    """

    store: StandaloneConfig
    options: BrokerOptions
    address: Address
    metrics_address: Address | None = None
    name_servers: str = ""
    first_user_file: str = ""
    audit: AuditSettings = field(default_factory=AuditSettings)
    tls: ProcessTls = field(default_factory=ProcessTls)
    revoked_file: str = ""
    frame_address: Address | None = None
    exposed_ports: tuple[ExposedPort, ...] = ()
    otlp_endpoint: str = ""
    is_debuggable: bool = False


def run_broker(config: BrokerConfig) -> int:
    """Run one standalone broker until it stops; return the exit code."""
    return run_process("broker", partial(_serve, config), is_debuggable=config.is_debuggable)


async def _serve(config: BrokerConfig, stopped: asyncio.Future[signal.Signals]) -> None:
    """Start the parts in order, wait for the end, stop them in reverse order.

    Raises:
        StoreError, DLedgerError: the broker could not start, or had to stop.
        OSError: an address cannot be listened on.
    """
    registry, name = process_registry(), config.options.broker
    log_exposed_ports(config.exposed_ports)
    async with AsyncExitStack() as stack:
        security = await standalone_security(config.tls, config.revoked_file, name, registry, stack)
        health = Health()
        page = metrics_page(
            config.metrics_address, registry, tls=security.metrics, revoked=security.revoked, health=health
        )
        stack.enter_context(page)
        store = config.store.with_store_host(await resolve_store_host(config.address))
        replica = StandaloneReplica.open(OsFiles(), store)
        stack.push_async_callback(replica.stop)
        for note in replica.plain.notes:
            logger.info("recovered %s", note)
        audit = opened_audit(config.audit, config.store.path, config.options.self_id, stack)
        broker = Broker(
            replica,
            config.options,
            config.address,
            name_servers=config.name_servers,
            name_server_security=security.name_servers,
            registry=registry,
            first_user=first_user_of(config.first_user_file, replica.state),
            security=security.clients,
            audit=audit,
            revoked=security.revoked,
            frames=frame_port(config.frame_address, security.clients, registry, group=name, self_id=name),
            spans=opened_spans(config.otlp_endpoint, config.options, stack),
        )
        await stack.enter_async_context(broker)
        health.watch(tuple)
        stack.callback(health.stop)
        warn_of_readers(config.store.path, "commitlog", "consumequeue", "config")
        print_ready(broker=name, grpc=config.address, metrics=config.metrics_address or "")
        await wait_end(stopped, replica.failure)
