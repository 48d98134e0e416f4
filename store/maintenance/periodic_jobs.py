"""Periodic jobs in an event loop, one after the other in the order of a list.

A job does a bounded part of its work in the loop and leaves the rest to later iterations or to another thread; the
bound of each one is in docs/architecture.md, "Periodic jobs".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# The period of a job that decides itself, at each tick, whether anything is due.
EVERY_TICK_MS: Final = 0


class PeriodicJob(NamedTuple):
    """One job.

    Attributes:
        name: unique in its list.
        period_ms: time from one run to the next; `EVERY_TICK_MS` for each tick.
        run: gets the time of the monotonic clock in ms. Raises StorageFailed or StoreStopped: the store must stop.
        is_due_at_start: the first run is at the first tick, not a period after it.
    """

    name: str
    period_ms: int
    run: Callable[[int], None]
    is_due_at_start: bool = False


class PeriodicJobs:
    """Runs those jobs of a list that are due.

    Args:
        jobs: in the order of execution.
        now_ms: the time now, of the monotonic clock.
    """

    def __init__(self, jobs: Sequence[PeriodicJob], now_ms: int) -> None:
        # When each is due next; 0: at the next tick.
        self._due_ms = {job: 0 if job.is_due_at_start else now_ms + job.period_ms for job in jobs}

    def run_due(self, now_ms: int) -> None:
        """Run the jobs that are due. An error of a job is raised, and later ones of the list do not run."""
        for job, due_ms in self._due_ms.items():
            if now_ms >= due_ms:
                self._due_ms[job] = now_ms + job.period_ms
                job.run(now_ms)

    def bring_forward(self, job: PeriodicJob) -> None:
        """Schedule a job of the list for the next tick."""
        self._due_ms[job] = 0
