"""Reads from the operating system the identity, memory and processor time of a process.

Used by code that starts node processes. A process id alone is not an identity (ids are reused), so a
process is remembered by id *and* identity, and only ended when both still agree.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_POLL_S = 0.01
# What is ended by force is gone as soon as the system comes to it.
_FORCE_S = 10.0


@dataclass(frozen=True, slots=True)
class ProcessRef:
    """One process, distinguished from a later one of the same id.

    Attributes:
        pid: process id.
        identity: when it started, in the operating system's own notation.
    """

    pid: int
    identity: str

    def is_running(self) -> bool:
        """Return whether this very process still runs (a zombie does not)."""
        return identity_of(self.pid) == self.identity

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process is gone."""
        if not self.is_running():
            return
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return

    def wait_end(self, timeout_s: float) -> bool:
        """Wait until the process is gone; False when it still runs after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while self.is_running():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def end(self, grace_s: float) -> None:
        """Ask the process to end (SIGTERM); after `grace_s` end it by force (SIGKILL)."""
        self.signal(signal.SIGTERM)
        # A stopped process handles no SIGTERM before it continues.
        self.signal(signal.SIGCONT)
        if not self.wait_end(grace_s):
            self.signal(signal.SIGKILL)
            self.wait_end(_FORCE_S)


def identity_of(pid: int) -> str | None:
    """Return a text that distinguishes process `pid` from other processes with that id; None if it does not run."""
    if not _PROC.exists():
        return _identity_by_ps(pid)
    fields = _stat_fields(pid)
    # Fields after the name: 0 is the state, 19 the start time in clock ticks since boot (proc(5): 3 and 22).
    return None if fields is None or fields[0] in "ZX" else fields[19]


def _identity_by_ps(pid: int) -> str | None:
    listing = subprocess.run(  # noqa: S603
        ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = listing.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()


def _stat_fields(pid: int) -> list[str] | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name is in parentheses and may itself contain blanks and parentheses.
    return text.rpartition(")")[2].split()


def cpu_seconds_of(pid: int) -> float:
    """Return user and system time that process `pid` has used, in seconds; 0 where the system does not report it."""
    fields = _stat_fields(pid)
    if fields is None:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def anonymous_memory_bytes_of(pid: int) -> int:
    """Return the resident memory of process `pid` beside mapped files (`RssAnon`); 0 where it is not reported."""
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    for line in lines:
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0
