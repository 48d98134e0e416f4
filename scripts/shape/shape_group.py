"""Runs a group of node processes for a measurement, and reads their CPU time and memory from the operating system.

Nodes end with this process, and their folder is deleted at the end of the block. The client is this process itself.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shape_figures import Reading

from cluster.bench.cluster import NODE_OPTIONS
from cluster.local.brokers import LocalBrokers
from cluster.local.cluster import LocalCluster
from cluster.process.procfs import anonymous_memory_bytes_of, busy_seconds, cpu_seconds_of
from dledger.client import LogClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shape_axis import Plan

# Kept free for everything else on the disk.
_RESERVE_BYTES: Final = 2 << 30
# Nodes refuse appends at 90 %.
_USED_PERCENT_MAX: Final = 89
_NODE_OPTIONS: Final[dict[str, str | int]] = {
    **NODE_OPTIONS,
    # Long timeouts, so that a machine that stalls for seconds worsens the figures but does not end the measurement.
    "max_wait_ack_time_ms": 20_000,
    "flush": "sync",
    # No log is shortened during a measurement because the disk has other files, too.
    "enable_disk_force_clean": False,
}


class DiskTooSmall(Exception):
    """The disk has too little free space; the text has how much is needed, and the options that need less."""


def check_space(folder: Path, needed_bytes: int, what: str) -> None:
    """Check that a measurement has enough space on the disk.

    Args:
        folder: the folder of the data.
        needed_bytes: bytes of all files at a time.
        what: the measurement, for the message.

    Raises:
        DiskTooSmall: it has not.
    """
    folder.mkdir(parents=True, exist_ok=True)
    free = free_bytes(folder)
    if needed_bytes > free:
        raise DiskTooSmall(
            f"{what} needs {needed_bytes / 1e9:.1f} GB on the disk of {folder}, which has {max(free, 0) / 1e9:.1f} GB "
            "to use: choose another --folder, a smaller --log-gib, fewer --minutes or --seconds, or other axes"
        )


def free_bytes(folder: Path) -> int:
    """Return the bytes that a measurement may use, less than are free; negative if the disk is too full."""
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    usable = (status.f_blocks - status.f_bfree) * status.f_frsize + free
    return free - max(_RESERVE_BYTES, usable * (100 - _USED_PERCENT_MAX) // 100)


class Group:
    """A running group whose leader is known.

    Attributes:
        cluster: its nodes.
        folder: the folder of its files.
    """

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        leader = cluster.wait_for_leader()
        ids = (leader, *(node_id for node_id in cluster.node_ids if node_id != leader))
        self._pids = [pid for node_id in ids if (pid := cluster.pid_of(node_id)) is not None]

    def read(self) -> Reading:
        """Return the CPU time and the memory of all processes now."""
        return Reading(
            at_s=time.perf_counter(),
            node_cpu_s=tuple(map(cpu_seconds_of, self._pids)),
            node_memory_bytes=tuple(map(anonymous_memory_bytes_of, self._pids)),
            client_cpu_s=time.process_time(),
            machine_cpu_s=busy_seconds(with_stolen=False),
        )

    def term(self) -> int:
        """Return the leader's term.

        Raises:
            ReadFailed: no leader answers.
        """
        with LogClient(self.cluster.endpoints, group=self.cluster.group) as client:
            return client.status().term


@contextmanager
def running_group(plan: Plan, *, nodes: int = 3, is_broker: bool = False, **more: int) -> Iterator[Group]:
    """Start a group with an empty log; stop it and delete its files at the end.

    Args:
        plan: the settings of the measurement.
        nodes: number of nodes.
        is_broker: whether it is a broker, or a log of raw entries.
        more: further settings of the nodes.

    Raises:
        ClusterError: a node did not start, or no leader was elected.
    """
    plan.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="shape-", dir=plan.folder))
    options = {**_NODE_OPTIONS, **more}
    try:
        if is_broker:
            options |= {"auto_create_topic_enable": True}
            with LocalBrokers.create(folder / "run", nodes=nodes, name_servers=0, options=options) as brokers:
                (cluster,) = brokers.clusters.values()
                yield Group(cluster, folder)
        else:
            with LocalCluster.create(folder / "run", nodes=nodes, options=options) as cluster:
                yield Group(cluster, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
