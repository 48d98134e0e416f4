"""Starts processes that are killed when this program ends; used by `cluster.local.process`.

Linux sends the death signal when the *thread* that started the child ends (`PR_SET_PDEATHSIG`), and nodes are started
by short-lived threads. So all children are started by one thread that exists as long as the program.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Child = subprocess.Popen[Any]

_SCRIPT: Final = Path(__file__).with_name("end_with_parent.py")


def start_child(command: Sequence[str], **options: Any) -> Child:
    """Start a process that is killed (SIGKILL) when this program ends, also after a crash.

    Args:
        command: the absolute path of a program, and its arguments.
        options: options of `subprocess.Popen`.
    """
    # Without site-packages it starts in a few milliseconds.
    words = [sys.executable, "-I", "-S", str(_SCRIPT), str(os.getpid()), *command]
    started: Future[Child] = Future()
    _launches(os.getpid()).put((started, lambda: subprocess.Popen(words, **options)))  # noqa: S603
    return started.result()


@cache
def _launches(_pid: int) -> SimpleQueue[tuple[Future[Child], Callable[[], Child]]]:
    """Return the queue of the thread that starts children; a forked process gets a thread of its own."""
    launches: SimpleQueue[tuple[Future[Child], Callable[[], Child]]] = SimpleQueue()
    threading.Thread(target=_launch_all, args=(launches,), name="children", daemon=True).start()
    return launches


def _launch_all(launches: SimpleQueue[tuple[Future[Child], Callable[[], Child]]]) -> None:
    while True:
        started, launch = launches.get()
        try:
            started.set_result(launch())
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            started.set_exception(error)
