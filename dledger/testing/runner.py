"""Runs seeds, in this process or in several, and reports each in one line.

A failing seed never stops the others: its line has the violation and the command that repeats the run.
"""

from __future__ import annotations

import traceback
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import TYPE_CHECKING

from dledger.testing.coverage.branches import install, take
from dledger.testing.garbage import collect_garbage_rarely
from dledger.testing.options import draw_options
from dledger.testing.simulation import Simulation, SimulationSummary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dledger.testing.options import SimOptions
    from dledger.testing.world import Parts

# Seeds per task of a worker process: few, so that all workers end together, but enough to amortise the overhead.
_CHUNK_SEEDS = 4


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one seed.

    Attributes:
        seed: the seed.
        node_count: as requested; None: drawn by the seed.
        shape: the options that shaped the run.
        summary: None when it failed.
        failure: the violation, with the last lines of the trace; "" without one.
        branches: the branches taken, one byte each (`dledger.testing.coverage.branches`); b"" when they are not
            measured.
        is_shell: it is a run of the shell's simulator (`dledger.testing.shell`).
    """

    seed: int
    node_count: int | None
    shape: str
    summary: SimulationSummary | None
    failure: str
    branches: bytes = b""
    is_shell: bool = False

    @property
    def replay(self) -> str:
        """The command that runs this seed again and prints its events."""
        nodes = "" if self.node_count is None else f" --nodes {self.node_count}"
        shell = " --shell" if self.is_shell else ""
        return f"python -m dledger.testing{shell} --seed {self.seed}{nodes} --trace"

    @property
    def line(self) -> str:
        """The result as one line."""
        summary = self.summary
        if summary is None:
            reason = self.failure.splitlines()[0]
            return f"seed={self.seed} FAILED {reason} | {self.shape} | replay: {self.replay}"
        work = " ".join(f"{name}={count}" for name, count in summary.work.items() if count)
        faults = ",".join(f"{name}={count}" for name, count in summary.faults.items() if count)
        return (
            f"seed={self.seed} ok {self.shape} | events={summary.event_count} "
            f"simulated_ms={summary.simulated_us // 1_000} {work} "
            f"faults={faults or 'none'} hash={summary.state_hash}"
        )


def run_options(
    options: SimOptions, parts: Parts | None = None, emit: Callable[[str], None] | None = None
) -> tuple[SimulationSummary | None, str]:
    """Run to the end or to the first violation; return the summary, or the violation.

    Args:
        options: of the run.
        parts: faulty parts to use; None: production code.
        emit: receives the trace line by line.
    """
    simulation = Simulation(options, parts, emit)
    try:
        return simulation.run(), ""
    except Exception as error:  # noqa: BLE001 - whatever the code under test raises is this run's result
        last_lines = "\n".join(simulation.trace.last_lines())
        return None, f"{type(error).__name__}: {error}\n{traceback.format_exc()}\n{last_lines}"


def run_seed(
    seed: int,
    node_count: int | None = None,
    emit: Callable[[str], None] | None = None,
    parts: Parts | None = None,
) -> Result:
    """Run one seed.

    Args:
        seed: of the run.
        node_count: 3 or 5; None: drawn by the seed.
        emit: receives the trace line by line.
        parts: parts to use, such as a core that records its history; None: production code.
    """
    options = draw_options(seed, node_count)
    summary, failure = run_options(options, parts, emit)
    return Result(seed=seed, node_count=node_count, shape=options.describe(), summary=summary, failure=failure)


def run_seeds(
    seeds: Iterable[int], node_count: int | None = None, jobs: int = 1, *, is_measured: bool = False
) -> Iterator[Result]:
    """Run many seeds and yield their results in the order of the seeds.

    Args:
        seeds: of the runs.
        node_count: as in `run_seed`.
        jobs: worker processes; 1 runs them here, unless their branches are measured.
        is_measured: results contain the branches that their runs took.
    """
    if jobs == 1 and not is_measured:
        for seed in seeds:
            yield run_seed(seed, node_count)
        return
    # Spawned, not forked: the caller may have threads, whose locks would stay locked in a fork.
    prepare = install if is_measured else collect_garbage_rarely
    with ProcessPoolExecutor(max_workers=jobs, mp_context=get_context("spawn"), initializer=prepare) as pool:
        tasks = [(seed, node_count) for seed in seeds]
        yield from pool.map(_run_task, tasks, chunksize=_CHUNK_SEEDS)


def _run_task(task: tuple[int, int | None]) -> Result:
    take()
    return replace(run_seed(*task), branches=take())
