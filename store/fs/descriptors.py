"""The file descriptors of this process: how many it may have, what each part may use, and a few in reserve.

| part                | of a limit of 1,024 | bound by                                    |
| ------------------- | ------------------: | ------------------------------------------- |
| files of queues     | 256                 | `store.fs.file_pool`: the others rest       |
| connections of gRPC | 256                 | the server refuses more                     |
| everything else     | 512                 | the log's files, peers, the page of metrics |

A process that meets its limit all the same has lost nothing: an open that finds no descriptor takes one of the reserve,
and files of queues rest at the next occasion. Only without any is the operation refused, as `OutOfDescriptors`: the
disk has not failed, and the same may be tried again.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from store.errors import OutOfDescriptors

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

# Less is not enough for a log, its peers and a handful of clients.
LIMIT_MIN: Final = 128
_QUEUE_FILES_MAX: Final = 512
_PART: Final = 4
_LIMITLESS: Final = 1 << 20
_RESERVE_COUNT: Final = 8
_ARE_OUT: Final = frozenset({errno.EMFILE, errno.ENFILE})

Result = TypeVar("Result")


def limit() -> int:
    """Return this process's current limit of descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _LIMITLESS if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> int:
    """Raise the limit of this process as far as it may be raised, say so in the log, and return it."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before != hard:
        # Where the system has a bound of its own below the hard limit, the old one is as good as it gets.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    now = limit()
    logger.info(
        "descriptors limit=%d before=%d queue_files_max=%d connections_max=%d",
        *(now, before, queue_files_max(), connections_max()),
    )
    if now < LIMIT_MIN:
        logger.warning("descriptors limit=%d is low: %d are expected; raise it with `ulimit -n`", now, LIMIT_MIN)
    RESERVE.fill()
    return now


def queue_files_max() -> int:
    """Return the largest number of queue files that may be open at a time."""
    return max(1, min(_QUEUE_FILES_MAX, limit() // _PART))


def connections_max() -> int:
    """Return the largest number of connections of a server at a time."""
    return max(1, limit() // _PART)


class Reserve:
    """A few spare descriptors, to be closed when an open finds none free. Any thread may use it."""

    def __init__(self, count: int = _RESERVE_COUNT) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._held: list[int] = []
        self._is_short = False

    @property
    def is_short(self) -> bool:
        """Whether one was given up, or missed, since the last `fill`: files that rest would help."""
        return self._is_short

    def fill(self) -> None:
        """Take as many as are missing, or as there are."""
        with self._lock:
            self._is_short = False
            with suppress(OSError):
                while len(self._held) < self._count:
                    self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def release(self) -> bool:
        """Give one up; return whether there was one."""
        with self._lock:
            self._is_short = True
            if not self._held:
                return False
            os.close(self._held.pop())
            return True


RESERVE: Final = Reserve()


def with_descriptor(path: str, operation: str, call: Callable[[], Result]) -> Result:
    """Return the result of `call`, which opens a file or a directory; it is retried when descriptors run out.

    Raises:
        OutOfDescriptors: also the reserve is used up.
        OSError: whatever else `call` raises.
    """
    while True:
        try:
            return call()
        except OSError as error:
            if error.errno not in _ARE_OUT:
                raise
            if not RESERVE.release():
                raise OutOfDescriptors(path, operation, limit()) from error
