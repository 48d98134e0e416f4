"""A simulated storage thread: its jobs take simulated time, during which the loop continues."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from dledger.testing.faults import SimulatedCrash

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from dledger.testing.scheduler import Scheduler
    from dledger.testing.shell.loop.sim_loop import SimLoop
    from store.fs.storage_thread import Finished, Job


class DiskTime:
    """The simulated time of a process's syncs: a sync on the loop blocks the loop, one in a job is part of the job.

    Args:
        loop: of the process.
        duration_us: draws the duration of a sync.
    """

    def __init__(self, loop: SimLoop, duration_us: Callable[[], int]) -> None:
        self.duration_us = duration_us
        self._loop = loop
        # The remaining duration of the running job; None: no job runs.
        self._left_us: int | None = None

    def synced(self) -> None:
        """Advance the clock by the duration of one sync."""
        if self._left_us is None:
            self._loop.spend(self.duration_us())
        else:
            self._loop.spend(self._left_us)
            self._left_us = 0

    def begin_job(self, duration_us: int) -> None:
        """Set the process's clock back to the start of the job that ends now."""
        self._loop.spend(-duration_us)
        self._left_us = duration_us

    def end_job(self) -> None:
        """Set the clock to the end of the job."""
        assert self._left_us is not None, "a job ends that did not begin"
        self._loop.spend(self._left_us)
        self._left_us = None


class UnfinishedJobs:
    """Tracks the jobs of a worker whose `finished` was not called yet.

    Args:
        loop: of the process.

    Attributes:
        count: the number of these jobs.
    """

    def __init__(self, loop: SimLoop) -> None:
        self.count = 0
        self._loop = loop
        self._idle: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Wait until there are no unfinished jobs."""
        while self.count:
            self._idle = self._loop.create_future()
            await self._idle

    def end(self, finished: Finished, error: Exception | None) -> None:
        """Call `finished` of a job with the exception that the job raised, or None."""
        self.count -= 1
        try:
            finished(error)
        finally:
            if not self.count and self._idle is not None and not self._idle.done():
                self._idle.set_result(None)


class SimWorker:
    """`store.fs.storage_thread.Worker`: a job runs as a whole at the end of its duration.

    Args:
        scheduler: lets time pass.
        loop: of the process.
        disk: of the process; a job takes as long as a sync.
    """

    def __init__(self, scheduler: Scheduler, loop: SimLoop, disk: DiskTime) -> None:
        self._scheduler = scheduler
        self._loop = loop
        self._disk = disk
        self._jobs: deque[tuple[Job, Finished, int]] = deque()
        self._unfinished = UnfinishedJobs(loop)

    def run(self, job: Job, finished: Finished) -> None:
        """Run `job` apart from the loop; then call `finished` on the loop, with what the job raised."""
        self._unfinished.count += 1
        duration_us = self._disk.duration_us()
        self._jobs.append((job, finished, duration_us))
        if len(self._jobs) == 1:
            self._scheduler.after(duration_us, self._work)

    def drain(self) -> None:
        """Run all jobs now; the loop is blocked until they have run."""
        while self._jobs:
            self._work_once()

    async def stop(self) -> None:
        """Wait for all jobs and their `finished` calls."""
        await self._unfinished.wait()

    def _work(self) -> None:
        if self._loop.is_dead or not self._jobs:
            return
        if self._loop.is_paused:
            # SIGSTOP stops all threads of a process.
            self._scheduler.after(self._jobs[0][2] + 1, self._work)
            return
        self._disk.begin_job(self._jobs[0][2])
        self._work_once()
        self._disk.end_job()
        if self._jobs:
            self._scheduler.after(self._jobs[0][2], self._work)

    def _work_once(self) -> None:
        job, finished, _ = self._jobs.popleft()
        error: Exception | None = None
        try:
            job()
        except SimulatedCrash:
            # The machine detects that its crash point was reached.
            self._loop.call_soon(_nothing)
            return
        except Exception as raised:  # noqa: BLE001 - the thread's edge, as in production: the loop judges it
            error = raised
        self._loop.call_soon(self._unfinished.end, finished, error)


def _nothing() -> None:
    """An empty step in which the machine checks its crash point."""
