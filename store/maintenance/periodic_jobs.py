"""Runs periodic jobs in an event loop, in the order of a list.

A job runs a bounded part of its work in the loop, and the rest in later iterations or in another thread; the bound of
each one is in docs/architecture.md, "Periodic jobs".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# The period of a job that itself decides at each tick whether work is due.
EVERY_TICK_MS: Final = 0


class PeriodicJob(NamedTuple):
    """One job.

    Attributes:
        name: unique in its list.
        period_ms: time from one run to the next; `EVERY_TICK_MS` for each tick.
        run: called with the time of the monotonic clock in ms. Raises StorageFailed or StoreStopped: the store must
            stop.
        is_due_at_start: run first at the first tick instead of one period after it.
    """

    name: str
    period_ms: int
    run: Callable[[int], None]
    is_due_at_start: bool = False


class PeriodicJobs:
    """Runs the due jobs of a list.

    Args:
        jobs: in the order of execution.
        now_ms: the time now, of the monotonic clock.
    """

    def __init__(self, jobs: Sequence[PeriodicJob], now_ms: int) -> None:
        # Next due time of each job; 0: at the next tick.
        self._due_ms = {job: 0 if job.is_due_at_start else now_ms + job.period_ms for job in jobs}

    def run_due(self, now_ms: int) -> None:
        """Run the due jobs. An exception of a job is raised, and later jobs do not run."""
        for job, due_ms in self._due_ms.items():
            if now_ms >= due_ms:
                self._due_ms[job] = now_ms + job.period_ms
                job.run(now_ms)

    def bring_forward(self, job: PeriodicJob) -> None:
        """Schedule a job of the list for the next tick."""
        self._due_ms[job] = 0
