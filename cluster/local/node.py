"""One node of a cluster on this machine: its directories and its configuration file.

Not here: processes and the cluster as a whole (`cluster.local.cluster`).
"""

from __future__ import annotations

import json
import os
import random
import socket
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cluster.process.procfs import ProcessRef

# Below the range from which Linux assigns ports of outgoing connections, so that no connection takes a node's port.
_PORTS = range(15_000, 32_000)
_PORT_TRIES_MAX = 1_000
# A node listens on its port up to a second after the choice, and another process may choose ports in between. So each
# process first binds the UDP port with the same number, which has no other use.
_HOLDS_MAX = 256
_holds: deque[int] = deque()

Setting = str | int


class ClusterError(Exception):
    """The local cluster could not be created, started or found; the text has the node and what to check."""


@dataclass(slots=True)
class LocalNode:
    """The files, the addresses, and the process of one node."""

    id: str
    config: str
    log: str
    store: str
    endpoint: str
    metrics: str
    rocketmq: str = ""
    remoting: str = ""
    process: ProcessRef | None = None


def write_node(
    folder: Path, node_id: str, peers: str, settings: Mapping[str, Setting], ports: Sequence[int]
) -> LocalNode:
    """Write one node's configuration file; all its files are under `folder`.

    Args:
        folder: of the cluster.
        node_id: of the node.
        peers: of the cluster, in the form of the setting.
        settings: of all nodes; those that only one node can have are added.
        ports: for clients, for the metrics page, and for frames; two more: for RocketMQ's clients by gRPC,
            and by the remoting protocol.
    """
    client_port, metrics_port, frame_port, *more = ports
    node = LocalNode(
        id=node_id,
        config=str(folder / f"{node_id}.toml"),
        log=str(folder / f"{node_id}.log"),
        store=str(folder / node_id),
        endpoint=f"127.0.0.1:{client_port}",
        metrics=f"127.0.0.1:{metrics_port}",
        rocketmq=f"127.0.0.1:{more[0]}" if more else "",
        remoting=f"127.0.0.1:{more[1]}" if more else "",
    )
    own: dict[str, Setting] = {
        "self_id": node_id,
        "peers": peers,
        "store_base_dir": node.store,
        "client_address": node.endpoint,
        "metrics_address": node.metrics,
    }
    if settings.get("frame_address") != "off":
        own["frame_address"] = f"127.0.0.1:{frame_port}"
    if node.rocketmq:
        own["rocketmq_grpc_address"] = node.rocketmq
        own["rocketmq_remoting_address"] = node.remoting
    # Strings, numbers and booleans have the same syntax in JSON and TOML.
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in {**settings, **own}.items()]
    Path(node.config).write_text("".join(lines))
    return node


def choose_ports(count: int, base_port: int | None) -> list[int]:
    """Return `count` loopback ports on which no process listens, and which no other process has just chosen.

    Args:
        count: number of ports.
        base_port: first of consecutive ports; None: free ports are chosen.

    Raises:
        ClusterError: a port is in use.
    """
    if base_port is not None:
        ports = list(range(base_port, base_port + count))
        taken = [port for port in ports if not _is_free(port)]
        if taken:
            raise ClusterError(f"port {taken[0]} is in use: choose another base port, or none for free ports")
        return ports
    # Not the global generator: programs that seed it with the same value would choose the same ports.
    draw = random.SystemRandom()
    chosen: set[int] = set()
    for _ in range(_PORT_TRIES_MAX):
        port = draw.choice(_PORTS)
        # In this order: if a process that held the port has ended meanwhile, its node listens on it.
        if port not in chosen and _hold(port) and _is_free(port):
            chosen.add(port)
        if len(chosen) == count:
            return sorted(chosen)
    raise ClusterError(f"found no {count} free ports between {_PORTS.start} and {_PORTS.stop}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _hold(port: int) -> bool:
    """Reserve a port until this process ends or has chosen many more; return False if another process has it."""
    with socket.socket(type=socket.SOCK_DGRAM) as holder:
        try:
            holder.bind(("127.0.0.1", port))
        except OSError:
            return False
        _holds.append(holder.detach())
    while len(_holds) > _HOLDS_MAX:
        os.close(_holds.popleft())
    return True
