"""Measures the shape of the cost: throughput, latency and CPU time over sizes and numbers of everything.

| axis | what changes |
| --- | --- |
| body | the size of a body, 100 B to 4 MiB |
| callers | concurrent callers, 1 to 512 |
| log-size | the log before the load: empty, 1 GiB, --log-gib |
| nodes | nodes of the group: 1, 3, 5 |
| queues | queues of a broker, 8 to 10,000 |
| consumers | consumers of a broker, 1 to 64 |
| open-loop | calls at a constant rate, 25 to 75 % of the highest |
| minutes | time under full load: --minutes |
| idle | nothing: the CPU time of nodes without requests |

All nodes and the client share this machine. Results are written after each point, as JSON; `draw_shape.py` draws plots
and tables from it.

Examples:
    python scripts/shape/bench_shape.py
    python scripts/shape/bench_shape.py body nodes --runs 5
    python scripts/shape/bench_shape.py log-size --log-gib 8 --into bench/shape-2026-11-28T12-00-00.json
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import shape_body
import shape_callers
import shape_consumers
import shape_idle
import shape_log_size
import shape_minutes
import shape_nodes
import shape_open_loop
import shape_queues
from shape_axis import Plan
from shape_group import DiskTooSmall, check_space
from shape_results import Results, ResultsUnreadable

from cluster.local.node import ClusterError
from dledger.allocator import keep_large_blocks
from dledger.errors import DLedgerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shape_axis import Axis
    from shape_figures import Point

AXES: Final[dict[str, Axis]] = {
    module.AXIS.name: module.AXIS
    for module in (
        shape_body,
        shape_callers,
        shape_log_size,
        shape_nodes,
        shape_queues,
        shape_consumers,
        shape_open_loop,
        shape_minutes,
        shape_idle,
    )
}
_WARM_UP_S: Final = 1.0
# Other programs use less than this on an idle machine: then they are not mentioned.
_OTHERS_MIN: Final = 0.1


def line_of(point: Point) -> str:
    """Return a line about a point for the terminal."""
    others = f"; other programs: {point.other_cores:.1f} cores" if (point.other_cores or 0) >= _OTHERS_MIN else ""
    if not point.messages_s:
        return (
            "cores of each node, the leader first: " + ", ".join(f"{cores:.4f}" for cores in point.node_cores) + others
        )
    p50, p99 = point.latency_ms(0.5), point.latency_ms(0.99)
    latency = f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, " if p50 is not None and p99 is not None else ""
    follower = f", a follower {point.follower_us:.1f}" if point.follower_us is not None else ""
    return (
        f"{point.messages_s:,.0f} messages/s, {latency}µs of a message: leader {point.leader_us or 0:.1f}{follower}, "
        f"client {point.client_us or 0:.1f}{others}" + (f"; {point.elections} ELECTIONS" if point.elections else "")
    )


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("axes", nargs="*", metavar="AXIS", help=f"{', '.join(AXES)}; default: all")
    parser.add_argument("--seconds", type=float, default=3.0, help="measured time of a point; default: %(default)s")
    parser.add_argument("--warm-up", type=float, default=_WARM_UP_S, help="time before it; default: %(default)s")
    parser.add_argument("--runs", type=int, default=3, help="runs of each point; default: %(default)s")
    parser.add_argument("--log-gib", type=float, default=1.0, help="the largest log in GiB; default: %(default)s")
    parser.add_argument("--minutes", type=float, default=2.0, help="duration of the full load; default: %(default)s")
    parser.add_argument("--points", type=int, nargs="+", default=[], help="other values of one axis")
    parser.add_argument("--folder", type=Path, default=Path("bench"), help="for results, and data of the nodes")
    parser.add_argument("--into", type=Path, default=None, help="a file of results: its other axes are kept")
    options = parser.parse_args(words)
    unknown = [name for name in options.axes if name not in AXES]
    if unknown:
        parser.error(f"unknown axis {unknown[0]!r}: choose from {', '.join(AXES)}")
    if options.points and len(options.axes) != 1:
        parser.error("--points: name one axis")
    if min(options.seconds, options.minutes, options.runs, *options.points, 1) <= 0:
        parser.error("--seconds, --minutes, --runs and --points: expected numbers above 0")
    if min(options.log_gib, options.warm_up) < 0:
        parser.error("--log-gib and --warm-up: expected at least 0")
    return options


def settings_of(plan: Plan) -> dict[str, object]:
    """Return the settings of a measurement, and what matters of the machine, for the results."""
    return {
        "seconds": plan.seconds,
        "runs": plan.runs,
        "log_gib": plan.log_gib,
        "minutes": plan.minutes,
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "date": f"{datetime.now().astimezone():%Y-%m-%d}",
    }


def measure(names: Sequence[str], plan: Plan, results: Results, file: Path) -> None:
    """Measure axes one after the other; each replaces its earlier points. One that fails does not end the others."""
    for number, name in enumerate(names, start=1):
        axis = AXES[name]
        began = time.monotonic()
        plan.progress(f"-- axis {number} of {len(names)}: {name}")
        results.points[name] = []
        results.settings[name] = settings_of(plan)
        results.failures.pop(name, None)
        try:
            check_space(plan.folder, axis.needed_bytes(plan), name)
            for point in axis.measure(plan):
                results.points[name].append(point)
                results.save(file)
                if not axis.reports_itself:
                    plan.progress(f"   {line_of(point)}")
        except (ClusterError, DLedgerError, DiskTooSmall, TimeoutError) as error:
            results.failures[name] = f"{type(error).__name__}: {error}"
            plan.progress(f"   FAILED: {results.failures[name]}")
        results.save(file)
        plan.progress(f"   {name} took {time.monotonic() - began:.0f} s")


def main(words: Sequence[str] | None = None) -> int:
    """Measure the chosen axes; return 1 if one failed."""
    options = _arguments(words)
    # Otherwise SIGTERM ends this process before the folder of the nodes is deleted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    keep_large_blocks()
    began = time.monotonic()

    def progress(line: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {line}", file=sys.stderr, flush=True)

    plan = Plan(
        folder=options.folder,
        seconds=options.seconds,
        warm_up_s=options.warm_up,
        runs=options.runs,
        log_gib=options.log_gib,
        minutes=options.minutes,
        points=tuple(options.points),
        progress=progress,
    )
    file = options.into or options.folder / f"shape-{datetime.now().astimezone():%Y-%m-%dT%H-%M-%S}.json"
    try:
        results = Results.load(file) if options.into and file.exists() else Results()
    except ResultsUnreadable as error:
        print(f"bench_shape: {error}", file=sys.stderr)
        return 2
    names = [name for name in AXES if name in (options.axes or AXES)]
    try:
        measure(names, plan, results, file)
    except KeyboardInterrupt:
        print("bench_shape: interrupted", file=sys.stderr)
        return 130
    print(file)
    return 1 if results.failures.keys() & set(names) else 0


if __name__ == "__main__":
    sys.exit(main())
