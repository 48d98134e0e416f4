"""A simulated thread whose jobs run in steps: between two of them the loop of the process continues.

A job has a real thread, which runs only while the scheduler's thread waits for it, and returns control whenever its
work takes simulated time: before each operation on the disk, in each sync, and where the code of the run calls `take`.
So only real work takes simulated time, and the seed decides what the loop does between two steps of a job. A process
that dies keeps the effects of the steps before its death.

Invariants: at most one job has begun, and at most one thread of the whole run is active at any time.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from dledger.testing.disk.crash_point import CrashPoint
from dledger.testing.faults import SimulatedCrash
from dledger.testing.shell.loop.sim_worker import UnfinishedJobs

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from dledger.testing.scheduler import Scheduler
    from dledger.testing.shell.loop.sim_loop import SimLoop
    from store.fs.storage_thread import Finished, Job

# Delay from `run` to the start of a job, and duration of a disk operation without its sync.
_OPERATION_MAX_US = 60
# Interval at which a job of a paused process checks whether it may continue.
_PAUSED_US = 1_000


class SteppedWorker:
    """`store.fs.storage_thread.Worker`, whose jobs are interleaved with the steps of the loop.

    Args:
        scheduler: lets time pass.
        loop: of the process.
        random: draws the durations of operations.
    """

    def __init__(self, scheduler: Scheduler, loop: SimLoop, random: Random) -> None:
        self._scheduler = scheduler
        self._loop = loop
        self._random = random
        self._waiting: deque[tuple[Job, Finished]] = deque()
        self._begun: tuple[_JobThread, Finished] | None = None
        self._is_step_due = False
        self._is_crashed = False
        self._unfinished = UnfinishedJobs(loop)

    @property
    def is_busy(self) -> bool:
        """Whether a job is not finished."""
        return self._unfinished.count > 0

    @property
    def is_moving(self) -> bool:
        """Whether a step of a job runs now: the caller is that job."""
        return self._begun is not None and self._begun[0].is_moving

    def run(self, job: Job, finished: Finished) -> None:
        """Run `job` apart from the loop; then call `finished` on the loop, with what the job raised."""
        self._unfinished.count += 1
        self._waiting.append((job, finished))
        self._step_after(self._operation_us())

    def drain(self) -> None:
        """Run all jobs to their end; the loop is blocked for their duration.

        Raises:
            SimulatedCrash: the process died in one of them.
        """
        while self._begun is not None or self._waiting:
            self._loop.spend(self._proceed() or 0)
            if self._is_crashed:
                raise SimulatedCrash

    async def stop(self) -> None:
        """Wait for all jobs and their `finished` calls."""
        await self._unfinished.wait()

    def take(self, duration_us: int) -> None:
        """Let `duration_us` pass; only a job may call it.

        Raises:
            SimulatedCrash: the process died in between.
        """
        assert self._begun is not None, "a job runs"
        self._begun[0].take(duration_us)

    def operate(self) -> None:
        """Let the duration of a disk operation pass, if a job calls this.

        Raises:
            SimulatedCrash: the process died in between.
        """
        if self.is_moving:
            self.take(self._operation_us())

    def cut(self) -> None:
        """End the running job at its present step: the process is dead."""
        self._waiting.clear()
        if self._begun is not None:
            self._begun[0].cut()
            self._begun = None

    def _operation_us(self) -> int:
        return 1 + int(self._random.random() * _OPERATION_MAX_US)

    def _step_after(self, duration_us: int) -> None:
        if not self._is_step_due:
            self._is_step_due = True
            self._scheduler.after(duration_us, self._step)

    def _step(self) -> None:
        """Run a step of a job, and schedule the next one after its duration."""
        self._is_step_due = False
        if self._loop.is_dead or (self._begun is None and not self._waiting):
            # `drain` has run all jobs.
            return
        if self._loop.is_paused:
            # SIGSTOP stops all threads of a process.
            self._step_after(_PAUSED_US)
            return
        duration_us = self._proceed()
        if duration_us is not None or self._waiting:
            self._step_after(duration_us or self._operation_us())

    def _proceed(self) -> int | None:
        """Run a step; return its duration in microseconds; None: the job has ended."""
        if self._begun is None:
            job, finished = self._waiting.popleft()
            self._begun = _JobThread(job), finished
        thread, finished = self._begun
        duration_us = thread.proceed()
        if duration_us is not None:
            return duration_us
        self._begun = None
        if isinstance(thread.error, SimulatedCrash):
            self._waiting.clear()
            self._is_crashed = True
            # The machine detects in this step that its crash point was reached.
            self._loop.call_soon(_nothing)
        else:
            self._loop.call_soon(self._unfinished.end, finished, thread.error)
        return None


class SteppedCrashPoint(CrashPoint):
    """The crash point of a process with a stepped worker: each operation of a job takes time before its effect.

    Args:
        operate: `SteppedWorker.operate`.
    """

    __slots__ = ("_operate",)

    def __init__(self, operate: Callable[[], None]) -> None:
        super().__init__()
        self._operate = operate

    def reach(self) -> bool:
        """Let time pass, then count the operation."""
        self._operate()
        return super().reach()


class _JobThread:
    """One job in a thread, which runs only inside `proceed` and `cut`.

    Attributes:
        is_moving: the thread runs and its owner waits.
        error: the exception of the job; set when it has ended.
    """

    def __init__(self, job: Job) -> None:
        self.is_moving = False
        self.error: Exception | SimulatedCrash | None = None
        self._job = job
        self._is_cut = False
        self._taken_us: int | None = None
        self._resume = threading.Semaphore(0)
        self._is_back = threading.Semaphore(0)
        # A daemon, so that an aborted run does not block the exit.
        self._thread = threading.Thread(target=self._run, name="simulated job", daemon=True)
        self._thread.start()

    def proceed(self) -> int | None:
        """Run until the job takes time; return the duration in microseconds; None: the job has ended."""
        self._taken_us = None
        self.is_moving = True
        self._resume.release()
        self._is_back.acquire()
        self.is_moving = False
        if self._taken_us is None:
            self._thread.join()
        return self._taken_us

    def take(self, duration_us: int) -> None:
        """Return control for a simulated duration; called by the job."""
        if not self._is_cut:
            self._taken_us = duration_us
            self._is_back.release()
            self._resume.acquire()
        if self._is_cut:
            raise SimulatedCrash

    def cut(self) -> None:
        """Raise `SimulatedCrash` in the job, and wait until it has unwound."""
        self._is_cut = True
        while self.proceed() is not None:
            continue

    def _run(self) -> None:
        self._resume.acquire()
        try:
            if not self._is_cut:
                self._job()
        except (Exception, SimulatedCrash) as error:  # noqa: BLE001 - the thread's edge, as in production: the loop judges it
            self.error = error
        self._is_back.release()


def _nothing() -> None:
    """An empty step in which the machine checks its crash point."""
