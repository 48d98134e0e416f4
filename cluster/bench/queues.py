"""Measurements of `cluster.bench.store` with thousands of queues: opening the store, and pauses of the event loop."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.bench.store_measurements import BATCH, timed
from cluster.bench.workloads import first_failure
from commitlog.plain.commit_log import CommitLogConfig
from commitlog.plain.store import PlainStore, PlainStoreConfig, open_plain_store
from dledger.event_loop import new_event_loop
from store.fs.linux.files import OsFiles
from store.fs.retention_rules import ClockReading
from store.maintenance.service import StoreService
from store.model.config import MessageStoreConfig
from store.model.message import Message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

FEW_QUEUES = 8
_QUEUES_A_TOPIC = 8
_ROUNDS = 4
# Messages are a second apart, so that nearly all of them are older than the range that a start after a kill checks.
_MS_PER_S = 1000
_PUTS_A_SECOND = 500
_BODY = bytes(100)
_FLUSH_INTERVAL_MS = 2000
_WRITTEN_S = 6.0


class _Clock:
    """A wall clock that advances by a second at each reading."""

    def __init__(self) -> None:
        self._wall_s = 1_700_000_000.0

    def __call__(self) -> ClockReading:
        self._wall_s += 1
        return ClockReading(self._wall_s, self._wall_s, 12)


def _message(number: int, queues: int) -> Message:
    topic, queue_id = divmod(number % queues, _QUEUES_A_TOPIC)
    return Message(f"bench-{topic}", _BODY, queue_id)


def _batches(count: int, queues: int) -> Iterator[list[Message]]:
    for first in range(0, count, BATCH):
        yield [_message(number, queues) for number in range(first, min(first + BATCH, count))]


def _open(folder: Path, clocks: Callable[[], ClockReading]) -> PlainStore:
    config = PlainStoreConfig(log=CommitLogConfig(is_flush_sync=False))
    return open_plain_store(OsFiles(), str(folder), config, clocks=clocks)


def opening_s(folder: Path, queues: int, *, is_killed: bool) -> float:
    """Return the time to open a store with `queues` queues, in seconds.

    Args:
        folder: folder for the store.
        queues: number of queues, with four messages each.
        is_killed: whether the last process was killed while one queue in ten had a unit only in memory; False: it
            stopped cleanly.
    """
    clock = _Clock()
    store = _open(folder, clock)
    for batch in _batches(_ROUNDS * queues, queues):
        store.messages.put_many(batch)
    store.flush()
    if is_killed:
        for batch in _batches(queues // 10, queues):
            store.messages.put_many(batch)
        store.lifecycle.flush_log()
        store.messages.dispatch()
        store.lifecycle.abandon()
    else:
        store.close()
    opened: list[PlainStore] = []
    seconds = timed(lambda: opened.append(_open(folder, clock)))
    opened[0].close()
    return seconds


class _Turns:
    """Measures the longest iteration of the running loop."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._last_s = time.perf_counter()
        self._is_running = True
        self._turn()

    def _turn(self) -> None:
        now = time.perf_counter()
        self.longest_s = max(self.longest_s, now - self._last_s)
        self._last_s = now
        if self._is_running:
            self._loop.call_soon(self._turn)

    def stop(self) -> None:
        """Stop measuring."""
        self._is_running = False


@contextmanager
def _service(folder: Path, *, is_flush_sync: bool) -> Iterator[StoreService]:
    # Units are written every two seconds, so that a short run includes such writes.
    store_config = MessageStoreConfig(flush_consume_queue_thorough_interval_ms=_FLUSH_INTERVAL_MS)
    config = PlainStoreConfig(CommitLogConfig(is_flush_sync=is_flush_sync), store_config)
    store = open_plain_store(OsFiles(), str(folder), config)
    service = StoreService(store.messages, store.log, store.lifecycle, store_config, is_flush_sync=is_flush_sync)
    service.start()
    yield service


def _run(work: Callable[[], Awaitable[float]]) -> float:
    async def measured() -> float:
        return await work()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(measured())


def longest_turn_ms(folder: Path, queues: int) -> float:
    """Return the longest iteration of the event loop, in ms, while each queue gets a message and is written."""

    async def work() -> float:
        with _service(folder, is_flush_sync=False) as service:
            turns = _Turns()
            for batch in _batches(queues, queues):
                await service.put_many(batch)
                await asyncio.sleep(0)
            await service.dispatched_to(service.store.log.end_offset)
            # All units are written within the interval of `_service`, plus a margin.
            await asyncio.sleep(_WRITTEN_S)
            turns.stop()
            await service.stop()
            return turns.longest_s * _MS_PER_S

    return _run(work)


def put_p99_ms(folder: Path, queues: int, seconds: float) -> float:
    """Return the 99th percentile latency of durable puts in ms: 500 per second, each to the next of the queues."""

    async def work() -> float:
        waits: list[float] = []

        async def put(service: StoreService, number: int) -> None:
            began = time.perf_counter()
            await service.put(_message(number, queues))
            waits.append(time.perf_counter() - began)

        with _service(folder, is_flush_sync=True) as service:
            for batch in _batches(queues, queues):
                await service.put_many(batch)
            due = time.perf_counter()
            with first_failure():
                async with asyncio.TaskGroup() as group:
                    for number in range(int(seconds * _PUTS_A_SECOND)):
                        await asyncio.sleep(max(due - time.perf_counter(), 0))
                        group.create_task(put(service, number))
                        due += 1 / _PUTS_A_SECOND
            await service.stop()
        return sorted(waits)[len(waits) * 99 // 100] * _MS_PER_S

    return _run(work)
