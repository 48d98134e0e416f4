"""The node process: builds everything bottom-up, serves until it is told to stop or must stop, and takes it down again.

Standard output gets one line, `ready self_id=... peers=... grpc=... metrics=...`, once clients are served; the log goes
to standard error. Exit codes: 0 stopped by SIGTERM or SIGINT, 1 something failed (the last line of the log says what),
2 not started because of how it was called.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, start_http_server

from cluster.trace_file import TraceFile
from dledger.errors import DLedgerError
from dledger.event_loop import new_event_loop
from dledger.log_service import start_server
from dledger.metrics import NodeMetrics
from dledger.node import Node
from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.config import ServerConfig
    from dledger.config import Address

EXIT_STOPPED = 0
EXIT_FAILED = 1
EXIT_REFUSED = 2
# For calls that are being answered when the node is told to stop.
_GRACE_S = 0.5

logger = logging.getLogger(__name__)


def run_server(config: ServerConfig) -> int:
    """Run one node until it stops; return the exit code of the process."""
    if not __debug__:
        sys.stderr.write(
            "dledger server: refuses to run under python -O: it relies on its assertions to stop in time\n"
        )
        return EXIT_REFUSED
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            return runner.run(_serve(config))
        except (StoreError, DLedgerError, OSError) as error:
            logger.critical("stopped: %s", error)
            return EXIT_FAILED


async def _serve(config: ServerConfig) -> int:
    """Start the parts in order, wait for the end, stop them in reverse order.

    Raises:
        StoreError, DLedgerError: the node could not start, or had to stop.
        OSError: an address cannot be listened on.
    """
    stopped = on_signals()
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    metrics = NodeMetrics(registry, config.node.group, config.node.self_id)
    async with AsyncExitStack() as stack:
        stack.enter_context(metrics_page(config.metrics_address, registry))
        node = Node(config.node, metrics, trace=_trace_of(config, stack))
        stack.push_async_callback(node.stop)
        await node.start()
        server = await start_server(node, config.node.client_address)
        stack.push_async_callback(server.stop, _GRACE_S)
        calm_garbage_collector()
        _say_ready(config)
        ends: list[asyncio.Future[Any]] = [stopped, node.failed]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if node.failed.done():
            raise node.failed.result()
        logger.info("stopping signal=%s", stopped.result().name)
    return EXIT_STOPPED


def _trace_of(config: ServerConfig, stack: AsyncExitStack) -> Callable[[str], None] | None:
    if not config.trace_file:
        return None
    trace = TraceFile(Path(config.trace_file))
    stack.callback(trace.close)
    return trace.write


def calm_garbage_collector() -> None:
    """Look for reference cycles seldom: appends make none, and a search through everything stops the loop."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def on_signals() -> asyncio.Future[signal.Signals]:
    """Return a future that the first SIGTERM or SIGINT to this process resolves."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[signal.Signals] = loop.create_future()

    def stop(number: signal.Signals) -> None:
        if not stopped.done():
            stopped.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    return stopped


@contextmanager
def metrics_page(address: Address, registry: CollectorRegistry) -> Iterator[None]:
    """Serve `/metrics` from a thread of its own, so that a slow reader of it never holds up the log.

    Raises:
        OSError: the address cannot be listened on.
    """
    try:
        page, thread = start_http_server(address.port, address.host, registry)
    except OSError as error:
        raise OSError(error.errno, f"metrics_address {address} cannot be listened on: {error.strerror}") from error
    try:
        yield
    finally:
        page.shutdown()
        page.server_close()
        thread.join()


def _say_ready(config: ServerConfig) -> None:
    node = config.node
    sys.stdout.write(
        f"ready self_id={node.self_id} peers={node.self_address} grpc={node.client_address} "
        f"metrics={config.metrics_address}\n"
    )
    sys.stdout.flush()
