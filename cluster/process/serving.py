"""What every process that serves has in common: signals, log, the line `ready`, exit codes.

Standard output gets one line, `ready name=value ...`, once clients are served; the log goes to standard error. Exit
codes: 0 stopped by SIGTERM or SIGINT, 1 something failed (the last line of the log says what), 2 not started because of
how it was called.

Not here: the metrics page (`cluster.process.metrics_page`), what is served (`cluster.server.node`,
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

from dledger.errors import DLedgerError
from dledger.event_loop import new_event_loop
from store.errors import StoreError
from store.fs.descriptors import raise_limit
from store.fs.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    # Starts everything, waits with `wait_end`, takes everything down.
    Serve = Callable[[asyncio.Future[signal.Signals]], Coroutine[Any, Any, None]]

EXIT_STOPPED: Final = 0
EXIT_FAILED: Final = 1
EXIT_REFUSED: Final = 2
# For calls that are being answered when the process is asked to stop.
GRACE_S: Final = 0.5

logger = logging.getLogger(__name__)


def run_process(command: str, serve: Serve) -> int:
    """Serve until the process is asked to stop, or fails; return its exit code.

    Args:
        command: of the command line, for people.
        serve: takes a future that the first SIGTERM or SIGINT resolves. What it raises of StoreError, DLedgerError and
            OSError is logged.
    """
    if not __debug__:
        sys.stderr.write(
            f"dledger {command}: refuses to run under python -O: it relies on its assertions to stop in time\n"
        )
        return EXIT_REFUSED
    _log_to_standard_error()
    _report_fatal_signals()
    raise_limit()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            runner.run(_run(serve))
        except (StoreError, DLedgerError, OSError) as error:
            logger.critical("stopped: %s", error)
            return EXIT_FAILED
    return EXIT_STOPPED


class LineFormatter(logging.Formatter):
    """Formats each record as one line: text of a request or of a peer in it cannot start another line.

    Characters that end a line or steer a terminal are written as escapes; a traceback keeps its lines.
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

    Files are read through maps: where a disk cannot deliver a page, or a file was cut short, a read ends in SIGBUS.
    docs/operations.md ("Fatal Python error: Bus error") says what to do then.
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
    """Return when the process is asked to stop.

    Raises:
        Exception: the first of `failures` that ends.
    """
    ends: list[asyncio.Future[Any]] = [stopped, *failures]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for failure in failures:
        if failure.done():
            raise failure.result()
    logger.info("stopping signal=%s", stopped.result().name)


def say_ready(**places: object) -> None:
    """Report to the starter of the process that clients are served, and where. Objects made until now stay for good."""
    calm_garbage_collector()
    sys.stdout.write(" ".join(["ready", *(f"{name}={value}" for name, value in places.items())]) + "\n")
    sys.stdout.flush()


def calm_garbage_collector() -> None:
    """Look for reference cycles in short pieces, and through everything seldom: each search stops the event loop.

    A young search looks at 2,000 objects and one of the middle generation at some 12,000 (5 to 20 ms on a busy
    machine). With 50,000 and 1,000,000, calls that sent only headers made turns of 70 ms and of 470 ms. Everything that
    came after this call is searched after 50 million objects more, as appends make no cycles. Such a full search takes
    0.1 microseconds an object: 12 ms with 100,000 topics that were made since; 0.33 s with 1,000,000 consumed offsets,
    each of another group and topic, which a restart excludes from the search as all that it loads.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 5, 5_000)


def process_registry() -> CollectorRegistry:
    """Return a registry of metrics that holds those of the process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry
