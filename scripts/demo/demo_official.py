"""The part of the demo in which an unchanged official client of RocketMQ 5 talks to a group whose leader is killed.

The client, `rocketmq-python-client`, is installed into an environment of its own below build/. It knows the addresses
of the three nodes, sends one message after the other while the leader is killed with kill -9, and then receives them.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from demo_stage import BROKER_OPTIONS, counting_bar, say
from demo_writer import DemoError
from rich.table import Table

from cluster.client.broker_calls import BrokerCalls
from cluster.local.brokers import LocalBrokers
from cluster.local.secured import APPLICATION
from cluster.local.topics import create_topics
from cluster.v1 import access_pb2

if TYPE_CHECKING:
    from rich.console import Console

    from cluster.local.cluster import LocalCluster

_COUNT = 1000
_LIMIT_S = 180.0
_CALL_S = 30.0
_HERE = Path(__file__).resolve().parent
_PROGRAM = _HERE / "official_client.py"
_INSTALLER = _HERE.parent / "interop" / "official_clients.py"


def official_act(folder: Path, console: Console, *, is_secured: bool) -> bool | None:
    """Run this part; return whether each acknowledged message was received, None if there is no client.

    Args:
        folder: for all files.
        console: for all output.
        is_secured: whether the nodes use TLS and have users; then the client signs with an access key.

    Raises: DemoError, cluster.local.node.ClusterError, dledger.errors.DLedgerError: the demo cannot continue.
    """
    install = subprocess.run([sys.executable, str(_INSTALLER)], stdout=subprocess.PIPE, text=True, check=False)
    if install.returncode:
        console.print("Left out: the client could not be installed; it needs a package index, see the output above")
        return None
    python = Path(install.stdout.strip())
    brokers = LocalBrokers.create(
        folder / "official-brokers", options=BROKER_OPTIONS, is_secured=is_secured, has_rocketmq=True
    )
    (cluster,) = brokers.clusters.values()
    with brokers:
        leader = cluster.wait_for_leader()
        create_topics(cluster.endpoints, ["orders"], brokers.security)
        # The client writes its log below HOME.
        environment = {"HOME": str(folder), **_credentials(brokers, cluster.endpoints)}
        # The client uses the first address while it answers: it is connected to the node that ends.
        names = sorted(cluster.node_ids, key=lambda name: name != leader)
        # With TLS it takes a list for the name of one host, which no certificate has: one node, not the one that ends.
        endpoints = ";".join(map(cluster.rocketmq_endpoint_of, names[-1:] if is_secured else names))
        how = ", with TLS and an access key" if is_secured else ""
        say(console, f"rocketmq-python-client, unchanged, sends to {endpoints}{how}")
        found, acknowledged = _sent([str(python), str(_PROGRAM), endpoints, str(_COUNT)], environment, cluster, console)
    console.print(_table(acknowledged, found))
    return bool(acknowledged) and int(found["received"]) == acknowledged


def _credentials(brokers: LocalBrokers, endpoints: str) -> dict[str, str]:
    """Create an access key in a secured broker; return the client's variables."""
    if brokers.secrets is None:
        return {}
    secret = secrets.token_urlsafe()
    with BrokerCalls(endpoints, _CALL_S, security=brokers.security) as calls:
        key = access_pb2.AddAccessKeyRequest(user=APPLICATION, id="shop-key", secret=secret)
        calls.ask_access(lambda stub: stub.AddAccessKey, key)
    authority = brokers.secrets.folder / "certs" / "authority.crt"
    return {"DEMO_SECRET": secret, "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(authority)}


def _sent(
    command: list[str], environment: dict[str, str], cluster: LocalCluster, console: Console
) -> tuple[dict[str, float], int]:
    """Run the client, and kill the leader halfway; return what the client reported, and the number of messages."""
    acknowledged, last, victim = 0, "", ""
    output = Path(environment["HOME"]) / "official-client.log"
    with (
        output.open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as client,
        counting_bar(console, "messages") as progress,
    ):
        assert client.stdout is not None
        limit = threading.Timer(_LIMIT_S, client.kill)
        limit.start()
        task = progress.add_task("sent", total=_COUNT)
        for line in client.stdout:
            last = line
            if not line.strip().isdigit():
                continue
            acknowledged += 1
            progress.update(task, completed=acknowledged)
            if not victim and acknowledged >= _COUNT // 2:
                victim = cluster.wait_for_leader()
                cluster.kill(victim)
                progress.console.print(f"  [red]kill -9[/] of {victim} at message {acknowledged:,}")
        status = client.wait()
        limit.cancel()
    if status or not last.startswith("{"):
        raise DemoError(f"the client ended with status {status}; {output.read_text()[-500:]}")
    return json.loads(last), acknowledged


def _table(acknowledged: int, found: dict[str, float]) -> Table:
    table = Table(title="What the official client saw", title_justify="left")
    for name in ("acknowledged", "failed sends", "longest pause", "received", "lost", "repeated"):
        table.add_column(name, justify="right")
    table.add_row(
        f"{acknowledged:,}",
        f"{found['failed']:,}",
        f"{found['longest_s']:.2f} s",
        f"{found['received']:,}",
        f"{acknowledged - found['received']:,}",
        f"{found['repeated']:,}",
    )
    return table
