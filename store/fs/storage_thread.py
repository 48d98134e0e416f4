"""One thread for disk work that may stall, so that the event loop can continue to send heartbeats.

Not here: which work is done, and when (`dledger.driver.syncer`, `dledger.node.node`, `store.maintenance.service`).
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Protocol

Job = Callable[[], object]
Finished = Callable[[Exception | None], None]


class Worker(Protocol):
    """The port: runs disk work outside the event loop, one job after the other."""

    def run(self, job: Job, finished: Finished) -> None:
        """Run `job` outside the loop; then call `finished` on the loop, with the error of the job, if any."""

    def drain(self) -> None:
        """Block until all queued jobs have run; their `finished` calls follow later, on the loop."""

    async def stop(self) -> None:
        """Wait for all jobs and their `finished` calls, then stop the worker."""


class StorageThread:
    """Runs jobs one after the other and reports each end on the event loop; the first job starts the thread.

    The owner bounds the running jobs (one sync, one checkpoint). Construct it inside the running event loop.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[tuple[Job, Finished | None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._jobs_count = 0
        self._idle: asyncio.Future[None] | None = None

    def run(self, job: Job, finished: Finished) -> None:
        """Run `job` in the thread; then call `finished` on the loop, with the error of the job, if any."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._jobs_count += 1
        self._jobs.put((job, finished))

    def drain(self) -> None:
        """Block until all queued jobs have run; their `finished` calls follow later, on the loop."""
        if self._jobs_count:
            is_drained = threading.Event()
            # Jobs run in order, so all earlier ones have run when this one does.
            self._jobs.put((is_drained.set, None))
            is_drained.wait()

    async def stop(self) -> None:
        """Wait for all jobs and their `finished` calls, then end the thread."""
        while self._jobs_count:
            self._idle = self._loop.create_future()
            await self._idle
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, finished = item
            error: Exception | None = None
            try:
                job()
            except Exception as raised:  # noqa: BLE001  (the thread's edge: the loop judges it, and stops the node)
                error = raised
            if finished is not None:
                self._loop.call_soon_threadsafe(self._finish, finished, error)

    def _finish(self, finished: Finished, error: Exception | None) -> None:
        self._jobs_count -= 1
        try:
            finished(error)
        finally:
            # Counted even if the callback raised, so that a stop does not wait forever.
            if not self._jobs_count and self._idle is not None and not self._idle.done():
                self._idle.set_result(None)
