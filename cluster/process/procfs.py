"""Reads the identity, the memory and the CPU time of a process from the operating system.

Used by code that starts node processes. A process id is not an identity, because ids are reused. So a process is
identified by id *and* start time, and signalled only if both match.
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
# The limit of the wait after SIGKILL.
_FORCE_S = 10.0


@dataclass(frozen=True, slots=True)
class ProcessRef:
    """One process, distinguished from a later one with the same id.

    Attributes:
        pid: process id.
        identity: its start time, in the notation of the operating system.
    """

    pid: int
    identity: str

    def is_running(self) -> bool:
        """Return whether this process is still running; a zombie is not."""
        return identity_of(self.pid) == self.identity

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if not self.is_running():
            return
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return

    def wait_end(self, timeout_s: float) -> bool:
        """Wait until the process has ended; return False if it is still running after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while self.is_running():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def end(self, grace_s: float) -> None:
        """Stop the process by SIGTERM, and after `grace_s` by SIGKILL."""
        self.signal(signal.SIGTERM)
        # A paused process handles SIGTERM only after SIGCONT.
        self.signal(signal.SIGCONT)
        if not self.wait_end(grace_s):
            self.signal(signal.SIGKILL)
            self.wait_end(_FORCE_S)


def identity_of(pid: int) -> str | None:
    """Return a text that distinguishes process `pid` from other processes with that id; None if it is not running."""
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
    """Return the user and system time of process `pid`, in seconds; 0 if the system does not report it."""
    fields = _stat_fields(pid)
    if fields is None:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def anonymous_memory_bytes_of(pid: int) -> int:
    """Return the resident memory of process `pid` without mapped files (`RssAnon`); 0 if it is not reported."""
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    for line in lines:
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def busy_seconds(*, with_stolen: bool) -> float:
    """Return the CPU seconds that all programs of this machine have used; 0 if the system does not report them.

    Args:
        with_stolen: also count the time that other machines on the same host have used.
    """
    try:
        text = (_PROC / "stat").read_text()
    except FileNotFoundError:
        return 0.0
    return busy_seconds_in(text.partition("\n")[0], os.sysconf("SC_CLK_TCK"), with_stolen=with_stolen)


def busy_seconds_in(line: str, ticks_a_second: int, *, with_stolen: bool) -> float:
    """Return `busy_seconds` from the first line of /proc/stat.

    Its numbers are user, nice, system, idle, iowait, irq, softirq, steal (proc(5)).
    """
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, line.split()[1:9])
    return (user + nice + system + irq + softirq + (steal if with_stolen else 0)) / ticks_a_second
