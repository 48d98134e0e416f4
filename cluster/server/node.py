"""The process of a node: builds its parts bottom-up, serves, and stops the parts in reverse order.

| settings    | content of the log | services besides health, reflection and AdminService |
| ----------- | ------------------ | ---------------------------------------------------- |
| no `broker` | raw entries        | LogService                                           |
| `broker`    | messages           | BrokerService; LogService without appends            |

A broker's start: certificates; metrics page; agreement with the other nodes on the base log; opening of log, queues and
state; joining the group; services; name servers; the line `ready`. A stop runs in the opposite order. See
`cluster.process.serving` for output and exit codes.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.api.gates.entry_rights import entry_policy
from cluster.api.gates.metrics import GateMetrics
from cluster.api.rights import Scope
from cluster.process.health import Health
from cluster.process.metrics_page import metrics_page
from cluster.process.serving import GRACE_S, print_ready, process_registry, run_process, wait_end
from cluster.process.trace_file import TraceFile
from cluster.server.data_modes import warn_of_readers
from cluster.server.gates import gate_of, opened_audit
from cluster.server.security import ProcessSecurity, node_security
from cluster.server.store_host import resolve_store_host
from dledger.metrics import NodeMetrics
from dledger.node.node import Node
from dledger.service.frames.metrics import frame_port
from dledger.service.log import log_services, start_server
from store.fs.linux.files import OsFiles
from store.fs.retention_rules import read_clocks

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

    from cluster.broker.core import BrokerOptions
    from cluster.config.load import BrokerSettings, ServerConfig
    from cluster.remoting.port import RemotingPort
    from cluster.replica.replicated import ReplicatedConfig, ReplicatedReplica
    from dledger.config import NodeConfig
    from store.model.message import Host

_APPEND_REFUSAL: Final = (
    "this log contains messages: put them through cluster.v1.BrokerService (`dledger produce`, cluster.Producer)"
)

logger = logging.getLogger(__name__)


def run_server(config: ServerConfig) -> int:
    """Run one node until it stops; return the exit code of the process."""
    return run_process("server", partial(_serve, config), is_debuggable=config.is_debuggable)


async def _serve(config: ServerConfig, stopped: asyncio.Future[signal.Signals]) -> None:
    """Start the parts in order, wait for the end, stop them in reverse order.

    Raises:
        StoreError, DLedgerError: the node could not start, or had to stop.
        OSError: an address cannot be listened on.
    """
    registry = process_registry()
    metrics = NodeMetrics(registry, config.node.group, config.node.self_id)
    async with AsyncExitStack() as stack:
        security = await node_security(config, registry, stack)
        health = Health()
        page = metrics_page(
            config.metrics_address, registry, tls=security.metrics, revoked=security.revoked, health=health
        )
        stack.enter_context(page)
        trace = _trace_of(config, stack)
        if config.broker is None:
            node = await serve_entries(config, metrics, registry, trace, security, stack)
            failure = node.failed
        else:
            # RocketMQ's tools ask the host that is in the id of a message.
            host = config.rocketmq_remoting_address or config.node.client_address
            store_host = await resolve_store_host(host)
            if not await _bootstrap(config, store_host, registry, security, stopped):
                return
            replica_config = replicated_config(config, config.broker, store_host)
            replica_config = replace(replica_config, peer_security=security.peers)
            replica = await _serve_messages(
                config, replica_config, config.broker, metrics, registry, trace, security, stack
            )
            node, failure = replica.node, replica.failure
        health.watch(lambda: node.unready)
        stack.callback(health.stop)
        warn_of_readers(config.node.store_base_dir, f"dledger-{config.node.self_id}", "commitlog", "consumequeue")
        print_ready(
            self_id=config.node.self_id,
            peers=config.node.self_address,
            grpc=config.node.client_address,
            frames=config.frame_address or "off",
            **({"rocketmq_grpc": config.rocketmq_grpc_address} if config.rocketmq_grpc_address else {}),
            **({"rocketmq_remoting": config.rocketmq_remoting_address} if config.rocketmq_remoting_address else {}),
            metrics=config.metrics_address,
        )
        await wait_end(stopped, failure)


async def serve_entries(
    config: ServerConfig,
    metrics: NodeMetrics,
    registry: CollectorRegistry,
    trace: Callable[[str], None] | None,
    security: ProcessSecurity,
    stack: AsyncExitStack,
) -> Node:
    """Serve a log of raw entries; return its node."""
    node = Node(config.node, metrics, trace=trace, peer_security=security.peers)
    stack.push_async_callback(node.stop)
    await node.start()
    audit = opened_audit(config.audit, config.node.store_base_dir, config.node.self_id, stack)
    group, callers = config.node.group, config.log_callers
    counted = GateMetrics(registry, group, config.node.self_id, audit)
    policy = None if callers is None else entry_policy(group, callers)
    gate = gate_of(policy, Scope(group), audit, config.quotas, counted, security.revoked)
    frames = frame_port(config.frame_address, security.clients, registry, group=group, self_id=config.node.self_id)
    server = await start_server(node, config.node.client_address, security.clients, gate, frames)
    stack.push_async_callback(server.stop, GRACE_S)
    if frames is not None:
        stack.push_async_callback(frames.stop, GRACE_S)
    return node


async def _bootstrap(
    config: ServerConfig,
    store_host: Host,
    registry: CollectorRegistry,
    security: ProcessSecurity,
    stopped: asyncio.Future[signal.Signals],
) -> bool:
    """Ensure that the node has the base log of its group; return False if the process is stopped first."""
    # Imported here, because a log of raw entries does not need them.
    from cluster.replica.bootstrap import bootstrap_base_log  # noqa: PLC0415
    from commitlog.record.system_records import MessageEntryCodec  # noqa: PLC0415

    codec = MessageEntryCodec(lambda: int(read_clocks().wall_s * 1000), store_host)
    has_property_crc = config.broker is not None and config.broker.has_property_crc
    settling = asyncio.ensure_future(
        bootstrap_base_log(
            OsFiles(),
            config.node,
            codec,
            registry,
            has_property_crc=has_property_crc,
            peer_security=security.peers,
        )
    )
    ends: list[asyncio.Future[Any]] = [settling, stopped]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    if not settling.done():
        settling.cancel()
        await asyncio.wait([settling])
        logger.info("stopping signal=%s", stopped.result().name)
        return False
    for note in settling.result().divided.notes:
        logger.info("recovered %s", note)
    return True


async def _serve_messages(
    server: ServerConfig,
    config: ReplicatedConfig,
    settings: BrokerSettings,
    metrics: NodeMetrics,
    registry: CollectorRegistry,
    trace: Callable[[str], None] | None,
    security: ProcessSecurity,
    stack: AsyncExitStack,
) -> ReplicatedReplica:
    """Serve a log of messages; return its replica."""
    # Imported here, because a log of raw entries does not need them.
    from cluster.replica.replicated import ReplicatedReplica  # noqa: PLC0415
    from cluster.server.broker import Broker  # noqa: PLC0415
    from cluster.server.first_user import first_user_of  # noqa: PLC0415
    from cluster.server.opened_spans import opened_spans  # noqa: PLC0415

    node_config = config.node
    replica = ReplicatedReplica.open(OsFiles(), config, metrics, trace=trace)
    stack.push_async_callback(replica.stop)
    for note in replica.notes:
        logger.info("recovered %s", note)
    await replica.start()
    options = _options_of(server, settings, node_config)
    broker = Broker(
        replica,
        options,
        node_config.client_address,
        name_servers=settings.name_servers,
        name_server_security=security.name_servers,
        registry=registry,
        beside=log_services(
            replica.node, append_refusal=_APPEND_REFUSAL, frame_address=str(server.frame_address or "")
        ),
        frames=frame_port(
            server.frame_address, security.clients, registry, group=node_config.group, self_id=node_config.self_id
        ),
        first_user=first_user_of(settings.first_user_file, replica.state),
        security=security.clients,
        audit=opened_audit(server.audit, node_config.store_base_dir, node_config.self_id, stack),
        revoked=security.revoked,
        spans=opened_spans(settings.otlp_endpoint, options, stack),
        rocketmq_grpc_address=server.rocketmq_grpc_address,
        remoting=_remoting_port(server, node_config),
        fronts=security.fronts,
    )
    await stack.enter_async_context(broker)
    return replica


def _remoting_port(server: ServerConfig, node_config: NodeConfig) -> RemotingPort | None:
    # Imported here, because most nodes have no such port.
    from cluster.remoting.port import RemotingPort  # noqa: PLC0415

    address = server.rocketmq_remoting_address
    if address is None:
        return None
    return RemotingPort(
        address,
        server.rocketmq_remoting_peers,
        node_config.store_base_dir,
        server.rocketmq_remoting_vip_address,
        is_permissive=server.is_rocketmq_remoting_permissive,
    )


def _options_of(server: ServerConfig, settings: BrokerSettings, node_config: NodeConfig) -> BrokerOptions:
    # Imported here, because a log of raw entries does not need them.
    from cluster.broker.core import BrokerOptions  # noqa: PLC0415
    from cluster.delivery.compaction import CompactionSettings  # noqa: PLC0415
    from cluster.delivery.transactions.checks import CheckSettings  # noqa: PLC0415

    return BrokerOptions(
        settings.broker,
        settings.cluster,
        node_config.self_id,
        auto_create_topic_enable=settings.auto_create_topic_enable,
        default_topic_queue_nums=settings.default_topic_queue_nums,
        auto_create_subscription_group=settings.auto_create_subscription_group,
        quotas=server.quotas,
        limits=settings.limits,
        pending_messages_max=node_config.max_pending_requests_num,
        pending_size_bytes_max=node_config.max_pending_size_bytes,
        waiters_max=settings.store.waiters_max,
        access_lag_max_s=settings.access_lag_max_s,
        metrics_names=settings.metrics_names,
        trace_topic_enable=settings.trace_topic_enable,
        timer_max_delay_sec=settings.timer_max_delay_sec,
        checks=CheckSettings(
            settings.transaction_timeout_ms, settings.transaction_check_interval_ms, settings.transaction_check_max
        ),
        compaction=CompactionSettings(
            settings.compaction_schedule_internal / 1_000, settings.compaction_keep_tombstones_sec
        ),
    )


def replicated_config(config: ServerConfig, settings: BrokerSettings, store_host: Host) -> ReplicatedConfig:
    """Return the settings of a node's replica, with `store_host` for its records."""
    from cluster.replica.replicated import ReplicatedConfig  # noqa: PLC0415
    from commitlog.replicated.commit_log import DLedgerCommitLogConfig  # noqa: PLC0415

    log = DLedgerCommitLogConfig(settings.max_message_size, store_host)
    return ReplicatedConfig(config.node, settings.broker, settings.store, log, settings.has_property_crc)


def _trace_of(config: ServerConfig, stack: AsyncExitStack) -> Callable[[str], None] | None:
    if not config.trace_file:
        return None
    trace = TraceFile(Path(config.trace_file))
    stack.callback(trace.close)
    return trace.write
