"""`make bench-peers`: measures this project, the floor and other replicated logs in turn, in one run on one machine.

In each round every system is measured once: all workloads one after the other on three new nodes, then a kill of the
leader of three others. So all systems are measured under the same conditions as far as possible, and only ratios within
a round are compared. A system whose programs cannot be built here is skipped. `peer_systems` has the systems.

Example:
    python scripts/peers/bench_peers.py --rounds 5 --seconds 5 floor etcd
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from peer_figures import FAILOVER, OURS, Comparison, Sample
from peer_runs import DriverFailed, run_failover, run_workload
from peer_systems import SYSTEMS, WORKLOAD_NAMES, available_systems, chosen_systems
from peer_table import figures_table, systems_table

from cluster.local.node import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from peer_nodes import Nodes
    from peer_systems import System

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured.

    Attributes:
        systems: names, in the order of a round.
        workloads: names.
        rounds: number of rounds.
        seconds: measured time of a workload.
        body: bytes of a body.
        folder: parent of the folders of nodes; it determines the disk.
    """

    systems: Sequence[str]
    workloads: Sequence[str]
    rounds: int
    seconds: float
    body: int
    folder: Path

    def samples(self) -> Iterator[Sample]:
        """Measure; yield each sample as soon as it exists."""
        # New nodes for the failover: on long logs that of DLedger takes three times as long.
        parts = [
            [name for name in self.workloads if (name == FAILOVER) == is_failover] for is_failover in (False, True)
        ]
        for number in range(self.rounds):
            for name in self.systems:
                for part in parts:
                    measured = [workload for workload in part if workload not in SYSTEMS[name].blanks]
                    for sample in self._samples_of(number, name, measured) if measured else ():
                        _report(sample, self.rounds)
                        yield sample

    def _samples_of(self, number: int, name: str, workloads: Sequence[str]) -> Iterator[Sample]:
        """Run workloads on new nodes of one system, one after the other."""
        system = SYSTEMS[name]
        with _temporary(self.folder) as folder:
            try:
                with system.start(folder) as nodes:
                    for workload in workloads:
                        yield self._sample(system, nodes, Sample(number, name, workload), folder)
            except (ClusterError, OSError, subprocess.SubprocessError) as error:
                yield Sample(number, name, "start", failure=str(error))

    def _sample(self, system: System, nodes: Nodes, empty: Sample, folder: Path) -> Sample:
        try:
            if empty.workload == FAILOVER:
                return run_failover(system, nodes, empty, self.body, folder)
            return run_workload(system, nodes, empty, self.seconds, self.body, folder)
        except DriverFailed as error:
            return replace(empty, failure=str(error))


@contextmanager
def _temporary(parent: Path) -> Iterator[Path]:
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="peers-", dir=parent)).absolute()
    # Otherwise what an earlier system left in the page cache is written during this one's syncs.
    os.sync()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _report(sample: Sample, rounds: int) -> None:
    figure = sample.figure
    unit = "s" if sample.workload == FAILOVER else "bodies/s"
    shown = f"failed: {sample.failure}" if figure is None else f"{figure:,.2f} {unit}"
    print(f"round {sample.round + 1} of {rounds}: {sample.system}, {sample.workload}: {shown}", flush=True)


def machine() -> dict[str, object]:
    """Return a description of this machine and of the sources."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "time": f"{datetime.now().astimezone():%Y-%m-%dT%H:%M:%S%z}",
        "commit": _git("rev-parse", "HEAD"),
        "is_changed": bool(_git("status", "--porcelain")),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / (1 << 30), 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _git(*words: str) -> str:
    if shutil.which("git") is None:
        return ""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.strip()


def result_object(plan: Plan, samples: Sequence[Sample], skipped: dict[str, str]) -> dict[str, object]:
    """Return the result for JSON, without the description of the machine."""
    comparison = Comparison(samples)
    cells = []
    for workload in plan.workloads:
        for name in plan.systems:
            main = comparison.spread(name, workload, lambda sample: sample.figure)
            ratio = comparison.ratio(name, workload)
            cells.append(
                {
                    "workload": workload,
                    "system": name,
                    "unit": "s" if workload == FAILOVER else "bodies/s",
                    "figure": main.as_object() if main else None,
                    "ours_divided_by_it": ratio.as_object() if ratio and name != OURS else None,
                    "blank": SYSTEMS[name].blanks.get(workload),
                }
            )
    systems = {
        name: {"title": SYSTEMS[name].title, "acknowledges": SYSTEMS[name].acknowledges} for name in plan.systems
    }
    options = {"rounds": plan.rounds, "seconds": plan.seconds, "body_size_bytes": plan.body}
    return {
        "options": options,
        "systems": systems,
        "skipped": skipped,
        "cells": cells,
        "samples": [asdict(sample) for sample in samples],
    }


def show(plan: Plan, samples: Sequence[Sample], skipped: dict[str, str]) -> None:
    """Print the tables, and what they lack."""
    comparison = Comparison(samples)
    shown = {name: (SYSTEMS[name].title, SYSTEMS[name].acknowledges) for name in plan.systems}
    print(f"\n{systems_table(shown)}\n")
    print(f"{plan.body}-byte bodies, three nodes; medians of {plan.rounds} rounds of {plan.seconds:g} s, lowest and")
    print("highest in brackets; `nodes` and `client`: ms of CPU time for 1,000 bodies; of a failover less is better.\n")
    print(figures_table(comparison, plan.systems, plan.workloads))
    print()
    for name in plan.systems:
        for workload in plan.workloads:
            if reason := SYSTEMS[name].blanks.get(workload):
                print(f"{name}, {workload}: not measured, {reason}")
    for line in (*(f"{name}: skipped: {reason}" for name, reason in skipped.items()), *comparison.failures()):
        print(line)
    if others := comparison.other_cores():
        print(f"cores that other programs used: {others.median:.2f} ({others.low:.2f}-{others.high:.2f})")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare this project with other replicated logs.")
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help=f"systems beside ours: {', '.join(SYSTEMS)}")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="measured time of a workload (default: %(default)s)")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOAD_NAMES, default=WORKLOAD_NAMES, help="default: all")
    parser.add_argument("--body-size", type=int, default=1024, metavar="BYTES", help="default: %(default)s")
    parser.add_argument("--folder", type=Path, default=ROOT / "bench", help="of the nodes' files (default: bench)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="default: bench/peers-TIME.json")
    return parser.parse_args()


def main() -> int:
    """Run the comparison; return the exit status."""
    options = _options()
    # Otherwise the files of nodes would remain.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        chosen = chosen_systems(options.systems)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    described = machine()
    available, skipped = available_systems(chosen)
    for name, reason in skipped.items():
        print(f"{name}: skipped: {reason}", flush=True)
    workloads = [name for name in WORKLOAD_NAMES if name in options.workloads]
    plan = Plan(available, workloads, options.rounds, options.seconds, options.body_size, options.folder)
    samples = list(plan.samples())
    show(plan, samples, skipped)
    file = options.json or options.folder / f"peers-{datetime.now().astimezone():%Y-%m-%dT%H-%M-%S}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"machine": described, **result_object(plan, samples, skipped)}, indent=1) + "\n")
    print(f"the same figures as JSON: {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
