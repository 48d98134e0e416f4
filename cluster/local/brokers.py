"""Brokers and name servers on loopback, under one folder: for the bench, the demo, scripts and tests.

Each broker is a `cluster.local.cluster.LocalCluster` in a subfolder with the broker's name. `brokers.json` lists the
brokers, so that a later program can attach to them (`LocalBrokers.attach`). All processes end with the program that
started them, unless they are detached. Secured brokers have users, which the first start creates.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.local.cluster import LocalCluster
from cluster.local.folder import RunsWhileOpen, StateFile, process_of
from cluster.local.node import Setting, choose_ports
from cluster.local.process import START_LIMIT_S, LocalProcess
from cluster.local.secured import LocalSecurity, secrets_of
from cluster.local.users import create_users
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cluster.process.procfs import ProcessRef
    from dledger.security.settings import Security

STATE_FILE = "brokers.json"


class LocalBrokers(RunsWhileOpen):
    """Brokers `broker-a`, `broker-b`, ... of several nodes each, and name servers; a context manager.

    Example:
        with LocalBrokers.create(Path("run"), brokers=2) as brokers:
            with Producer(name_servers=brokers.name_servers) as producer:
                producer.send("orders", b"hello")

    Attributes:
        clusters: the nodes of each broker, by the broker's name.
    """

    def __init__(
        self,
        folder: Path,
        clusters: Sequence[LocalCluster],
        servers: Mapping[str, ProcessRef | None],
        secrets: LocalSecurity | None = None,
        *,
        has_users: bool = False,
        is_detached: bool = False,
    ) -> None:
        self._folder = folder
        self._secrets = secrets
        # Of a secured cluster: whether its users were created. Later they are the administrator's.
        self._has_users = has_users
        self._state_file = _state_file(folder)
        self.clusters = {cluster.folder.name: cluster for cluster in clusters}
        self._servers = {
            address: LocalProcess(
                f"name server {address}",
                [
                    *("nameserver", "--listen", address),
                    *(secrets.name_server_options(f"ns{number}", self.clusters) if secrets else ()),
                ],
                folder / f"nameserver-{address.rpartition(':')[2]}.log",
                ref,
                is_detached=is_detached,
            )
            for number, (address, ref) in enumerate(servers.items())
        }

    @classmethod
    def create(
        cls,
        folder: Path,
        *,
        brokers: int = 1,
        nodes: int = 3,
        name_servers: int = 1,
        options: Mapping[str, Setting] | None = None,
        is_secured: bool = False,
        is_detached: bool = False,
        has_rocketmq: bool = False,
    ) -> LocalBrokers:
        """Write the configuration of new brokers under `folder`; nothing is started yet.

        Args:
            folder: created if absent; must not contain brokers.
            brokers: number of brokers, at most 26.
            nodes: number of nodes of each broker.
            name_servers: number of name servers.
            options: settings of every node, by their names in the configuration file.
            is_secured: whether all connections use TLS, and brokers have users (`cluster.local.secured`).
            is_detached: whether processes continue after this program has ended; otherwise the system kills them.
            has_rocketmq: whether nodes have ports for clients of RocketMQ.

        Raises:
            ClusterError: the folder already contains brokers (attach to them).
        """
        folder = folder.absolute()
        _state_file(folder).make_folder()
        secrets = LocalSecurity.create(folder, has_users=True) if is_secured else None
        addresses = [f"127.0.0.1:{port}" for port in choose_ports(name_servers, None)] if name_servers else []
        made = []
        for number in range(brokers):
            name = f"broker-{chr(ord('a') + number)}"
            own = {**(options or {}), "broker": name, "name_servers": ",".join(addresses)}
            made.append(
                LocalCluster.create(
                    folder / name,
                    nodes=nodes,
                    options=own,
                    secrets=secrets,
                    is_detached=is_detached,
                    has_rocketmq=has_rocketmq,
                )
            )
        found = cls(folder, made, dict.fromkeys(addresses), secrets, is_detached=is_detached)
        found._save()
        return found

    @classmethod
    def attach(cls, folder: Path, *, is_detached: bool = False) -> LocalBrokers:
        """Attach to the brokers that an earlier program created under `folder`.

        Args:
            folder: folder of the brokers.
            is_detached: see `create`; it does not affect processes that are already running.

        Raises:
            ClusterError: there are none.
        """
        folder = folder.absolute()
        state = _state_file(folder).load()
        servers = {each["address"]: process_of(each["process"]) for each in state["servers"]}
        clusters = [LocalCluster.attach(folder / name, is_detached=is_detached) for name in state["brokers"]]
        has_users = bool(state.get("has_users"))
        return cls(folder, clusters, servers, secrets_of(state), has_users=has_users, is_detached=is_detached)

    def _save(self) -> None:
        self._state_file.save(
            lambda: {
                "brokers": list(self.clusters),
                "security": str(self._secrets.folder) if self._secrets else None,
                "has_users": self._has_users,
                "servers": [
                    {"address": address, "process": asdict(process.ref) if process.ref else None}
                    for address, process in self._servers.items()
                ],
            }
        )

    # ---------------------------------------------------------------------------------------------------- properties

    @property
    def folder(self) -> Path:
        """The folder of all files."""
        return self._folder

    @property
    def secrets(self) -> LocalSecurity | None:
        """The certificates and users of secured brokers; None: all connections are plain."""
        return self._secrets

    @property
    def security(self) -> Security:
        """The security of an administrator's connections.

        Raises:
            ClusterError: a file of it cannot be used.
        """
        return PLAIN if self._secrets is None else self._secrets.client()

    @property
    def name_servers(self) -> str:
        """The `host:port` of every name server, comma separated, as clients expect it."""
        return ",".join(self._servers)

    @property
    def endpoints(self) -> str:
        """The `host:port` of every node of every broker, comma separated."""
        return ",".join(cluster.endpoints for cluster in self.clusters.values())

    @property
    def rocketmq_endpoints(self) -> str:
        """The `host:port` of every node's port for official clients of RocketMQ, separated by semicolons."""
        return ";".join(filter(None, (cluster.rocketmq_endpoints for cluster in self.clusters.values())))

    @property
    def remoting_endpoints(self) -> str:
        """The `host:port` of every node's port for the remoting protocol, separated by semicolons."""
        return ";".join(filter(None, (cluster.remoting_endpoints for cluster in self.clusters.values())))

    @property
    def running_count(self) -> int:
        """The number of running nodes and name servers."""
        servers = sum(process.is_running for process in self._servers.values())
        return servers + sum(len(cluster.running_ids) for cluster in self.clusters.values())

    def name_server_pid(self, address: str) -> int | None:
        """Return the process id of a name server; None if it is not running."""
        return self._servers[address].pid

    # --------------------------------------------------------------------------------------- starting and ending

    def start(self, timeout_s: float = START_LIMIT_S) -> None:
        """Start all processes that are not running; wait until all nodes serve clients, and users exist.

        Raises:
            ClusterError: a process ended or was not ready in time; the text has the end of its output.
        """
        for address in self._servers:
            self.start_name_server(address, timeout_s)
        for cluster in self.clusters.values():
            cluster.start(timeout_s)
        if self._secrets is not None and not self._has_users:
            for cluster in self.clusters.values():
                create_users(cluster.endpoints, self._secrets, timeout_s)
            self._has_users = True
            self._save()

    def stop(self) -> None:
        """Stop all processes by SIGTERM, and after 10 s by SIGKILL."""
        for cluster in self.clusters.values():
            cluster.stop()
        for address in self._servers:
            self.stop_name_server(address)

    def start_name_server(self, address: str, timeout_s: float = START_LIMIT_S) -> None:
        """Start one name server, unless it is running, and wait until it serves clients."""
        process = self._servers[address]
        if not process.is_running:
            process.launch()
            self._save()
            process.wait_ready(time.monotonic() + timeout_s)

    def stop_name_server(self, address: str) -> None:
        """Stop one name server."""
        self._servers[address].stop()
        self._save()

    def kill_name_server(self, address: str) -> None:
        """Kill one name server (SIGKILL), to simulate a crash."""
        self._servers[address].kill()
        self._save()


def _state_file(folder: Path) -> StateFile:
    return StateFile(folder, STATE_FILE, "brokers")
