"""Name servers as real processes, on free ports; brokers are registrars in the test's own loop."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cluster.local.children import start_child
from cluster.local.node import choose_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class NameServerProcess:
    """One `dledger nameserver` on a separate port, the same after a restart."""

    def __init__(self) -> None:
        (port,) = choose_ports(1, None)
        self.address = f"127.0.0.1:{port}"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "cluster.cli", "nameserver", "--listen", self.address]
        self._process = start_child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == f"ready nameserver={self.address}\n"

    def stop(self) -> tuple[int, str]:
        """Stop the process cleanly; return its exit code and its log."""
        process, self._process = self._process, None
        assert process is not None
        process.terminate()
        _, log = process.communicate(timeout=20)
        return process.returncode, log

    def pause(self) -> None:
        """Pause the process: its connections remain open, and it answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate(timeout=20)
            self._process = None


@pytest.fixture
def name_server() -> Iterator[Callable[[], NameServerProcess]]:
    """Return a function that starts name servers; all are ended after the test."""
    made: list[NameServerProcess] = []

    def make() -> NameServerProcess:
        made.append(NameServerProcess())
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.kill()
