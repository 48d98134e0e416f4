"""The workloads of the bench, which append through the public clients, as an application would.

Names are those of the comparison with other logs: `sync1` one blocking client, `conc64` 64 concurrent callers of one
asyncio client, `batch100x16` 16 batches of 100 entries in flight, and so on.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dledger.client import AsyncLogClient, LogClient
from dledger.event_loop import new_event_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

# Warm-up in seconds, in which connections are opened and buffers grow.
WARM_UP_S = 0.5


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload.

    Attributes:
        name: as in the tables.
        callers: number of concurrent callers, each waiting for its answer before the next append.
        batch_entries: bodies in one append.
        is_blocking: whether `LogClient` is used instead of `AsyncLogClient`.
    """

    name: str
    callers: int
    batch_entries: int
    is_blocking: bool = False


WORKLOADS = (
    Workload("sync1", callers=1, batch_entries=1, is_blocking=True),
    Workload("conc64", callers=64, batch_entries=1),
    Workload("batch100", callers=1, batch_entries=100),
    Workload("batch100x16", callers=16, batch_entries=100),
    Workload("batch1000x8", callers=8, batch_entries=1000),
)


@dataclass(slots=True)
class Load:
    """The result of one run of a workload, without the warm-up.

    Attributes:
        duration_s: duration of the measurement.
        entries: entries acknowledged in that time.
        latencies_s: latency of each append call acknowledged in that time.
    """

    duration_s: float
    entries: int = 0
    latencies_s: list[float] = field(default_factory=list)

    @property
    def ops_s(self) -> float:
        """Acknowledged entries per second."""
        return self.entries / self.duration_s

    def latency_ms(self, share: float) -> float:
        """Return the latency percentile of the append calls for `share` (0 to 1), in milliseconds."""
        ordered = sorted(self.latencies_s)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1e3 if ordered else 0.0


class Recorder:
    """Records the appends that end in the measured time."""

    def __init__(self, seconds: float, batch_entries: int) -> None:
        self.load = Load(seconds)
        self._batch_entries = batch_entries
        self._begin = time.perf_counter() + WARM_UP_S
        self.end = self._begin + seconds

    def record(self, began: float, ended: float) -> None:
        """Record one acknowledged append."""
        if self._begin <= ended <= self.end:
            self.load.entries += self._batch_entries
            self.load.latencies_s.append(ended - began)


def run_workload(workload: Workload, endpoints: str, group: str, seconds: float, body_size_bytes: int) -> Load:
    """Run a workload for `seconds` after a warm-up; return the result.

    Raises:
        NotAppended, AppendUnknown: an append failed, so the figures would be invalid.
    """
    # Incompressible, so that no layer can save bytes by compression.
    bodies = [os.urandom(body_size_bytes) for _ in range(workload.batch_entries)]
    recorder = Recorder(seconds, workload.batch_entries)
    if workload.is_blocking:
        _run_blocking(recorder, endpoints, group, bodies)
    else:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_run_callers(recorder, workload.callers, endpoints, group, bodies))
    return recorder.load


def _run_blocking(recorder: Recorder, endpoints: str, group: str, bodies: list[bytes]) -> None:
    clock = time.perf_counter
    with LogClient(endpoints, group=group) as client:
        while (began := clock()) < recorder.end:
            client.append_many(bodies)
            recorder.record(began, clock())


@contextmanager
def first_failure() -> Iterator[None]:
    """Raise the first exception of a group; the other callers failed for the same reason."""
    try:
        yield
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


async def _run_callers(recorder: Recorder, callers: int, endpoints: str, group: str, bodies: list[bytes]) -> None:
    async with AsyncLogClient(endpoints, group=group) as client:
        await call_until_end(recorder, callers, lambda: client.append_many(bodies))


async def call_until_end(recorder: Recorder, callers: int, append: Callable[[], Awaitable[object]]) -> None:
    """Run callers, each of which appends again as soon as its append is acknowledged.

    Raises:
        Exception: the first failure of an append.
    """
    with first_failure():
        async with asyncio.TaskGroup() as tasks:
            for _ in range(callers):
                tasks.create_task(_call(recorder, append))


async def _call(recorder: Recorder, append: Callable[[], Awaitable[object]]) -> None:
    clock = time.perf_counter
    while (began := clock()) < recorder.end:
        await append()
        recorder.record(began, clock())
