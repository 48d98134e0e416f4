"""Common code of all server processes: signals, log, the line `ready`, exit codes.

Standard output gets one line, `ready name=value ...`, when the process serves clients; the log goes to standard error.
Exit codes: 0 stopped by SIGTERM or SIGINT; 1 a failure, described in the last line of the log; 2 not started because of
wrong usage.

Not here: the metrics page (`cluster.process.metrics_page`), the services (`cluster.server.node`,
`cluster.server.broker`, `cluster.api.name_server`).
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

from cluster.process.own_memory import protect_memory
from dledger.allocator import keep_large_blocks
from dledger.errors import DLedgerError
from dledger.event_loop import new_event_loop
from store.errors import StoreError
from store.fs.descriptors import raise_limit
from store.fs.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    # Starts all parts, waits with `wait_end`, and stops them.
    Serve = Callable[[asyncio.Future[signal.Signals]], Coroutine[Any, Any, None]]

EXIT_STOPPED: Final = 0
EXIT_FAILED: Final = 1
EXIT_REFUSED: Final = 2
# The time that calls in progress get when the process stops.
GRACE_S: Final = 0.5

logger = logging.getLogger(__name__)


def run_process(command: str, serve: Serve, *, is_debuggable: bool = False) -> int:
    """Serve until a signal or a failure; return the exit code.

    Args:
        command: name of the command for messages.
        serve: called with a future that the first SIGTERM or SIGINT resolves. StoreError, DLedgerError and OSError
            from it are logged.
        is_debuggable: other processes of the same user may read its memory; see `cluster.process.own_memory`.
    """
    if not __debug__:
        sys.stderr.write(f"dledger {command}: refuses to run under python -O: its assertions protect the data\n")
        return EXIT_REFUSED
    _log_to_standard_error()
    _report_fatal_signals()
    raise_limit()
    protect_memory(is_debuggable=is_debuggable)
    keep_large_blocks()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            runner.run(_run(serve))
        except (StoreError, DLedgerError, OSError) as error:
            logger.critical("stopped: %s", error)
            return EXIT_FAILED
    return EXIT_STOPPED


class LineFormatter(logging.Formatter):
    """Formats each record as one line, so that text from a request or a peer cannot forge another line.

    Line ends and control characters are escaped; a traceback keeps its lines.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (logging's name)
        """Return the line of a record (logging calls this)."""
        return printable(super().formatMessage(record))


def _log_to_standard_error() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _report_fatal_signals() -> None:
    """Print a traceback on standard error when a fatal signal (SIGBUS, SIGSEGV) ends the process.

    Files are read through memory maps: if the disk cannot read a page, or a file was truncated, a read causes SIGBUS.
    See docs/operations.md, "Fatal Python error: Bus error".
    """
    if sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)


async def _run(serve: Serve) -> None:
    await serve(_on_signals())


def _on_signals() -> asyncio.Future[signal.Signals]:
    """Return a future that the first SIGTERM or SIGINT to this process resolves."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[signal.Signals] = loop.create_future()

    def stop(number: signal.Signals) -> None:
        if not stopped.done():
            stopped.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    return stopped


async def wait_end(stopped: asyncio.Future[signal.Signals], *failures: asyncio.Future[Exception]) -> None:
    """Wait for a signal to stop.

    Raises:
        Exception: the result of the first of `failures` that is done.
    """
    ends: list[asyncio.Future[Any]] = [stopped, *failures]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for failure in failures:
        if failure.done():
            raise failure.result()
    logger.info("stopping signal=%s", stopped.result().name)


def print_ready(**places: object) -> None:
    """Print the line `ready` with the addresses; exempt all objects created so far from garbage collection."""
    tune_garbage_collector()
    sys.stdout.write(" ".join(["ready", *(f"{name}={value}" for name, value in places.items())]) + "\n")
    sys.stdout.flush()


def tune_garbage_collector() -> None:
    """Collect garbage in small generations, and run full collections rarely: a collection blocks the event loop.

    A collection examines 2,000 objects in the youngest generation and about 12,000 in the middle one (5 to 20 ms on a
    busy machine). With 50,000 and 1,000,000, calls that sent only headers caused pauses of 70 ms and of 470 ms. A full
    collection of the objects created after this call runs after 50 million more, because appends create no cycles. It
    takes 0.1 microseconds an object: 12 ms with 100,000 topics created since; 0.33 s with 1,000,000 consumed offsets,
    each of another group and topic. A restart exempts everything that it loads.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 5, 5_000)


def process_registry() -> CollectorRegistry:
    """Return a registry with the metrics of the process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry
