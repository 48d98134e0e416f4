"""What all simulated processes of a run share, and where a violation is noted until the run's own loop raises it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dledger.testing.faults import SimulatedCrash, Violation

if TYPE_CHECKING:
    import asyncio
    from typing import Any

    from dledger.testing.faults import FaultCounts
    from dledger.testing.scheduler import Scheduler
    from dledger.testing.shell.history import History
    from dledger.testing.shell.network import Network
    from dledger.testing.shell.options import FaultTally, ShellOptions
    from dledger.testing.trace import Trace


@dataclass(slots=True)
class ShellWorld:
    """The shared parts of one run.

    Attributes:
        violation: the first promise that was broken; code of the product must not catch it, so it is not raised there.
        left: tasks of processes that ended; their coroutines are closed when the run is over, never before: what they
            hold must not be freed in the middle of another process's step.
    """

    options: ShellOptions
    scheduler: Scheduler
    network: Network
    history: History
    tally: FaultTally
    disk_counts: FaultCounts
    trace: Trace
    violation: Exception | None = None
    left: list[asyncio.Task[Any]] = field(default_factory=list)

    def violate(self, error: Exception) -> None:
        """Note that a promise was broken; the run ends after the current event."""
        self.violation = self.violation or error

    def on_error(self, who: str, message: str, error: BaseException | None) -> None:
        """Take what asyncio would log: no error may get lost in a callback or a task."""
        if isinstance(error, SimulatedCrash):
            return
        violation = Violation("no error gets lost", f"{who}: {message}: {type(error).__name__}: {error}")
        violation.__cause__ = error
        self.violate(violation)
