"""One `dledger` process in the background on this machine, with a file for its output.

It is identified by id and start time, so that no other process is ever signalled. It ends with the program that started
it, unless it is detached: then a later program can attach to it by its `ProcessRef`. Used for nodes and name servers.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cluster.local.children import start_child
from cluster.local.node import ClusterError
from cluster.process.procfs import ProcessRef, identity_of
from dledger import native

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

logger = logging.getLogger(__name__)

# Three nodes start in 2 s on an idle machine with two cores, and in a minute on one with twenty busy processes. The end
# of a process is detected immediately, so only a hanging process uses the whole limit.
START_LIMIT_S: Final = 180.0
# The interval of log lines about a slow start.
_PATIENCE_S: Final = 10.0
_POLL_S: Final = 0.01
_STOP_GRACE_S: Final = 10.0
_LOG_TAIL_LINES: Final = 15
_INHERITED: Final = (native.VARIABLE, "DLEDGER_DEBUGGABLE")


class LocalProcess:
    """Starts and stops one process, any number of times.

    Args:
        name: name for messages, such as "node n0".
        arguments: arguments of `dledger`, which prints `ready` on standard output when it serves.
        log: file to which its output is appended.
        ref: process to attach to; it may have ended.
        is_detached: whether it continues after this program has ended.

    Attributes:
        ref: the last started process, unless it is known to have ended; None: none.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        log: Path,
        ref: ProcessRef | None = None,
        *,
        is_detached: bool = False,
    ) -> None:
        self.ref = ref
        self._is_detached = is_detached
        self._name = name
        self._arguments = list(arguments)
        self._log = log
        self._output_begin = 0
        # Kept to reap it: an ended child is a zombie until its parent waits for it.
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id; None if it is not running."""
        return self.ref.pid if self.ref and self.ref.is_running() else None

    @property
    def is_running(self) -> bool:
        """Whether the process is running."""
        return self.pid is not None

    def launch(self) -> None:
        """Start the process; `wait_ready` waits until it serves."""
        self._output_begin = self._log.stat().st_size if self._log.exists() else 0
        # The process must not inherit settings from the caller's environment. The form of the kernels, and whether a
        # debugger may be attached, are none.
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("DLEDGER_") or name in _INHERITED
        }
        start = subprocess.Popen if self._is_detached else start_child
        with self._log.open("ab") as output:
            child = start(
                [sys.executable, "-m", "cluster.cli", *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                # A new session, so that Ctrl-C reaches only the owning program, which stops the process itself.
                start_new_session=True,
            )
        self._child = child
        self.ref = ProcessRef(child.pid, identity_of(child.pid) or "")

    def wait_ready(self, deadline: float) -> None:
        """Wait until the process serves, at most until `deadline` of the monotonic clock; log slow starts.

        Raises:
            ClusterError: it ended, or was not ready in time; the text has the end of its output.
        """
        begin = time.monotonic()
        reported_s = begin
        while True:
            is_running = self.is_running
            with self._log.open("rb") as output:
                output.seek(self._output_begin)
                lines = output.read().splitlines()
            if any(line.startswith(b"ready ") for line in lines):
                return
            if not is_running or time.monotonic() >= deadline:
                state = "is not ready in time" if is_running else "ended while starting"
                tail = b"\n".join(lines[-_LOG_TAIL_LINES:]).decode(errors="replace")
                raise ClusterError(f"{self._name} {state}; the end of {self._log}:\n{tail}")
            if (now := time.monotonic()) - reported_s >= _PATIENCE_S:
                reported_s = now
                logger.warning(
                    "%s is not ready yet: waited %.0f s of at most %.0f s; its output is in %s",
                    self._name,
                    now - begin,
                    deadline - begin,
                    self._log,
                )
            time.sleep(_POLL_S)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if the process is running."""
        if self.ref is not None:
            self.ref.signal(number)

    def stop(self) -> None:
        """Stop the process by SIGTERM, and after 10 s by SIGKILL."""
        if self.ref is not None:
            self.ref.end(_STOP_GRACE_S)
        self._forget()

    def kill(self) -> None:
        """Kill the process (SIGKILL), to simulate a crash, and wait until it has ended."""
        if self.ref is not None:
            self.ref.signal(signal.SIGKILL)
            self.ref.wait_end(_STOP_GRACE_S)
        self._forget()

    def _forget(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with suppress(subprocess.TimeoutExpired):
                child.wait(_STOP_GRACE_S)
        self.ref = None
