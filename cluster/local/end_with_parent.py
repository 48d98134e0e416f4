"""Run a command that the system kills when the program that started it ends: `PARENT_PID COMMAND...`.

It runs as a script of its own (`cluster.local.children` starts it) and becomes the command, so it imports nothing of
ours. The death signal belongs to the process and survives `exec`; it is delivered also where the command is stopped,
hangs, or has not started completely, in which it could not watch its parent itself.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Become the command; return where the parent has ended already."""
    parent, *command = sys.argv[1:]
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "prctl(PR_SET_PDEATHSIG)")
    # Only now: the parent may have ended before the system knew what to do then.
    if os.getppid() == int(parent):
        os.execv(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
