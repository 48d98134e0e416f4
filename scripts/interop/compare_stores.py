"""Measures our message store and RocketMQ's side by side: same machine, same workload, one process each.

Used by `make interop`. The workloads: puts in batches of 100, gets of 32 messages with decoding, and opening a log
without queues and index. RocketMQ dispatches in a separate thread during puts, so its combined put and dispatch is
compared with the sum of ours.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

_MESSAGES = 200_000
_RUNS = 3
_TIMEOUT_S = 300
# The size of one record: 1 KiB body, topic, TAGS, UNIQ_KEY.
_RECORD_SIZE = 1171
_JAVA_HEAP = "-Xmx2g"


@dataclass(frozen=True, slots=True)
class Speed:
    """Messages per second of one program."""

    put: float
    put_and_dispatch: float
    get: float
    rebuild: float


def compare(jar: Path, folder: Path | None = None) -> None:
    """Measure both alternately, and print a table of medians with the ratio of ours to Java's."""
    ours, java = [], []
    for number in range(_RUNS):
        print(f"measuring: run {number + 1} of {_RUNS}", file=sys.stderr)
        java.append(_measure_java(jar, folder))
        ours.append(_measure_ours(folder))
    table = Table(
        title=f"{_MESSAGES:,} messages of 1 KiB, one process each, async flush; medians of {_RUNS} runs",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("thousand messages/s", no_wrap=True)
    for name in ("ours", "spread", "RocketMQ", "spread", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    for label, name in (
        ("put, batches of 100", "put"),
        ("put and dispatch", "put_and_dispatch"),
        ("get, calls of 32", "get"),
        ("rebuild of queues and index", "rebuild"),
    ):
        table.add_row(label, *_row(sorted(getattr(s, name) for s in ours), sorted(getattr(s, name) for s in java)))
    Console().print(table)


def _row(ours: list[float], java: list[float]) -> tuple[str, ...]:
    middle = len(ours) // 2
    cells = [(f"{s[middle] / 1e3:,.0f}", f"{s[0] / 1e3:,.0f} to {s[-1] / 1e3:,.0f}") for s in (ours, java)]
    return (*cells[0], *cells[1], f"{ours[middle] / java[middle]:.2f}")


def _measure_java(jar: Path, folder: Path | None) -> Speed:
    directory = tempfile.mkdtemp(prefix="java-store-", dir=folder)
    command = ["java", _JAVA_HEAP, f"-Duser.home={directory}", "-jar", str(jar), "bench", directory]
    try:
        line = _output_of([*command, "--count", str(_MESSAGES)])
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    speed = json.loads(line)
    return Speed(speed["put_s"], speed["put_and_dispatch_s"], speed["get_s"], speed["rebuild_s"])


def _measure_ours(folder: Path | None) -> Speed:
    directory = tempfile.mkdtemp(prefix="our-store-", dir=folder)
    command = [sys.executable, "-m", "cluster.cli", "bench-store", "put", "dispatch", "get", "rebuild"]
    size_mib = str(_MESSAGES * _RECORD_SIZE >> 20)
    try:
        lines = _output_of([*command, "--runs", "1", "--size", size_mib, "--folder", directory, "--json", "-"])
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    by_name = {figure["figure"]: figure for figure in map(json.loads, lines.splitlines())}
    put, dispatch = by_name["put"]["median"], by_name["dispatch"]["median"]
    rebuild = by_name["rebuild"]["messages"] / by_name["rebuild"]["median"]
    return Speed(put, 1 / (1 / put + 1 / dispatch), by_name["get"]["median"], rebuild)


def _output_of(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    compare(Path(sys.argv[1]))
