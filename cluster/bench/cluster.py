"""Measures a cluster: runs the workloads several times, on new or existing nodes, and computes medians.

New nodes are started with empty logs for every run, so that runs do not affect each other. For new nodes, memory, CPU
time, and the time to the next append after a kill of the leader are measured, too.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from cluster.bench.workloads import Workload, run_workload
from cluster.local.cluster import LocalCluster
from cluster.process.procfs import anonymous_memory_bytes_of, cpu_seconds_of
from dledger.client import AppendUnknown, LogClient, NotAppended

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

_SAMPLE_S = 0.1
# Number of appends before the kill, so that the client knows the leader.
_BEFORE_KILL = 50
_CAUGHT_UP_S = 30.0
NODE_OPTIONS: dict[str, str | int] = {
    "mapped_file_size_for_entry_data": 256 << 20,
    "mapped_file_size_for_entry_index": 32 << 20,
}


@dataclass(frozen=True, slots=True)
class BenchRun:
    """Figures of one run; None: not measured.

    Attributes:
        ops_s: acknowledged entries per second.
        p50_ms, p99_ms: latency of one append call; of a failover, the time without a leader.
        cpu_s: CPU time of all nodes in seconds, warm-up included.
        rss_mb: peak memory of any node, without mapped files, in MiB.
    """

    ops_s: float | None
    p50_ms: float
    p99_ms: float
    cpu_s: float | None
    rss_mb: float | None


@dataclass(slots=True)
class BenchSummary:
    """All runs of one workload.

    Attributes:
        workload: name of the workload.
        body_size_bytes: body size of every entry.
        is_fsync: whether entries are synced before they are acknowledged; None: unknown, for existing nodes.
        runs: the runs, in order.
    """

    workload: str
    body_size_bytes: int
    is_fsync: bool | None
    runs: list[BenchRun] = field(default_factory=list)

    def median_of(self, figure: Callable[[BenchRun], float | None]) -> float | None:
        """Return the median of one figure over the runs; None if it was not measured."""
        values = [value for run in self.runs if (value := figure(run)) is not None]
        return median(values) if values else None

    def range_of(self, figure: Callable[[BenchRun], float | None]) -> tuple[float, float] | None:
        """Return the lowest and the highest value of one figure over the runs."""
        values = [value for run in self.runs if (value := figure(run)) is not None]
        return (min(values), max(values)) if values else None

    @property
    def target(self) -> int | None:
        """Entries a second, or ms of a failover; None: there is none for these settings."""
        is_measured_so = self.is_fsync and self.body_size_bytes == _TARGET_SIZE_BYTES
        return TARGETS.get(self.workload) if is_measured_so else None

    def as_object(self) -> dict[str, object]:
        """Return the medians, with the target and the range of the main figure, for JSON."""
        ops_s = self.median_of(lambda run: run.ops_s)
        leading = (lambda run: run.p50_ms) if ops_s is None else (lambda run: run.ops_s)
        low, high = self.range_of(leading) or (None, None)
        return {
            "workload": self.workload,
            "ops_s": _rounded(ops_s),
            "target": self.target,
            "mb_s": _rounded(None if ops_s is None else ops_s * self.body_size_bytes / 1e6),
            "p50_ms": _rounded(self.median_of(lambda run: run.p50_ms)),
            "p99_ms": _rounded(self.median_of(lambda run: run.p99_ms)),
            "cpu_s": _rounded(self.median_of(lambda run: run.cpu_s)),
            "rss_mb": _rounded(self.median_of(lambda run: run.rss_mb)),
            "fsync": self.is_fsync,
            "runs": len(self.runs),
            "lowest": _rounded(low),
            "highest": _rounded(high),
        }


# Entries of 1 KiB a second, synced before they are acknowledged; of a failover the longest time in ms. For three nodes
# and the client on two cores.
TARGETS: Final = {
    "sync1": 1_150,
    "conc64": 45_000,
    "batch100": 70_000,
    "batch100x16": 180_000,
    "batch1000x8": 250_000,
    "failover": 400,
}
_TARGET_SIZE_BYTES: Final = 1_024


@dataclass(frozen=True, slots=True)
class Bench:
    """Settings of a measurement.

    Attributes:
        folder: parent of a temporary folder for the data of the nodes; it determines the disk.
        seconds: duration of one run, after its warm-up.
        body_size_bytes: body size of every entry.
        flush: "sync" or "async", for new nodes.
        endpoints: existing nodes to measure; empty: start three new nodes.
        group: group of existing nodes.
    """

    folder: Path
    seconds: float
    body_size_bytes: int
    flush: str
    endpoints: str = ""
    group: str = "default"

    def summary_of(self, workload: str) -> BenchSummary:
        """Return an empty summary."""
        return BenchSummary(workload, self.body_size_bytes, None if self.endpoints else self.flush == "sync")

    def run(self, workload: Workload, count: int) -> Generator[BenchRun]:
        """Run one workload `count` times.

        Raises:
            NotAppended, AppendUnknown: an append failed.
            ClusterError: the new nodes did not start.
        """
        for _ in range(count):
            yield self._run_on_others(workload) if self.endpoints else self._run_on_own(workload)

    def _run_on_others(self, workload: Workload) -> BenchRun:
        load = run_workload(workload, self.endpoints, self.group, self.seconds, self.body_size_bytes)
        return BenchRun(load.ops_s, load.latency_ms(0.5), load.latency_ms(0.99), None, None)

    def _run_on_own(self, workload: Workload) -> BenchRun:
        with self._own_cluster() as cluster:
            watch = _Watch([pid for node_id in cluster.node_ids if (pid := cluster.pid_of(node_id))])
            load = run_workload(workload, cluster.endpoints, cluster.group, self.seconds, self.body_size_bytes)
            cpu_s, rss_mb = watch.end()
        return BenchRun(load.ops_s, load.latency_ms(0.5), load.latency_ms(0.99), cpu_s, rss_mb)

    def run_failovers(self, count: int) -> Generator[BenchRun]:
        """Kill the leader `count` times, and measure each time until the next append is acknowledged."""
        with self._own_cluster() as cluster, LogClient(cluster.endpoints, group=cluster.group) as client:
            body = bytes(self.body_size_bytes)
            for _ in range(count):
                for _ in range(_BEFORE_KILL):
                    client.append(body)
                gap_ms = _kill_leader(cluster, client, body) * 1e3
                yield BenchRun(None, gap_ms, gap_ms, None, None)

    @contextmanager
    def _own_cluster(self) -> Iterator[LocalCluster]:
        self.folder.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="nodes-", dir=self.folder))
        try:
            with LocalCluster.create(folder, options={**NODE_OPTIONS, "flush": self.flush}) as cluster:
                cluster.wait_for_leader()
                yield cluster
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


class _Watch:
    """Samples the memory of the nodes during a run, in a separate thread."""

    def __init__(self, pids: list[int]) -> None:
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._pids = pids
        self._ended = threading.Event()
        self._cpu_before_s = sum(map(cpu_seconds_of, pids))
        self._rss_bytes = 0
        self._thread.start()

    def _look(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            self._rss_bytes = max(self._rss_bytes, *map(anonymous_memory_bytes_of, self._pids))

    def end(self) -> tuple[float, float]:
        """Stop sampling; return the CPU seconds of all nodes, and the peak memory of any node in MiB."""
        self._ended.set()
        self._thread.join()
        return sum(map(cpu_seconds_of, self._pids)) - self._cpu_before_s, self._rss_bytes / (1 << 20)


def _kill_leader(cluster: LocalCluster, client: LogClient, body: bytes) -> float:
    """Kill the leader, then restart it; return the seconds until the next append is acknowledged."""
    leader = cluster.wait_for_leader()
    began = time.perf_counter()
    cluster.kill(leader)
    while True:
        try:
            client.append(body)
            break
        except (NotAppended, AppendUnknown):
            continue
    gap_s = time.perf_counter() - began
    cluster.start_node(leader)
    _wait_all_caught_up(client)
    return gap_s


def _wait_all_caught_up(client: LogClient) -> None:
    give_up_at = time.perf_counter() + _CAUGHT_UP_S
    while time.perf_counter() < give_up_at:
        peers = client.status().peers
        if peers and all(peer.is_live and peer.lag_entries == 0 for peer in peers):
            return
        time.sleep(_SAMPLE_S)
