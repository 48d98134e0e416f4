"""A standalone broker in a separate process, for tests that kill it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.local.children import start_child
from cluster.local.node import choose_ports
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Sequence


class BrokerProcess:
    """One `dledger broker --standalone` that can be killed and restarted at its address.

    Args:
        path: of its store; the log file is next to it.
        name: of the broker.
        name_servers: where it registers; may be empty.
        options: of its command.
        metrics: address of its page of metrics; empty: none.
        settings: passed with `--set`.
    """

    def __init__(
        self,
        path: Path,
        name: str = "b",
        name_servers: str = "",
        options: Sequence[str] = (),
        metrics: str = "",
        **settings: int,
    ) -> None:
        (port,) = choose_ports(1, None)
        self.path = path
        self.name = name
        self.address = f"127.0.0.1:{port}"
        self._log = Path(f"{path}.log")
        self._name_servers = name_servers
        self._options = options
        self._metrics = metrics
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and wait until it serves."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start it."""
        command = [sys.executable, "-m", "cluster.cli", "broker", "--standalone", str(self.path)]
        command += ["--listen", self.address, "--name", self.name]
        if self._name_servers:
            command += ["--name-servers", self._name_servers]
        if self._metrics:
            command += ["--metrics", self._metrics]
        command += self._options
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        with self._log.open("a") as output:
            self._process = start_child(command, stdout=subprocess.PIPE, stderr=output, text=True)

    def wait_until_ready(self) -> None:
        """Wait until it serves or has exited."""
        assert self._process is not None
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        said = self._log.read_text(errors="replace")[-2000:]
        assert ready == f"ready broker={self.name} grpc={self.address} metrics={self._metrics}\n", said

    def kill(self) -> None:
        """Kill it. Does nothing if it has exited."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate(timeout=PATIENCE_S)

    def stop(self) -> int:
        """Stop it cleanly; return its exit code."""
        process, self._process = self._process, None
        assert process is not None
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
        return process.returncode
