"""The sum of many runs: the results of a campaign of seeds, as a table and as a line of the ledger.

The ledger is a text file to which only this program appends, one line for each batch of seeds. To verify a line,
check the commit out, run its seeds again, and compare the hash: it covers the final state of every run in order.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

if TYPE_CHECKING:
    from dledger.testing.runner import Result

_US_PER_HOUR = 3_600_000_000
_HEAD = (
    "# Simulated runs. Appended by `make sim-long` only; one line a batch.\n"
    "# first-last commit simulated_hours wall_hours events hash failures\n"
)


class Totals:
    """Adds up results, in the order of their seeds.

    Attributes:
        first_seed, last_seed: what was run; None before the first result.
        seed_count: results so far.
        failed: runs with a violation.
        event_count, simulated_us: totals of the others.
    """

    def __init__(self) -> None:
        self.first_seed: int | None = None
        self.last_seed: int | None = None
        self.seed_count = 0
        self.failed: list[Result] = []
        self.event_count = 0
        self.simulated_us = 0
        self._faults: dict[str, int] = {}
        self._work: dict[str, int] = {}
        self._digest = hashlib.sha256()

    @property
    def state_hash(self) -> str:
        """Hash over the final-state hashes of all runs."""
        return self._digest.hexdigest()[:16]

    def add(self, result: Result) -> None:
        """Add the next result."""
        self.first_seed = result.seed if self.first_seed is None else self.first_seed
        self.last_seed = result.seed
        self.seed_count += 1
        summary = result.summary
        if summary is None:
            self.failed.append(result)
            self._digest.update(f"{result.seed} failed\n".encode())
            return
        self._digest.update(f"{result.seed} {summary.state_hash}\n".encode())
        self.event_count += summary.event_count
        self.simulated_us += summary.simulated_us
        for sums, counts in ((self._work, summary.work), (self._faults, summary.faults)):
            for name, count in counts.items():
                sums[name] = sums.get(name, 0) + count

    def table(self, wall_s: float, jobs: int) -> Table:
        """Return all totals as a Markdown table.

        Args:
            wall_s: duration of the runs, in seconds.
            jobs: the number of processes.
        """
        table = Table(box=box.MARKDOWN)
        table.add_column(f"seeds {self.first_seed} to {self.last_seed}")
        table.add_column("count", justify="right")
        rate = self.event_count / wall_s / jobs if wall_s else 0.0
        for name, value in (
            ("seeds", f"{self.seed_count:,}"),
            ("failed", f"{len(self.failed):,}"),
            ("simulated hours", f"{self.simulated_us / _US_PER_HOUR:.2f}"),
            ("wall minutes", f"{wall_s / 60:.1f}"),
            ("events", f"{self.event_count:,}"),
            ("events/s a process", f"{rate:,.0f}"),
        ):
            table.add_row(name, value)
        for title, counts in (("what was done", self._work), ("faults that took effect", self._faults)):
            table.add_row(f"**{title}**", f"**{sum(counts.values()):,}**")
            for name, count in counts.items():
                table.add_row(name.replace("_", " "), f"{count:,}")
        return table

    def ledger_line(self, wall_s: float) -> str:
        """Return the line of this batch."""
        failures = ",".join(str(result.seed) for result in self.failed) or "none"
        return (
            f"{self.first_seed}-{self.last_seed} {_commit()} {self.simulated_us / _US_PER_HOUR:.3f} "
            f"{wall_s / 3600:.3f} {self.event_count} {self.state_hash} {failures}\n"
        )


def append_to_ledger(path: str, totals: Totals, wall_s: float) -> None:
    """Append the line of a batch to the ledger, which is created if missing."""
    with open(path, "a", encoding="utf-8") as ledger:  # noqa: PTH123 - as it is named on the command line
        if ledger.tell() == 0:
            ledger.write(_HEAD)
        ledger.write(totals.ledger_line(wall_s))


def next_seed(path: str) -> int:
    """Return the first seed after all those in the ledger; 1 without a ledger."""
    if not os.path.exists(path):  # noqa: PTH110 - as it is named on the command line
        return 1
    with open(path, encoding="utf-8") as ledger:  # noqa: PTH123
        lines = [line for line in ledger if not line.startswith("#")]
    return 1 + max((int(line.split(maxsplit=1)[0].rpartition("-")[2]) for line in lines), default=0)


def _commit() -> str:
    """Return the commit of the sources that were run; "unknown" outside of a checkout."""
    asked = ("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    try:
        answered = subprocess.run(asked, capture_output=True, text=True, check=True, cwd=os.path.dirname(__file__))  # noqa: S603, PTH120
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return answered.stdout.strip()
