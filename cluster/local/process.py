"""One process of ours on this machine: a command of `dledger` in the background, with a file for its output.

It is remembered by id and start time, so that no foreign process is ever signalled. It ends with the program that
started it, unless it is detached: then a later program may take it over by its `ProcessRef`. Used by code that runs
nodes, brokers and name servers.
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

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

logger = logging.getLogger(__name__)

# Three nodes serve after 2 s on a quiet machine of two cores, and after a minute on one with twenty busy processes. A
# process that ends is noticed at once, so only one that hangs costs all of it.
START_LIMIT_S: Final = 180.0
# A start that takes longer says so, and again after each further interval.
_PATIENCE_S: Final = 10.0
_POLL_S: Final = 0.01
_STOP_GRACE_S: Final = 10.0
_LOG_TAIL_LINES: Final = 15


class LocalProcess:
    """Starts and ends one process, again and again.

    Args:
        name: for people, such as "node n0".
        arguments: of `dledger`; it says `ready` on its standard output once it serves.
        log: takes what it writes; appended to.
        ref: it runs already, perhaps.
        is_detached: it continues when this program ends.

    Attributes:
        ref: the process that was started last and was not seen to end; None when there is none.
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
        # Kept to reap it: an ended child stays a zombie until its parent asks.
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its id while it runs; else None."""
        return self.ref.pid if self.ref and self.ref.is_running() else None

    @property
    def is_running(self) -> bool:
        """Whether it is running."""
        return self.pid is not None

    def launch(self) -> None:
        """Start it; `wait_ready` returns when it serves."""
        self._output_begin = self._log.stat().st_size if self._log.exists() else 0
        # Settings of the caller's own environment must not reach it.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DLEDGER_")}
        start = subprocess.Popen if self._is_detached else start_child
        with self._log.open("ab") as output:
            child = start(
                [sys.executable, "-m", "cluster.cli", *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                # Ctrl-C at the terminal is for the program that owns the process, which stops it itself.
                start_new_session=True,
            )
        self._child = child
        self.ref = ProcessRef(child.pid, identity_of(child.pid) or "")

    def wait_ready(self, deadline: float) -> None:
        """Wait until it serves, at most until `deadline` of the monotonic clock; log when that takes long.

        Raises:
            ClusterError: it ended, or was not ready in time; the message shows the end of its output.
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
                    "%s does not serve yet: waited %.0f s of at most %.0f s; its output is in %s",
                    self._name,
                    now - begin,
                    deadline - begin,
                    self._log,
                )
            time.sleep(_POLL_S)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self.ref is not None:
            self.ref.signal(number)

    def stop(self) -> None:
        """End it in order (SIGTERM); by force when it does not obey in 10 s."""
        if self.ref is not None:
            self.ref.end(_STOP_GRACE_S)
        self._forget()

    def kill(self) -> None:
        """End it by SIGKILL, as a crash would, and wait until it is gone."""
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
