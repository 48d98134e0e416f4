"""Keeps the memory of a server process from other processes and from files: it has keys, tokens and messages.

| reader | refused by |
| --- | --- |
| a core dump | the limit of core dumps, and the flag `dumpable` of the process, which is cleared |
| another process of the same user: `ptrace`, `/proc/PID/mem`, `environ`, `fd` | the flag |
| root, or a process with `CAP_SYS_PTRACE` | nothing |

A cleared flag also makes root the owner of the files in `/proc/PID`. A process without privileges can then no longer
open `io`, `environ`, `auxv` and `oom_score_adj` of its own; this project reads none of them. `stat`, `status`,
`limits`, `maps` and `fd` stay readable for the process itself, and `stat` and `status` for everyone.

Source: prctl(2), `PR_SET_DUMPABLE`; proc(5).
"""

from __future__ import annotations

import ctypes
import logging
import os
import resource
from typing import Final

# <linux/prctl.h>
_PR_SET_DUMPABLE: Final = 4

logger = logging.getLogger(__name__)


def protect_memory(*, is_debuggable: bool) -> None:
    """Refuse core dumps and debuggers; call it before the process reads a key.

    What is not refused is logged (`memory_readable`): the process continues, because the protection is an additional
    one.

    Args:
        is_debuggable: leave the memory readable for other processes of the same user, such as a debugger or a profiler.
    """
    _write_no_core_dumps()
    fault = "debuggable is set" if is_debuggable else _clear_dumpable()
    if fault:
        logger.warning("memory_readable reason=%r: by other processes of this user", fault)


def _write_no_core_dumps() -> None:
    """Set the soft limit of core dumps to zero.

    `prlimit --core=unlimited --pid PID` permits one in a debuggable process, as far as the hard limit does.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def _clear_dumpable() -> str:
    """Clear the flag `dumpable` of this process; return why that is not possible, or an empty text."""
    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (AttributeError, OSError, TypeError):
        return "this system has no prctl"
    if prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0:
        return ""
    return f"prctl(PR_SET_DUMPABLE): {os.strerror(ctypes.get_errno())}"
