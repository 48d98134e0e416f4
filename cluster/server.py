"""The process of a node: builds everything bottom-up, serves until it is told to stop or must, takes it down again.

A node holds a log of raw entries. See `cluster.process` for its output and its exit codes.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.process import GRACE_S, metrics_page, process_registry, run_process, say_ready, wait_end
from cluster.trace_file import TraceFile
from dledger.log_service import start_server
from dledger.metrics import NodeMetrics
from dledger.node import Node

if TYPE_CHECKING:
    import asyncio
    import signal
    from collections.abc import Callable

    from cluster.config import ServerConfig


def run_server(config: ServerConfig) -> int:
    """Run one node until it stops; return the exit code of the process."""
    return run_process("server", partial(_serve, config))


async def _serve(config: ServerConfig, stopped: asyncio.Future[signal.Signals]) -> None:
    """Start the parts in order, wait for the end, stop them in reverse order.

    Raises:
        StoreError, DLedgerError: the node could not start, or had to stop.
        OSError: an address cannot be listened on.
    """
    registry = process_registry()
    metrics = NodeMetrics(registry, config.node.group, config.node.self_id)
    async with AsyncExitStack() as stack:
        stack.enter_context(metrics_page(config.metrics_address, registry))
        node = Node(config.node, metrics, trace=_trace_of(config, stack))
        stack.push_async_callback(node.stop)
        await node.start()
        server = await start_server(node, config.node.client_address)
        stack.push_async_callback(server.stop, GRACE_S)
        say_ready(
            self_id=config.node.self_id,
            peers=config.node.self_address,
            grpc=config.node.client_address,
            metrics=config.metrics_address,
        )
        await wait_end(stopped, node.failed)


def _trace_of(config: ServerConfig, stack: AsyncExitStack) -> Callable[[str], None] | None:
    if not config.trace_file:
        return None
    trace = TraceFile(Path(config.trace_file))
    stack.callback(trace.close)
    return trace.write
