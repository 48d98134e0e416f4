"""A cluster of node processes on loopback, under one folder: for the bench, the demo, scripts and tests.

The folder has one configuration file, one log and one store directory per node, and `cluster.json`, by which a later
program can attach to the cluster (`LocalCluster.attach`). Nodes end with the program that started them, unless they are
detached. Only processes of this cluster, identified by id and start time, are ever signalled. A secured cluster uses
TLS for all connections; its secrets are in the folder `security` (`cluster.local.secured`).

It is not a deployment tool: all nodes share one machine and its disk.
"""

from __future__ import annotations

import shutil
import signal
import time
import tomllib
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.local.folder import RunsWhileOpen, StateFile, process_of
from cluster.local.node import ClusterError, LocalNode, Setting, choose_ports, write_node
from cluster.local.process import START_LIMIT_S, LocalProcess
from cluster.local.secured import secrets_of
from dledger.client import AdminClient, LogClient, ReadFailed
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.local.secured import LocalSecurity
    from dledger.security.settings import Security
    from dledger.v1.log_pb2 import StatusResponse

STATE_FILE = "cluster.json"
_POLL_S = 0.01
# Small, because a node with the defaults allocates 1 GiB and 160 MiB at its start.
_DEFAULT_OPTIONS: dict[str, Setting] = {
    "mapped_file_size_for_entry_data": 64 << 20,
    "mapped_file_size_for_entry_index": 8 << 20,
}
# For nodes of a broker: by default a file of the key index has 420 MB, though it is sparse.
_BROKER_OPTIONS: dict[str, Setting] = {"max_hash_slot_num": 250_000, "max_index_num": 1_000_000}


class LocalCluster(RunsWhileOpen):
    """Nodes `n0`, `n1`, ... of one group as child processes; a context manager starts and stops them.

    Example:
        with LocalCluster.create(Path("run")) as cluster, LogClient(cluster.endpoints) as log:
            log.append(b"hello")
    """

    def __init__(
        self,
        folder: Path,
        group: str,
        nodes: list[LocalNode],
        secrets: LocalSecurity | None = None,
        *,
        is_detached: bool = False,
    ) -> None:
        self._folder = folder
        self._secrets = secrets
        self._is_detached = is_detached
        self._group = group
        self._nodes = {node.id: node for node in nodes}
        self._state_file = _state_file(folder)
        self._processes: dict[str, LocalProcess] = {}

    # ------------------------------------------------------------------------------------------ create and attach

    @classmethod
    def create(
        cls,
        folder: Path,
        *,
        nodes: int = 3,
        options: Mapping[str, Setting] | None = None,
        base_port: int | None = None,
        secrets: LocalSecurity | None = None,
        is_detached: bool = False,
        has_rocketmq: bool = False,
    ) -> LocalCluster:
        """Write the configuration of a new cluster under `folder`; nothing is started yet.

        Args:
            folder: created if absent; must not contain a cluster.
            nodes: number of nodes; 3 or 5 are useful.
            options: settings of every node, by their names in the configuration file; with `broker`, the log contains
                messages.
            base_port: first of consecutive ports (four per node); None: free ports are chosen.
            secrets: of a secured cluster (`LocalSecurity.create`); None: all connections are plain.
            is_detached: whether nodes continue after this program has ended; otherwise the system kills them.
            has_rocketmq: whether nodes have two more ports, for clients of RocketMQ by gRPC and by the remoting
                protocol; with `broker` only.

        Raises:
            ClusterError: the folder already contains a cluster (attach to it), or a port is in use.
        """
        folder = folder.absolute()
        _state_file(folder).make_folder()
        given = dict(options or {})
        broker = given.get("broker")
        defaults = {**_DEFAULT_OPTIONS, "group": broker or "default", **(_BROKER_OPTIONS if broker else {})}
        settings = {**defaults, **given}
        group = str(settings["group"])
        own_ports = 5 if has_rocketmq else 3
        ports = choose_ports((1 + own_ports) * nodes, base_port)
        ids = [f"n{number}" for number in range(nodes)]
        peers = ";".join(f"{node_id}-127.0.0.1:{port}" for node_id, port in zip(ids, ports, strict=False))
        if has_rocketmq:
            last_ports = ports[nodes + own_ports - 1 :: own_ports]
            places = (f"{node_id}-127.0.0.1:{port}" for node_id, port in zip(ids, last_ports, strict=True))
            settings["rocketmq_remoting_peers"] = ";".join(places)
        made = [
            write_node(
                folder,
                node_id,
                peers,
                settings if secrets is None else settings | secrets.node_settings(group, node_id),
                ports[nodes + own_ports * number : nodes + own_ports * (number + 1)],
            )
            for number, node_id in enumerate(ids)
        ]
        cluster = cls(folder, group, made, secrets, is_detached=is_detached)
        cluster._save()
        return cluster

    @classmethod
    def attach(cls, folder: Path, *, is_detached: bool = False) -> LocalCluster:
        """Attach to the cluster that an earlier program created under `folder`.

        Args:
            folder: folder of the cluster.
            is_detached: see `create`; it does not affect nodes that are already running.

        Raises:
            ClusterError: there is none.
        """
        folder = folder.absolute()
        state = _state_file(folder).load()
        nodes = [LocalNode(**{**node, "process": process_of(node["process"])}) for node in state["nodes"]]
        return cls(folder, state["group"], nodes, secrets_of(state), is_detached=is_detached)

    def _save(self) -> None:
        self._state_file.save(
            lambda: {
                "group": self._group,
                "security": str(self._secrets.folder) if self._secrets else None,
                "nodes": [asdict(node) for node in self._nodes.values()],
            }
        )

    # --------------------------------------------------------------------------------------------- what there is

    @property
    def folder(self) -> Path:
        """The folder of all files of the cluster."""
        return self._folder

    @property
    def secrets(self) -> LocalSecurity | None:
        """The certificates and users of a secured cluster; None: all connections are plain."""
        return self._secrets

    @property
    def security(self) -> Security:
        """The security of an administrator's connections.

        Raises:
            ClusterError: a file of it cannot be used.
        """
        return PLAIN if self._secrets is None else self._secrets.client()

    @property
    def group(self) -> str:
        """The name of the replication group."""
        return self._group

    @property
    def node_ids(self) -> tuple[str, ...]:
        """The ids of all nodes, running or not."""
        return tuple(self._nodes)

    @property
    def endpoints(self) -> str:
        """The `host:port` of every node's LogService, comma separated: what a client takes."""
        return ",".join(node.endpoint for node in self._nodes.values())

    def endpoint_of(self, node_id: str) -> str:
        """Return `host:port` of one node's LogService."""
        return self._nodes[node_id].endpoint

    @property
    def rocketmq_endpoints(self) -> str:
        """The `host:port` of every node's port for official clients, separated by semicolons; empty: there are none."""
        return ";".join(node.rocketmq for node in self._nodes.values() if node.rocketmq)

    @property
    def remoting_endpoints(self) -> str:
        """The `host:port` of every node's port for the remoting protocol, separated by semicolons, or empty."""
        return ";".join(node.remoting for node in self._nodes.values() if node.remoting)

    def rocketmq_endpoint_of(self, node_id: str) -> str:
        """Return `host:port` of one node's port for official clients of RocketMQ; empty: it has none."""
        return self._nodes[node_id].rocketmq

    def metrics_of(self, node_id: str) -> str:
        """Return `host:port` of one node's metrics page."""
        return self._nodes[node_id].metrics

    def directory_of(self, node_id: str) -> Path:
        """Return the node's own store directory (`.../dledger-<id>`)."""
        return Path(self._nodes[node_id].store) / f"dledger-{node_id}"

    def config_of(self, node_id: str) -> Path:
        """Return the node's configuration file."""
        return Path(self._nodes[node_id].config)

    def log_of(self, node_id: str) -> Path:
        """Return the file with the node's standard output and error."""
        return Path(self._nodes[node_id].log)

    def pid_of(self, node_id: str) -> int | None:
        """Return the process id of a node; None if it is not running."""
        return self._process_of(node_id).pid

    def is_running(self, node_id: str) -> bool:
        """Return whether the node's process is running."""
        return self.pid_of(node_id) is not None

    @property
    def running_ids(self) -> tuple[str, ...]:
        """The ids of the running nodes."""
        return tuple(node_id for node_id in self._nodes if self.is_running(node_id))

    # --------------------------------------------------------------------------------------- starting and ending

    def start(self, timeout_s: float = START_LIMIT_S) -> None:
        """Start all nodes that are not running; wait until all nodes serve clients.

        Raises:
            ClusterError: a node ended or was not ready in time; the text has the end of its output.
        """
        started = [node_id for node_id in self._nodes if not self.is_running(node_id)]
        for node_id in started:
            self._launch(node_id)
        deadline = time.monotonic() + timeout_s
        for node_id in started:
            self._process_of(node_id).wait_ready(deadline)

    def start_node(self, node_id: str, timeout_s: float = START_LIMIT_S) -> None:
        """Start one node, unless it is running, and wait until it serves clients."""
        if not self.is_running(node_id):
            self._launch(node_id)
            self._process_of(node_id).wait_ready(time.monotonic() + timeout_s)

    def stop(self) -> None:
        """Stop all nodes by SIGTERM, and after 10 s by SIGKILL."""
        for node_id in self._nodes:
            self._process_of(node_id).signal(signal.SIGTERM)
        for node_id in self._nodes:
            self.stop_node(node_id)

    def stop_node(self, node_id: str) -> None:
        """Stop one node by SIGTERM, and after 10 s by SIGKILL."""
        self._process_of(node_id).stop()
        self._forget(node_id)

    def kill(self, node_id: str) -> None:
        """Kill one node (SIGKILL), to simulate a crash, and wait until its process has ended."""
        self._process_of(node_id).kill()
        self._forget(node_id)

    def restart(self, node_id: str, timeout_s: float = START_LIMIT_S) -> None:
        """Stop one node if it is running, and start it again with the same files."""
        self.stop_node(node_id)
        self.start_node(node_id, timeout_s)

    def pause(self, node_id: str) -> None:
        """Pause one node's process (SIGSTOP): its connections remain open, but it does not answer."""
        self._process_of(node_id).signal(signal.SIGSTOP)

    def resume(self, node_id: str) -> None:
        """Resume a paused node."""
        self._process_of(node_id).signal(signal.SIGCONT)

    # ---------------------------------------------------------------------------------------- changes of members

    def add_node(self, timeout_s: float = START_LIMIT_S) -> str:
        """Add a node to the group, on free ports, and wait until it is a voter; return its id.

        Raises:
            ClusterError: the node did not start; the text has the end of its output.
            dledger.client.AdminFailed: there is no leader, or the new node did not catch up in time.
        """
        node_id = f"n{1 + max(int(known.removeprefix('n')) for known in self._nodes)}"
        has_rocketmq = any(node.rocketmq for node in self._nodes.values())
        peer_port, *ports = choose_ports(6 if has_rocketmq else 4, None)
        with self._administration(timeout_s) as admin:
            admin.add(node_id, f"127.0.0.1:{peer_port}")
            peers = ";".join(f"{member.id}-{member.address}" for member in admin.members().members)
            # The settings of another node, some of which must be equal on all nodes.
            settings = tomllib.loads(Path(next(iter(self._nodes.values())).config).read_text())
            joining = {**settings, "is_joining": True}
            if has_rocketmq:
                joining["rocketmq_remoting_peers"] += f";{node_id}-127.0.0.1:{ports[-1]}"
            if self._secrets is not None:
                joining |= self._secrets.node_settings(self._group, node_id)
            self._nodes[node_id] = write_node(self._folder, node_id, peers, joining, ports)
            self.start_node(node_id, timeout_s)
            admin.promote(node_id)
        return node_id

    def remove_node(self, node_id: str, timeout_s: float = 30.0) -> None:
        """Remove a node from the group, stop it, and delete its files.

        Raises:
            dledger.client.AdminFailed: there is no leader, or too few nodes would be running.
        """
        with self._administration(timeout_s) as admin:
            admin.remove(node_id)
        self.stop_node(node_id)
        self.wipe(node_id)
        node = self._nodes.pop(node_id)
        self._processes.pop(node_id, None)
        for path in (node.config, node.log):
            Path(path).unlink(missing_ok=True)
        if self._secrets is not None:
            self._secrets.forget_node(self._group, node_id)
        self._save()

    def wipe(self, node_id: str) -> None:
        """Delete the files of a stopped node, to simulate a new disk.

        Raises:
            ClusterError: the node is running.
        """
        if self.is_running(node_id):
            raise ClusterError(f"node {node_id} is running: stop it first")
        shutil.rmtree(self._nodes[node_id].store, ignore_errors=True)

    def wait_counted(self, node_id: str, timeout_s: float = 30.0) -> None:
        """Wait until the leader counts a node's answers: after it has caught up, and was readmitted if it was wiped.

        Raises:
            ClusterError: that did not happen in time.
        """
        deadline = time.monotonic() + timeout_s
        with LogClient(self.endpoints, group=self._group, security=self.security) as client:
            while time.monotonic() < deadline:
                own = client.statuses().get(self.endpoint_of(node_id))
                # An election may be in progress.
                with suppress(ReadFailed):
                    if own is not None and not isinstance(own, str) and _is_counted(own, client.status()):
                        return
                time.sleep(_POLL_S)
        raise ClusterError(f"{node_id} is not counted as a voter within {timeout_s:.0f} s; see {self.log_of(node_id)}")

    def wait_for_leader(self, timeout_s: float = 15.0) -> str:
        """Wait for a leader; return its id.

        Raises:
            ClusterError: no leader was elected in time.
        """
        deadline = time.monotonic() + timeout_s
        with LogClient(self.endpoints, group=self._group, security=self.security) as client:
            while time.monotonic() < deadline:
                leader = client.find_leader()
                for node in self._nodes.values():
                    if node.endpoint == leader:
                        return node.id
                time.sleep(_POLL_S)
        raise ClusterError(f"no leader within {timeout_s:.0f} s; see the logs {self._folder}/*.log")

    def _administration(self, timeout_s: float) -> AdminClient:
        return AdminClient(self.endpoints, group=self._group, deadline_s=timeout_s, security=self.security)

    def _launch(self, node_id: str) -> None:
        process = self._process_of(node_id)
        process.launch()
        self._nodes[node_id].process = process.ref
        self._save()

    def _process_of(self, node_id: str) -> LocalProcess:
        process = self._processes.get(node_id)
        if process is None:
            node = self._nodes[node_id]
            arguments = ["server", "--config", node.config]
            process = LocalProcess(
                f"node {node_id}", arguments, Path(node.log), node.process, is_detached=self._is_detached
            )
            self._processes[node_id] = process
        return process

    def _forget(self, node_id: str) -> None:
        if self._nodes[node_id].process is not None:
            self._nodes[node_id].process = None
            self._save()


def _state_file(folder: Path) -> StateFile:
    return StateFile(folder, STATE_FILE, "a cluster")


def _is_counted(own: StatusResponse, leader: StatusResponse) -> bool:
    """Return whether a leader counts a node, also after the node's disk was lost."""
    incarnations = {member.id: member.incarnation for member in leader.members if member.is_voter}
    counted = {peer.id for peer in leader.peers if peer.is_counted and peer.is_live} | {leader.self_id}
    return not own.is_founding and incarnations.get(own.self_id) == own.incarnation and own.self_id in counted
