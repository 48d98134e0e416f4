"""A node's access to its machine, besides files and event loop: time, randomness and threads.

A port: production uses Python's library; the simulator of the shell (`dledger.testing.shell`) has clocks, random
numbers and threads that are determined by a seed. The shell of a node uses only this port, so that nothing in a
simulated node depends on the real machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING

from store.fs.retention_rules import ClockReading, read_clocks
from store.fs.storage_thread import StorageThread, Worker

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class NodeHost:
    """The machine of one node.

    Attributes:
        now_s: seconds of a monotonic clock with a resolution far below a millisecond, for deadlines and durations. The
            event loop's own clock is too coarse for durations: uvloop reads it once per iteration.
        random: draws election timeouts, incarnations and the jitter of dialers; must not be shared with another node.
        new_worker: starts a thread for disk work, with the given name; called in the node's event loop.
        read_clocks: reads wall clock and monotonic clock together, for retention.
    """

    now_s: Callable[[], float] = perf_counter
    random: Random = field(default_factory=Random)
    new_worker: Callable[[str], Worker] = StorageThread
    read_clocks: Callable[[], ClockReading] = read_clocks
