"""Runs seeds of the shell's simulator, in this process or in several, and reports each in one line."""

from __future__ import annotations

import traceback
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

from dledger.testing.garbage import collect_garbage_rarely
from dledger.testing.runner import Result
from dledger.testing.shell.options import draw_shell_options
from dledger.testing.shell.simulation import ShellSimulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Seeds per task of a worker process.
_CHUNK_SEEDS = 4


def run_shell_seed(seed: int, emit: Callable[[str], None] | None = None) -> Result:
    """Run one seed to its end or to its first violation.

    Args:
        seed: of the run.
        emit: receives the trace line by line.
    """
    options = draw_shell_options(seed)
    simulation = ShellSimulation(options, emit)
    summary, failure = None, ""
    try:
        summary = simulation.run()
    except Exception as error:  # noqa: BLE001 - whatever the code under test raises is this run's result
        last_lines = "\n".join(simulation.trace.last_lines())
        failure = f"{type(error).__name__}: {error}\n{''.join(traceback.format_exception(error))}\n{last_lines}"
    return Result(seed=seed, node_count=None, shape=options.describe(), summary=summary, failure=failure, is_shell=True)


def run_shell_seeds(seeds: Iterable[int], jobs: int = 1) -> Iterator[Result]:
    """Run many seeds and yield their results in the order of the seeds.

    Args:
        seeds: of the runs.
        jobs: worker processes; 1 runs them here.
    """
    if jobs == 1:
        yield from map(run_shell_seed, seeds)
        return
    # Spawned, not forked: the caller may have threads, whose locks would stay locked in a fork.
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=collect_garbage_rarely) as pool:
        yield from pool.map(run_shell_seed, seeds, chunksize=_CHUNK_SEEDS)
