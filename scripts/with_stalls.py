"""Runs a command and pauses its descendant processes for short times, one after the other, as on a busy machine.

    python scripts/with_stalls.py [--seed N] [--longest S] COMMAND [WORD...]

The seed, which is printed, determines the process, the time and the length of each pause. A process that is already
stopped is not paused. The exit status is that of the command.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil

# Seconds between two pauses; one process at a time is paused.
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.3, 1.2
_STALL_MIN_S = 0.1


def main() -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(description="Run a command and pause its processes at random.")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="of all choices")
    parser.add_argument("--longest", type=float, default=1.6, metavar="S", help="seconds of a stall (%(default)s)")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what to run")
    options = parser.parse_args()
    if not options.command:
        parser.error("name a command")
    chance = random.Random(options.seed)
    with subprocess.Popen(options.command) as process:
        stalls = 0
        while not _has_ended(process, chance.uniform(_PAUSE_MIN_S, _PAUSE_MAX_S)):
            stalls += _stall_one(process.pid, chance, options.longest)
    print(f"stalls: {stalls}; seed: {options.seed}", file=sys.stderr)
    return process.returncode


def _has_ended(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Return whether a process ends within this time."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(limit_s)
    return process.returncode is not None


def _stall_one(pid: int, chance: random.Random, longest_s: float) -> bool:
    """Pause one descendant of a process; return whether there was one."""
    with suppress(psutil.NoSuchProcess):
        below = psutil.Process(pid).children(recursive=True)
        if not below:
            return False
        chosen = chance.choice(below)
        if chosen.status() == psutil.STATUS_STOPPED:
            return False
        chosen.send_signal(signal.SIGSTOP)
        try:
            time.sleep(chance.uniform(_STALL_MIN_S, longest_s))
        finally:
            chosen.send_signal(signal.SIGCONT)
        return True
    return False


if __name__ == "__main__":
    sys.exit(main())
