"""Starts three nodes of each system on loopback, with their files in one folder, and ends them.

All processes end with this program, also if it is killed, and are signalled by their ids only.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from peer_programs import BUILD, HERE, JAR

from cluster.bench.cluster import NODE_OPTIONS
from cluster.local.children import start_child
from cluster.local.cluster import LocalCluster
from cluster.local.node import ClusterError, choose_ports
from cluster.process.procfs import ProcessRef, identity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

NODES: Final = 3
_STOP_GRACE_S: Final = 5.0
_LISTEN_LIMIT_S: Final = 60.0
_POLL_S: Final = 0.02
_ETCD_QUOTA_BYTES: Final = 8 << 30


@dataclass(frozen=True, slots=True)
class Nodes:
    """Running nodes.

    Attributes:
        endpoints: addresses for clients.
        pids: process ids, in the same order.
        kill: kills the node of that number (SIGKILL).
    """

    endpoints: Sequence[str]
    pids: Sequence[int]
    kill: Callable[[int], None]


@contextmanager
def start_ours(folder: Path) -> Iterator[Nodes]:
    """Start nodes of this project, as `dledger bench` does, with fsync before every acknowledgement.

    Raises:
        ClusterError: they did not start.
    """
    with LocalCluster.create(folder, options={**NODE_OPTIONS, "flush": "sync"}) as cluster:
        cluster.wait_for_leader()
        ids = cluster.node_ids
        yield Nodes(
            [cluster.endpoint_of(node_id) for node_id in ids],
            [cluster.pid_of(node_id) or 0 for node_id in ids],
            lambda number: cluster.kill(ids[number]),
        )


@contextmanager
def start_floor(folder: Path) -> Iterator[Nodes]:
    """Start nodes of the floor; the first one is the leader."""
    ports = choose_ports(NODES, None)
    listed = ",".join(map(str, ports))
    program = [sys.executable, str(HERE / "floor_node.py")]
    commands = [[*program, str(number), listed, str(folder / f"n{number}")] for number in range(NODES)]
    with _processes(commands, folder, ports) as nodes:
        yield nodes


@contextmanager
def start_nats(folder: Path, *, is_synced: bool) -> Iterator[Nodes]:
    """Start servers of NATS with JetStream.

    Args:
        folder: of their files.
        is_synced: whether they sync before they acknowledge (`sync_interval: always`); otherwise their default.
    """
    ports, peer_ports = _two_lists_of_ports()
    routes = ", ".join(f"nats-route://127.0.0.1:{port}" for port in peer_ports)
    sync = "sync_interval: always" if is_synced else ""
    commands = []
    for number in range(NODES):
        config = folder / f"n{number}.conf"
        config.write_text(
            f"server_name: n{number}\nlisten: 127.0.0.1:{ports[number]}\n"
            f'jetstream {{\n  store_dir: "{folder}/n{number}"\n  {sync}\n}}\n'
            f"cluster {{\n  name: bench\n  listen: 127.0.0.1:{peer_ports[number]}\n  routes: [{routes}]\n}}\n",
            encoding="utf-8",
        )
        commands.append([str(BUILD / "nats-server"), "-c", str(config)])
    with _processes(commands, folder, ports) as nodes:
        yield nodes


@contextmanager
def start_etcd(folder: Path) -> Iterator[Nodes]:
    """Start servers of etcd with their defaults, but for the quota of the database, which a long run exceeds."""
    ports, peer_ports = _two_lists_of_ports()
    members = ",".join(f"n{number}=http://127.0.0.1:{port}" for number, port in enumerate(peer_ports))
    commands = [
        [
            str(BUILD / "etcd"),
            f"--name=n{number}",
            f"--data-dir={folder}/n{number}",
            f"--listen-client-urls=http://127.0.0.1:{port}",
            f"--advertise-client-urls=http://127.0.0.1:{port}",
            f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer_port}",
            f"--initial-cluster={members}",
            f"--quota-backend-bytes={_ETCD_QUOTA_BYTES}",
            "--log-level=error",
        ]
        for number, (port, peer_port) in enumerate(zip(ports, peer_ports, strict=True))
    ]
    with _processes(commands, folder, ports) as nodes:
        yield nodes


@contextmanager
def start_dledger(folder: Path) -> Iterator[Nodes]:
    """Start nodes of DLedger in Java."""
    ports = choose_ports(NODES, None)
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports))
    commands = [
        [*java(folder), "peers.Node", f"n{number}", peers, str(folder / f"n{number}")] for number in range(NODES)
    ]
    with _processes(commands, folder, ports) as nodes:
        yield nodes


def java(folder: Path) -> list[str]:
    """Return the start of a command of Java; its libraries write their own logs below the home folder."""
    return [shutil.which("java") or "java", f"-Duser.home={folder}", "-cp", str(JAR)]


def _two_lists_of_ports() -> tuple[list[int], list[int]]:
    ports = choose_ports(2 * NODES, None)
    return ports[:NODES], ports[NODES:]


@contextmanager
def _processes(commands: Sequence[Sequence[str]], folder: Path, ports: Sequence[int]) -> Iterator[Nodes]:
    """Run commands until the end of the block, and wait until each node listens on its port.

    Raises:
        ClusterError: one ended or does not listen in time; the text has the end of its output.
    """
    children: list[subprocess.Popen[bytes]] = []
    refs: list[ProcessRef] = []

    def kill(number: int) -> None:
        refs[number].signal(signal.SIGKILL)
        children[number].wait(_STOP_GRACE_S)

    try:
        for number, command in enumerate(commands):
            with (folder / f"n{number}.out").open("wb") as output:
                child = start_child(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, start_new_session=True
                )
            children.append(child)
            refs.append(ProcessRef(child.pid, identity_of(child.pid) or ""))
        for number, port in enumerate(ports):
            _wait_listening(port, refs[number], folder / f"n{number}.out")
        yield Nodes([f"127.0.0.1:{port}" for port in ports], [ref.pid for ref in refs], kill)
    finally:
        for ref, child in zip(refs, children, strict=True):
            ref.end(_STOP_GRACE_S)
            with suppress(subprocess.TimeoutExpired):
                child.wait(_STOP_GRACE_S)


def _wait_listening(port: int, ref: ProcessRef, output: Path) -> None:
    give_up_at = time.monotonic() + _LISTEN_LIMIT_S
    while True:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=_LISTEN_LIMIT_S):
            return
        if not ref.is_running() or time.monotonic() >= give_up_at:
            state = "does not listen in time" if ref.is_running() else "ended while starting"
            lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
            raise ClusterError(f"{output.stem} {state}: {' / '.join(lines[-3:])}")
        time.sleep(_POLL_S)
