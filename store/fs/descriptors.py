"""The file descriptors of this process: their limit, the share of each part, and a small reserve.

| part                | of a limit of 1,024 | bound by                                    |
| ------------------- | ------------------: | ------------------------------------------- |
| files of queues     | 256                 | `store.fs.mapped.file_pool`: the others are closed |
| connections of gRPC | 256                 | the server refuses more                     |
| those of frames     | 128                 | the server refuses more                     |
| all others          | 384                 | the log's files, peers, the metrics page    |

If a process still reaches its limit, nothing is lost: an open without a free descriptor uses one of the reserve, and
files of queues are closed at the next opportunity. Only if the reserve is empty is the operation refused, as
`OutOfDescriptors`: the disk has not failed, and the operation may be tried again.
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

# The minimum for a log, its peers and a few clients.
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
    """Raise the limit of this process to the permitted maximum, log and return it."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before != hard:
        # If the system has another bound below the hard limit, the old limit is kept.
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
    """A few spare descriptors, which are closed when an open finds none free. Any thread may use it."""

    def __init__(self, count: int = _RESERVE_COUNT) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._held: list[int] = []
        self._is_short = False

    @property
    def is_short(self) -> bool:
        """Whether a spare was used or missing since the last `fill`, so that files should be closed."""
        return self._is_short

    def fill(self) -> None:
        """Open the missing spares, as far as descriptors are available."""
        with self._lock:
            self._is_short = False
            with suppress(OSError):
                while len(self._held) < self._count:
                    self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def release(self) -> bool:
        """Close a spare; return whether there was one."""
        with self._lock:
            self._is_short = True
            if not self._held:
                return False
            os.close(self._held.pop())
            return True


RESERVE: Final = Reserve()


def with_descriptor(path: str, operation: str, call: Callable[[], Result]) -> Result:
    """Return the result of `call`, which opens a file or a directory; retry with spares when descriptors run out.

    Raises:
        OutOfDescriptors: the reserve is also used up.
        OSError: other errors of `call`.
    """
    while True:
        try:
            return call()
        except OSError as error:
            if error.errno not in _ARE_OUT:
                raise
            if not RESERVE.release():
                raise OutOfDescriptors(path, operation, limit()) from error
