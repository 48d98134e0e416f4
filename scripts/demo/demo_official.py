"""The part of the demo in which an unchanged official client of RocketMQ 5 talks to a group whose leader is killed.

The client, `rocketmq-python-client`, is installed into an environment of its own below build/. It knows the addresses
of the three nodes, sends one message after the other while the leader is killed with kill -9, and then receives them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from demo_stage import BROKER_OPTIONS, counting_bar, say
from demo_writer import DemoError
from rich.table import Table

from cluster.local.brokers import LocalBrokers
from cluster.local.topics import create_topics
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from rich.console import Console

    from cluster.local.cluster import LocalCluster

_COUNT = 1000
_LIMIT_S = 180.0
_HERE = Path(__file__).resolve().parent
_PROGRAM = _HERE / "official_client.py"
_INSTALLER = _HERE.parent / "interop" / "official_clients.py"


def official_act(folder: Path, console: Console) -> bool | None:
    """Run this part; return whether each acknowledged message was received, None if there is no client.

    Args:
        folder: for all files.
        console: for all output.

    Raises: DemoError, cluster.local.node.ClusterError, dledger.errors.DLedgerError: the demo cannot continue.
    """
    install = subprocess.run([sys.executable, str(_INSTALLER)], stdout=subprocess.PIPE, text=True, check=False)
    if install.returncode:
        console.print("Left out: the client could not be installed; it needs a package index, see the output above")
        return None
    python = Path(install.stdout.strip())
    brokers = LocalBrokers.create(folder / "official-brokers", options=BROKER_OPTIONS, has_rocketmq=True)
    (cluster,) = brokers.clusters.values()
    with brokers:
        leader = cluster.wait_for_leader()
        create_topics(cluster.endpoints, ["orders"], PLAIN)
        # The client uses the first address while it answers: it is connected to the node that ends.
        names = sorted(cluster.node_ids, key=lambda name: name != leader)
        endpoints = ";".join(map(cluster.rocketmq_endpoint_of, names))
        say(console, f"rocketmq-python-client, unchanged, sends to {endpoints}")
        found, acknowledged = _sent(python, endpoints, cluster, console, folder)
    console.print(_table(acknowledged, found))
    return bool(acknowledged) and int(found["received"]) == acknowledged


def _sent(
    python: Path, endpoints: str, cluster: LocalCluster, console: Console, folder: Path
) -> tuple[dict[str, float], int]:
    """Run the client, and kill the leader halfway; return what the client reported, and the number of messages."""
    acknowledged, last, victim = 0, "", ""
    command = [str(python), str(_PROGRAM), endpoints, str(_COUNT)]
    # The client writes its log below HOME.
    with (
        (folder / "official-client.log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env={"HOME": str(folder)}) as client,
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
        raise DemoError(f"the client ended with status {status}; {(folder / 'official-client.log').read_text()[-500:]}")
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
