"""`python -m dledger.testing`: run simulated clusters, one line a seed.

Exit status: 0 when no invariant was violated; 1 otherwise, with the seeds and how to replay each.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from dledger.testing.runner import Result, run_seed, run_seeds
from dledger.testing.sim_process import Parts
from dledger.trace import TracedRaft

if TYPE_CHECKING:
    from collections.abc import Iterable


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m dledger.testing", description="Run simulated clusters.")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, one after the other (default: 1)")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes (default: 1)")
    parser.add_argument("--nodes", type=int, choices=(3, 5), help="nodes of the cluster (default: drawn by the seed)")
    parser.add_argument("--trace", action="store_true", help="tell the story of each run (one job)")
    parser.add_argument("--json-trace", metavar="FILE", help="write what every core did as JSON lines (one seed)")
    options = parser.parse_args(arguments)
    if options.seeds < 1 or options.jobs < 1:
        parser.error("--seeds and --jobs must be at least 1")
    if options.json_trace is not None and options.seeds > 1:
        parser.error("--json-trace holds one run: leave --seeds out")
    seeds = range(options.seed, options.seed + options.seeds)
    began = time.perf_counter()
    failed, event_count = [], 0
    with ExitStack() as stack:
        for result in _results(options, seeds, stack):
            _print(result.line)
            event_count += 0 if result.summary is None else result.summary.event_count
            if result.summary is None:
                failed.append(result)
                _print(result.failure)
    seconds = time.perf_counter() - began
    _summarize(failed, options.seeds, event_count, seconds)
    return 1 if failed else 0


def _results(options: argparse.Namespace, seeds: range, stack: ExitStack) -> Iterable[Result]:
    """Run the seeds one by one if somebody wants their story or their history, else in as many jobs as asked for."""
    if not options.trace and options.json_trace is None:
        return run_seeds(seeds, options.nodes, options.jobs)
    tell = _print if options.trace else None
    parts = None
    if options.json_trace is not None:
        history = stack.enter_context(open(options.json_trace, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - as it is
        parts = Parts(make_raft=partial(TracedRaft, lambda line: history.write(line + "\n")))
    return (run_seed(seed, options.nodes, tell, parts) for seed in seeds)


def _summarize(failed: list[Result], seed_count: int, event_count: int, seconds: float) -> None:
    rate = event_count / seconds if seconds else 0.0
    lines = [f"{seed_count} seeds, {len(failed)} failed, {event_count} events in {seconds:.1f} s ({rate:,.0f}/s)"]
    lines += [f"failed: seed {result.seed}; replay: {result.replay}" for result in failed]
    sys.stderr.write("\n".join(lines) + "\n")


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
