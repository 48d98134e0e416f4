"""A broker process: puts replica and services together, serves until it is told to stop or must, and takes it down.

| mode | messages and state | parts |
| --- | --- | --- |
| standalone | this machine alone | `cluster.standalone`: plain log, message store, snapshots of the state |
| replicated | a Raft group | the node's replica behind the same port, `cluster.replica` |

Everything above the port is the same in both. Order of a start: directory locked and recovered, name servers, services,
then the line `ready`; of an end: services, name servers, then everything made durable and closed. A write or a sync
that fails ends the process: what reached the disk is not known any more.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, Self

import grpc.aio
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

from cluster.broker_core import BrokerCore, BrokerOptions
from cluster.broker_metrics import BrokerGauges, BrokerMetrics
from cluster.broker_service import BrokerService
from cluster.registration import Registrar
from cluster.replica import Replica
from cluster.server import EXIT_FAILED, EXIT_REFUSED, EXIT_STOPPED, calm_garbage_collector, metrics_page, on_signals
from cluster.standalone import StandaloneConfig, StandaloneReplica
from cluster.v1 import broker_pb2, broker_pb2_grpc
from dledger.config import Address
from dledger.errors import DLedgerError
from dledger.event_loop import new_event_loop
from dledger.log_service import CALLS_MAX, SERVER_OPTIONS, ServerNotStarted
from dledger.standard_services import add_standard_services
from store.errors import StoreError
from store.os_files import OsFiles

# For calls that are being answered when the broker is told to stop.
_GRACE_S: Final = 0.5
# How soon name servers hear of a change.
_REGISTRATION_INTERVAL_S: Final = 0.5

logger = logging.getLogger(__name__)


class Broker:
    """The services of one broker in front of a replica; `async with` starts and stops them, but not the replica.

    Args:
        replica: open.
        options: see there.
        address: where clients are served.
        name_servers: `host:port` of each, comma separated; empty: none.
        registry: for metrics; None: none are shown.
    """

    def __init__(
        self,
        replica: Replica,
        options: BrokerOptions,
        address: Address,
        *,
        name_servers: str = "",
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._replica = replica
        self._address = address
        self._metrics = BrokerMetrics(registry, options.broker, options.self_id)
        replica.when_flushed(self._metrics.flush_latency_s.observe)
        self.core = BrokerCore(replica, options, self._metrics)
        self._service = BrokerService(self.core)
        self._registrar = Registrar(name_servers) if name_servers else None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Serve.

        Raises:
            ServerNotStarted: the address is taken or wrong.
        """
        async with AsyncExitStack() as stack:
            self._metrics.watch(self.gauges)
            stack.callback(self._metrics.watch, None)
            if self._registrar is not None:
                await stack.enter_async_context(self._registrar)
                registering = asyncio.create_task(self._register(self._registrar))
                stack.callback(registering.cancel)
            server = await self._start_server()
            stack.push_async_callback(server.stop, _GRACE_S)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_error: object) -> None:
        """End; calls that are being answered get half a second."""
        await self._stack.aclose()

    async def _start_server(self) -> grpc.aio.Server:
        server = grpc.aio.server(options=SERVER_OPTIONS, maximum_concurrent_rpcs=CALLS_MAX)
        broker_pb2_grpc.add_BrokerServiceServicer_to_server(self._service, server)
        await add_standard_services(server, broker_pb2.DESCRIPTOR)
        try:
            server.add_insecure_port(str(self._address))
        except RuntimeError as error:
            raise ServerNotStarted(f"cannot listen on {self._address}: {error}") from error
        await server.start()
        return server

    async def _register(self, registrar: Registrar) -> None:
        """Tell name servers what they should know, and each change of it."""
        while True:
            standing = self._replica.standing()
            registrar.say(self._service.topics.registration() if standing.is_serving_puts else None)
            await asyncio.sleep(_REGISTRATION_INTERVAL_S)

    def gauges(self) -> BrokerGauges:
        """Return how the broker stands; any thread may call it."""
        store, state = self._replica.store, self._replica.state
        dispatcher = store.derived.dispatcher
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
            serving_puts=self._replica.standing().is_serving_puts,
        )


# --------------------------------------------------------------------------------------------------------- processes


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """What the process of a standalone broker needs.

    Attributes:
        store: of the replica.
        options: of the services.
        address: where clients are served.
        metrics_address: where `/metrics` is served; None: nowhere.
        name_servers: `host:port` of each, comma separated; empty: none.
    """

    store: StandaloneConfig
    options: BrokerOptions
    address: Address
    metrics_address: Address | None = None
    name_servers: str = ""


def run_broker(config: BrokerConfig) -> int:
    """Run one standalone broker until it stops; return the exit code of the process."""
    if not __debug__:
        sys.stderr.write(
            "dledger broker: refuses to run under python -O: it relies on its assertions to stop in time\n"
        )
        return EXIT_REFUSED
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            return runner.run(_serve(config))
        except (StoreError, DLedgerError, OSError) as error:
            logger.critical("stopped: %s", error)
            return EXIT_FAILED


async def _serve(config: BrokerConfig) -> int:
    """Start the parts in order, wait for the end, stop them in reverse order.

    Raises:
        StoreError, DLedgerError: the broker could not start, or had to stop.
        OSError: an address cannot be listened on.
    """
    stopped = on_signals()
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    async with AsyncExitStack() as stack:
        if config.metrics_address is not None:
            stack.enter_context(metrics_page(config.metrics_address, registry))
        replica = StandaloneReplica.open(OsFiles(), config.store)
        stack.push_async_callback(replica.stop)
        for note in replica.plain.notes:
            logger.info("recovered %s", note)
        broker = Broker(replica, config.options, config.address, name_servers=config.name_servers, registry=registry)
        await stack.enter_async_context(broker)
        calm_garbage_collector()
        _say_ready(config)
        ends: list[asyncio.Future[Any]] = [stopped, replica.failure]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if replica.failure.done():
            raise replica.failure.result()
        logger.info("stopping signal=%s", stopped.result().name)
    return EXIT_STOPPED


def _say_ready(config: BrokerConfig) -> None:
    metrics = config.metrics_address or ""
    sys.stdout.write(f"ready broker={config.options.broker} grpc={config.address} metrics={metrics}\n")
    sys.stdout.flush()
