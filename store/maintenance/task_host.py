"""The access of background tasks to their machine, besides files and event loop: a clock, and threads.

A port: production uses Python's library; a simulated broker has a clock and threads that are determined by a seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from store.fs.storage_thread import StorageThread, Worker

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class TaskHost:
    """The machine of a store's tasks.

    Attributes:
        now_s: seconds of a monotonic clock that also advances within an iteration of the event loop.
        new_worker: starts a thread for disk work, with the given name; called in the event loop.
    """

    now_s: Callable[[], float] = monotonic
    new_worker: Callable[[str], Worker] = StorageThread
