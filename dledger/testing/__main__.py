"""`python -m dledger.testing`: run simulated clusters and print one line per seed.

Exit status: 0 when no invariant was violated; 1 otherwise, with the failed seeds and the command that replays each.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console

from dledger.driver.trace import TracedRaft
from dledger.testing.coverage.branches import branches
from dledger.testing.coverage.census import Census, read_list
from dledger.testing.runner import Result, run_seed, run_seeds
from dledger.testing.totals import Totals, append_to_ledger, next_seed
from dledger.testing.world import Parts

if TYPE_CHECKING:
    from collections.abc import Iterable


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m dledger.testing", description="Run simulated clusters.")
    parser.add_argument("--shell", action="store_true", help="run clients, gRPC's place, connections and nodes, too")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, one after the other (default: 1)")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes (default: 1)")
    parser.add_argument("--nodes", type=int, choices=(3, 5), help="nodes of the cluster (default: drawn by the seed)")
    parser.add_argument("--trace", action="store_true", help="print the events of each run (one job)")
    parser.add_argument("--json-trace", metavar="FILE", help="write what every core did as JSON lines (one seed)")
    parser.add_argument("--table", action="store_true", help="print only failures, and a table at the end")
    parser.add_argument("--ledger", metavar="FILE", help="append a line for each batch; continue after its last seed")
    parser.add_argument(
        "--branches",
        metavar="FILE",
        help="measure which branches the runs take; FILE lists those that few take, with reasons; others are an error",
    )
    parser.add_argument("--hours", type=float, help="run batches of --seeds seeds for this many hours; needs --ledger")
    parser.add_argument("--seeds-in-all", type=int, default=0, metavar="N", help="run batches until N seeds were run")
    options = parser.parse_args(arguments)
    if options.seeds < 1 or options.jobs < 1:
        parser.error("--seeds and --jobs must be at least 1")
    if options.json_trace is not None and options.seeds > 1:
        parser.error("--json-trace holds one run: leave --seeds out")
    if options.shell and (options.nodes or options.json_trace or options.ledger or options.branches):
        parser.error("--shell goes with --seed, --seeds, --jobs, --trace and --table only")
    if (options.hours is not None or options.seeds_in_all) and options.ledger is None:
        parser.error("--hours and --seeds-in-all need --ledger")
    end_s = time.perf_counter() + (options.hours or 0.0) * 3600
    is_good, seeds_left = True, options.seeds_in_all or options.seeds
    while seeds_left > 0 or time.perf_counter() < end_s:
        is_good &= _run_batch(options)
        seeds_left -= options.seeds
    return 0 if is_good else 1


def _run_batch(options: argparse.Namespace) -> bool:
    """Run `--seeds` seeds and print their results; return whether none failed."""
    first_seed = options.seed if options.ledger is None else next_seed(options.ledger)
    totals = Totals()
    census = Census(branches()) if options.branches is not None else None
    began_s = time.perf_counter()
    with ExitStack() as stack:
        for result in _results(options, range(first_seed, first_seed + options.seeds), stack):
            totals.add(result)
            if census is not None:
                census.add(result)
            if not options.table or result.summary is None:
                _print(result.line)
            if result.summary is None:
                _print(result.failure)
    wall_s = time.perf_counter() - began_s
    if options.table:
        Console().print(totals.table(wall_s, options.jobs))
    is_good = not totals.failed
    if census is not None:
        with open(options.branches, encoding="utf-8") as file:  # noqa: PTH123 - as it is named on the command line
            listed = read_list(file.read())
        _print(census.describe(listed))
        is_good &= not census.unlisted(listed)
    if options.ledger is not None:
        append_to_ledger(options.ledger, totals, wall_s)
    _summarize(totals, wall_s)
    return is_good


def _results(options: argparse.Namespace, seeds: range, stack: ExitStack) -> Iterable[Result]:
    """Run the seeds one by one if their events or history are printed, else in `--jobs` processes."""
    if options.shell:
        # Imported only here, because it loads gRPC and the whole node, which is slow in each worker process.
        from dledger.testing.shell.runner import run_shell_seed, run_shell_seeds  # noqa: PLC0415

        if options.trace:
            return (run_shell_seed(seed, _print) for seed in seeds)
        return run_shell_seeds(seeds, options.jobs)
    if not options.trace and options.json_trace is None:
        return run_seeds(seeds, options.nodes, options.jobs, is_measured=options.branches is not None)
    emit = _print if options.trace else None
    parts = None
    if options.json_trace is not None:
        history = stack.enter_context(open(options.json_trace, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - as it is
        parts = Parts(make_raft=partial(TracedRaft, lambda line: history.write(line + "\n")))
    return (run_seed(seed, options.nodes, emit, parts) for seed in seeds)


def _summarize(totals: Totals, seconds: float) -> None:
    rate = totals.event_count / seconds if seconds else 0.0
    head = f"{totals.seed_count} seeds, {len(totals.failed)} failed, {totals.event_count} events in {seconds:.1f} s"
    lines = [f"{head} ({rate:,.0f}/s), hash {totals.state_hash}"]
    lines += [f"failed: seed {result.seed}; replay: {result.replay}" for result in totals.failed]
    sys.stderr.write("\n".join(lines) + "\n")


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
