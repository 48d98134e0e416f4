"""Run a command that the system kills when its parent process ends: `PARENT_PID COMMAND...`.

`cluster.local.children` starts this script, which replaces itself with the command, so it imports no other module of
the project. The death signal is set for the process and survives `exec`. It is delivered even while the command is
stopped, hangs, or is still starting, when it could not watch its parent itself.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Execute the command; return if the parent has already ended."""
    parent, *command = sys.argv[1:]
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "prctl(PR_SET_PDEATHSIG)")
    # Checked after the signal is set: the parent may have ended before.
    if os.getppid() == int(parent):
        os.execv(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
