"""Starts, stops and inspects a cluster of nodes on this machine, with all its files in one folder.

    python scripts/local_cluster.py start      three nodes on free ports, in ./run
    python scripts/local_cluster.py start --brokers 2      two brokers of three nodes each, and a name server
    python scripts/local_cluster.py start --secure         with TLS; brokers also have users
    python scripts/local_cluster.py status
    python scripts/local_cluster.py environment        `export` and `unset` lines for a shell: addresses for clients
    python scripts/local_cluster.py add        another node joins
    python scripts/local_cluster.py remove n0  removes a node and deletes its files
    python scripts/local_cluster.py wipe n1    deletes a node's files, as with a new disk, and restores them
    python scripts/local_cluster.py stop       data and logs are kept

The nodes of a broker are a cluster in a separate folder: `--folder run/broker-a`. A secured cluster has its secrets in
`security`, and in `contexts.toml` a context of `dledger` for each of its users. The program stops only processes that
it started for this folder. They run until `stop`, also after this program has exited. The implementation is in
`cluster.local.cluster` and `cluster.local.brokers`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from cluster.cli.contexts import FILE_VARIABLE, Context, ContextError, changed_contexts
from cluster.local.brokers import STATE_FILE as BROKERS_FILE
from cluster.local.brokers import LocalBrokers
from cluster.local.cluster import STATE_FILE, LocalCluster
from cluster.local.node import ClusterError
from cluster.local.secured import ADMINISTRATOR, APPLICATION, USERS, LocalSecurity
from dledger import LogClient
from dledger.client import AdminFailed

DEFAULT_FOLDER = Path("run")
CONTEXTS = "contexts.toml"
# All by which the commands find a cluster.
VARIABLES = (
    "DLEDGER_ENDPOINTS",
    "DLEDGER_NAME_SERVERS",
    "DLEDGER_BROKER",
    "DLEDGER_ROCKETMQ_GRPC",
    "DLEDGER_ROCKETMQ_NAMESRV",
    FILE_VARIABLE,
)
_DESCRIPTIONS = {ADMINISTRATOR: "the administrator of a local cluster", APPLICATION: "a user for programs"}


def main() -> int:
    """Run one command. Return 1 if it failed."""
    options = _parse()
    try:
        options.run(options)
    except (ClusterError, AdminFailed, ContextError) as error:
        print(f"local_cluster: {error}", file=sys.stderr)
        return 1
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A cluster of nodes on this machine, under one folder.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (
        ("start", _start, "start every node that does not run; create the cluster first if it does not exist"),
        ("stop", _stop, "stop all nodes; data and logs are kept"),
        ("status", _status, "show all nodes"),
        ("endpoints", _endpoints, "print the addresses that a client needs"),
        ("environment", _environment, "print the variables that a shell exports for the commands; use with eval"),
        ("add", _add, "add a node to the group, and wait until it is a voter"),
        ("remove", _remove, "remove a node from the group, stop it, and delete its files"),
        ("wipe", _wipe, "stop a node, delete its files, start it again, and wait until it has its vote again"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="directory of the cluster (./run)")
        command.set_defaults(run=run)
        if name in ("remove", "wipe"):
            command.add_argument("node", help="its id, for example n0")
        if name == "start":
            command.add_argument("--nodes", type=int, choices=(1, 3, 5), default=3, help="nodes of a new cluster (3)")
            command.add_argument("--brokers", type=int, default=0, help="brokers of a new cluster (none)")
            command.add_argument("--base-port", type=int, help="first of four ports per node, if new (free ones)")
            command.add_argument("--secure", action="store_true", help="TLS for all connections, and users of brokers")
    return parser.parse_args()


def _start(options: argparse.Namespace) -> None:
    folder: Path = options.folder
    if (folder / BROKERS_FILE).exists() or (options.brokers and not (folder / STATE_FILE).exists()):
        _start_brokers(options)
        return
    if options.brokers:
        raise ClusterError(f"{folder} holds a cluster without brokers: choose another folder")
    if (folder / STATE_FILE).exists():
        cluster = LocalCluster.attach(folder, is_detached=True)
        _check_kind(options, cluster)
    else:
        secrets = LocalSecurity.create(folder, has_users=False) if options.secure else None
        cluster = LocalCluster.create(
            folder, nodes=options.nodes, base_port=options.base_port, secrets=secrets, is_detached=True
        )
    cluster.start()
    leader = cluster.wait_for_leader()
    _show(cluster)
    print(f"{leader} is the leader. Addresses for clients:\n{cluster.endpoints}")
    _write_contexts(cluster)


def _start_brokers(options: argparse.Namespace) -> None:
    if (options.folder / BROKERS_FILE).exists():
        brokers = LocalBrokers.attach(options.folder, is_detached=True)
        _check_kind(options, brokers)
        if options.brokers not in (0, len(brokers.clusters)):
            raise ClusterError(
                f"{options.folder} holds {len(brokers.clusters)} broker(s), not {options.brokers}: choose another "
                "folder, as with RUN=other"
            )
    else:
        brokers = LocalBrokers.create(
            options.folder,
            brokers=options.brokers,
            nodes=options.nodes,
            is_secured=options.secure,
            is_detached=True,
            has_rocketmq=True,
        )
    brokers.start()
    for cluster in brokers.clusters.values():
        cluster.wait_for_leader()
    _show_brokers(brokers)
    if brokers.secrets is None:
        print(f"For the commands of messages:\n{_exports(brokers)}")
    _write_contexts(brokers)


def _check_kind(options: argparse.Namespace, found: LocalCluster | LocalBrokers) -> None:
    """Refuse to start a cluster of the other kind than the one that was asked for."""
    if options.secure and found.secrets is None:
        raise ClusterError(
            f"{options.folder} holds a cluster without TLS: start it without SECURE=1 (--secure), or choose another "
            "folder, as with `make cluster-up SECURE=1 RUN=secure`"
        )
    if found.secrets is not None and not options.secure:
        raise ClusterError(
            f"{options.folder} holds a secured cluster: start it with SECURE=1 (--secure), or choose another folder, "
            "as with `make cluster-up RUN=plain`"
        )


# ----------------------------------------------------------------------------------------------- what a shell needs


def _write_contexts(of: LocalCluster | LocalBrokers) -> None:
    """Write a context for each user of a secured cluster into its own file, and print how to use them."""
    # The contexts of one of several brokers have its name servers, not its nodes.
    if of.secrets is None or of.secrets.folder.parent != of.folder:
        return
    os.environ[FILE_VARIABLE] = str(_contexts_of(of.secrets))
    with changed_contexts() as changes:
        for user in USERS:
            files = of.secrets.files_of(user)
            changes.by_name[user] = Context(
                user,
                name_servers=of.name_servers if isinstance(of, LocalBrokers) else "",
                endpoints=of.endpoints if isinstance(of, LocalCluster) else "",
                tls_ca=files.tls_ca,
                tls_cert=files.tls_cert,
                tls_key=files.tls_key,
                token_file=files.token_file,
                description=_DESCRIPTIONS[user],
            )
        changes.current = changes.current or APPLICATION
    print(f"For the commands, as user {changes.current} (`--context {ADMINISTRATOR}` is the administrator):")
    print(_exports(of))


def _contexts_of(secrets: LocalSecurity) -> Path:
    return secrets.folder.parent / CONTEXTS


def _exports(of: LocalCluster | LocalBrokers) -> str:
    if of.secrets is not None:
        lines = [f"export {FILE_VARIABLE}={shlex.quote(str(_contexts_of(of.secrets)))}"]
    elif isinstance(of, LocalCluster):
        lines = [f"export DLEDGER_ENDPOINTS={of.endpoints}"]
    else:
        lines = [f"export DLEDGER_NAME_SERVERS={of.name_servers}", f"export DLEDGER_BROKER={of.endpoints}"]
    # Of one broker: each of its nodes serves all of its topics, and a client needs one node.
    if isinstance(of, LocalBrokers) and len(of.clusters) == 1 and of.rocketmq_endpoints:
        lines.append(f"export DLEDGER_ROCKETMQ_GRPC={of.rocketmq_endpoints.partition(';')[0]}")
        lines.append(f"export DLEDGER_ROCKETMQ_NAMESRV={shlex.quote(of.remoting_endpoints)}")
    return "\n".join(lines)


def _stop(options: argparse.Namespace) -> None:
    if (options.folder / BROKERS_FILE).exists():
        brokers = LocalBrokers.attach(options.folder)
        running = brokers.running_count
        brokers.stop()
        print(f"stopped {running} processes; data and logs are kept in {brokers.folder}")
        return
    cluster = LocalCluster.attach(options.folder)
    running = len(cluster.running_ids)
    cluster.stop()
    print(f"stopped {running} of {len(cluster.node_ids)} nodes; data and logs are kept in {cluster.folder}")


def _status(options: argparse.Namespace) -> None:
    if (options.folder / BROKERS_FILE).exists():
        _show_brokers(LocalBrokers.attach(options.folder))
    else:
        _show(LocalCluster.attach(options.folder))


def _endpoints(options: argparse.Namespace) -> None:
    if (options.folder / BROKERS_FILE).exists():
        print(LocalBrokers.attach(options.folder).endpoints)
    else:
        print(LocalCluster.attach(options.folder).endpoints)


def _environment(options: argparse.Namespace) -> None:
    is_of_brokers = (options.folder / BROKERS_FILE).exists()
    exports = _exports((LocalBrokers if is_of_brokers else LocalCluster).attach(options.folder))
    # A variable of another cluster would take precedence over a context, or over the address of this one.
    others = [name for name in VARIABLES if f"export {name}=" not in exports]
    print(f"unset {' '.join(others)}\n{exports}")


def _add(options: argparse.Namespace) -> None:
    cluster = LocalCluster.attach(options.folder, is_detached=True)
    node_id = cluster.add_node()
    _show(cluster)
    print(f"{node_id} has joined and votes. Addresses for clients:\n{cluster.endpoints}")
    _write_contexts(cluster)


def _remove(options: argparse.Namespace) -> None:
    cluster = LocalCluster.attach(options.folder)
    _check_known(cluster, options.node)
    cluster.remove_node(options.node)
    _show(cluster)
    print(f"{options.node} has left the group; its files are deleted")
    _write_contexts(cluster)


def _wipe(options: argparse.Namespace) -> None:
    cluster = LocalCluster.attach(options.folder, is_detached=True)
    _check_known(cluster, options.node)
    cluster.stop_node(options.node)
    cluster.wipe(options.node)
    cluster.start_node(options.node)
    cluster.wait_counted(options.node)
    _show(cluster)
    print(f"{options.node} lost its files, was re-synced by the leader, and has its vote again")


def _check_known(cluster: LocalCluster, node_id: str) -> None:
    if node_id not in cluster.node_ids:
        raise ClusterError(f"there is no node {node_id!r}: there are {', '.join(cluster.node_ids)}")


def _show_brokers(brokers: LocalBrokers) -> None:
    """Print the nodes of each broker, and the name servers."""
    for name, cluster in brokers.clusters.items():
        print(name)
        _show(cluster)
    for address in filter(None, brokers.name_servers.split(",")):
        pid = brokers.name_server_pid(address)
        print(f"name server {address}: {'stopped' if pid is None else pid}")


def _show(cluster: LocalCluster) -> None:
    """Print one row per node: process, role in the group, addresses."""
    with LogClient(cluster.endpoints, group=cluster.group, security=cluster.security) as client:
        statuses = client.statuses()
    columns = ("node", "process", "role", "term", "committed", "clients", "metrics")
    table = Table(*columns, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for node_id in cluster.node_ids:
        pid = cluster.pid_of(node_id)
        endpoint = cluster.endpoint_of(node_id)
        status = statuses.get(endpoint)
        state = (
            ("-", "-", "-")
            if status is None or isinstance(status, str)
            else (status.role, str(status.term), str(status.commit_index))
        )
        process = "stopped" if pid is None else str(pid)
        table.add_row(node_id, process, *state, endpoint, cluster.metrics_of(node_id))
    Console().print(table)
    print(f"Data and logs are in {cluster.folder}")


if __name__ == "__main__":
    sys.exit(main())
