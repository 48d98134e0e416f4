"""Runs one workload on running nodes: starts the driver, reads its lines, and counts the CPU time of all processes."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from peer_figures import FAILOVER, Sample

from cluster.bench.workloads import WORKLOADS
from cluster.local.children import start_child
from cluster.process.procfs import busy_seconds, cpu_seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import IO

    from peer_nodes import Nodes
    from peer_systems import System

# Beyond warm-up and measured time: for the start of the driver and the election of a leader.
_DRIVER_LIMIT_S: Final = 120.0
_END_LIMIT_S: Final = 10.0
_FAILURE_LENGTH_MAX: Final = 300


class DriverFailed(Exception):
    """A driver ended without a result; the text has the end of its errors."""


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """CPU seconds since the start of the processes, and of the machine."""

    nodes_s: float
    client_s: float
    machine_s: float
    at_s: float


def figures_in(line: str) -> dict[str, float]:
    """Return the figures in the last line of a driver: entries, p50_ms and p99_ms.

    Raises:
        DriverFailed: it has none.
    """
    word, _, text = line.partition(" ")
    try:
        figures = json.loads(text) if word == "result" else None
    except ValueError:
        figures = None
    if not isinstance(figures, dict) or not {"entries", "p50_ms", "p99_ms"} <= figures.keys():
        raise DriverFailed(f"the driver wrote no result but {line.strip()!r}")
    return {name: float(value) for name, value in figures.items()}


def sample_between(empty: Sample, figures: dict[str, float], before: CpuTimes, after: CpuTimes) -> Sample:
    """Return a sample with the figures of a driver and the CPU time of its measured time."""
    duration_s = after.at_s - before.at_s
    entries = figures["entries"]
    if not entries:
        raise DriverFailed("no append was acknowledged in the measured time")
    nodes_s, client_s = after.nodes_s - before.nodes_s, after.client_s - before.client_s
    other_s = after.machine_s - before.machine_s - nodes_s - client_s
    return replace(
        empty,
        ops_s=entries / duration_s,
        p50_ms=figures["p50_ms"],
        p99_ms=figures["p99_ms"],
        node_cpu_s=nodes_s / entries * 1e3,
        client_cpu_s=client_s / entries * 1e3,
        other_cores=max(other_s / duration_s, 0.0),
    )


def run_workload(system: System, nodes: Nodes, empty: Sample, seconds: float, body: int, folder: Path) -> Sample:
    """Measure one workload.

    Args:
        system: the system.
        nodes: its nodes.
        empty: a sample with its round, system and workload only.
        seconds: measured time.
        body: bytes of a body.
        folder: for the files of the driver.

    Raises:
        DriverFailed: an append failed.
    """
    workload = next(each for each in WORKLOADS if each.name == empty.workload)
    options = [f"-callers={workload.callers}", f"-batch={workload.batch_entries}", f"-seconds={seconds}"]
    options.append(f"-warm-up={system.warm_up_s}")
    limit_s = system.warm_up_s + seconds + _DRIVER_LIMIT_S
    with _driver(system, nodes, [*options, f"-body={body}"], folder, limit_s) as driver:
        _expect(driver, "begin")
        before = _cpu_times(nodes, driver.pid)
        _expect(driver, "end")
        after = _cpu_times(nodes, driver.pid)
        return sample_between(empty, figures_in(_line_of(driver)), before, after)


def run_failover(system: System, nodes: Nodes, empty: Sample, body: int, folder: Path) -> Sample:
    """Kill the leader, and measure the time until the next append is acknowledged.

    Raises:
        DriverFailed: none was acknowledged in time.
    """
    assert empty.workload == FAILOVER
    with _driver(system, nodes, ["-failover", f"-body={body}"], folder, _DRIVER_LIMIT_S) as driver:
        leader = int(_expect(driver, "ready"))
        assert driver.stdin is not None
        began = time.perf_counter()
        nodes.kill(leader)
        driver.stdin.write("killed\n")
        driver.stdin.flush()
        _expect(driver, "appended")
        return replace(empty, gap_s=time.perf_counter() - began)


@contextmanager
def _driver(
    system: System, nodes: Nodes, options: Sequence[str], folder: Path, limit_s: float
) -> Iterator[subprocess.Popen[str]]:
    """Run the driver; it is killed at the end of the block or after `limit_s`.

    Raises:
        DriverFailed: in the block; the text then has the end of the driver's errors.
    """
    command = [*system.driver(folder), f"-endpoints={','.join(nodes.endpoints)}", *options]
    with (folder / "driver.err").open("w+") as errors:
        driver: subprocess.Popen[str] = start_child(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=folder, text=True
        )
        timer = threading.Timer(limit_s, driver.kill)
        timer.daemon = True
        timer.start()
        try:
            yield driver
        except DriverFailed as error:
            # Only then are all of its errors in the file.
            driver.kill()
            driver.wait(_END_LIMIT_S)
            raise DriverFailed(_explained(str(error), errors)) from None
        finally:
            timer.cancel()
            driver.kill()
            driver.wait(_END_LIMIT_S)


def _explained(failure: str, errors: IO[str]) -> str:
    errors.seek(0)
    lines = [line.strip() for line in errors.read().splitlines() if line.strip()]
    # The trace of an exception in Java begins with it, that in Python ends with it.
    telling = next((line for line in lines if line.startswith(("Exception in", "Caused by"))), "")
    return f"{failure}: {telling or (lines[-1] if lines else 'no error was written')}"[:_FAILURE_LENGTH_MAX]


def _line_of(driver: subprocess.Popen[str]) -> str:
    assert driver.stdout is not None
    return driver.stdout.readline()


def _expect(driver: subprocess.Popen[str], word: str) -> str:
    """Return the rest of the driver's next line, which must begin with `word`."""
    line = _line_of(driver)
    found, _, rest = line.strip().partition(" ")
    if found != word:
        raise DriverFailed(f"the driver wrote {line.strip()!r} instead of {word!r}" if line else "the driver ended")
    return rest


def _cpu_times(nodes: Nodes, client: int) -> CpuTimes:
    machine_s = busy_seconds(with_stolen=True)
    return CpuTimes(sum(map(cpu_seconds_of, nodes.pids)), cpu_seconds_of(client), machine_s, time.perf_counter())
