"""No port is open to unknown clients: all are on loopback by default, and secured ports refuse them."""

from __future__ import annotations

import socket
import ssl
import time
import tomllib
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
import typer
from typer.main import get_command

from cluster.cli.nodes.broker import broker as broker_command
from cluster.cli.nodes.nameserver import nameserver as nameserver_command
from cluster.config.broker_options import ServerOptions
from cluster.config.values import parse_address
from cluster.local.brokers import LocalBrokers
from cluster.local.cluster import LocalCluster
from cluster.local.node import choose_ports
from cluster.local.process import START_LIMIT_S, LocalProcess
from cluster.local.secured import LocalSecurity
from dledger.config import Address
from dledger.frames.codec import encode_greeting
from dledger.security.settings import is_loopback_host
from tests.support.certificates import new_authority, tls_of, user_pair, write_tls
from tests.support.network.listeners import Listener, listeners_of
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What an unknown client sends: gRPC answers with its settings, a page with metrics, a frame port with its methods.
SENT = {
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]),
    "HTTP/1": b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n",
    "frames": encode_greeting(),
}
# The first byte of an alert in TLS: a refusal.
ALERT = b"\x15"


LOG_SETTINGS = {"mapped_file_size_for_entry_data": 1 << 20, "mapped_file_size_for_entry_index": 32 << 10}
FOREIGN = new_authority("a foreign authority")


class Processes:
    """Processes by name: where they listen, and the addresses that they were given."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self.listeners: dict[str, set[Listener]] = {}
        self.given: dict[str, set[Listener]] = {}
        # What each port is for, by the name of its process: peers, frames, clients, metrics.
        self.kinds: dict[tuple[str, Listener], str] = {}

    def start_brokers(self, *, is_secured: bool) -> LocalBrokers:
        """Start a broker of one node and a name server."""
        folder = self._folder / "brokers"
        brokers = LocalBrokers.create(folder, nodes=1, is_secured=is_secured, options=LOG_SETTINGS)
        self._stack.enter_context(brokers)
        for cluster in brokers.clusters.values():
            self._add_node("node of a broker", cluster)
        for address in brokers.name_servers.split(","):
            self._add("name server", brokers.name_server_pid(address), clients=address)
        return brokers

    def start_log(self, *, is_secured: bool) -> None:
        """Start a node of a log of raw entries."""
        folder = self._folder / "log"
        secrets = LocalSecurity.create(folder, has_users=False) if is_secured else None
        cluster = LocalCluster.create(folder, nodes=1, secrets=secrets, options=LOG_SETTINGS)
        self._stack.enter_context(cluster)
        self._add_node("node of a log", cluster)

    def start_secured(self) -> tuple[LocalSecurity, list[str]]:
        """Start a process of each kind with mutual TLS; return the broker's security, and options of a name server."""
        brokers = self.start_brokers(is_secured=True)
        assert brokers.secrets is not None
        self.start_log(is_secured=True)
        mutual = [*brokers.secrets.standalone_options("s"), "--metrics-tls", "mutual"]
        self.launch("standalone", "broker", "--name", "s", "--standalone", str(self._folder / "store"), *mutual)
        names = brokers.secrets.name_server_options("ns9", brokers.clusters)
        self.launch("names", "nameserver", *names, "--metrics-tls", "mutual")
        return brokers.secrets, names

    def launch(self, name: str, *options: str) -> None:
        """Start a command that serves clients and a page of metrics."""
        addresses = [f"127.0.0.1:{port}" for port in choose_ports(2, None)]
        command = [*options, "--listen", addresses[0], "--metrics", addresses[1]]
        process = LocalProcess(name, command, self._folder / f"{name}.log")
        process.launch()
        self._stack.callback(process.stop)
        process.wait_ready(time.monotonic() + START_LIMIT_S)
        self._add(name, process.pid, clients=addresses[0], metrics=addresses[1])

    def _add_node(self, name: str, cluster: LocalCluster) -> None:
        settings = tomllib.loads(cluster.config_of("n0").read_text())
        self._add(
            name,
            cluster.pid_of("n0"),
            peers=settings["peers"].removeprefix("n0-"),
            frames=settings["frame_address"],
            clients=cluster.endpoint_of("n0"),
            metrics=cluster.metrics_of("n0"),
        )

    def _add(self, name: str, pid: int | None, **addresses: str) -> None:
        assert pid is not None
        self.listeners[name] = listeners_of(pid)
        for kind, text in addresses.items():
            address = parse_address(text)
            self.kinds[name, Listener("tcp", address.host, address.port)] = kind
        self.given[name] = {listener for owner, listener in self.kinds if owner == name}


@pytest.fixture
def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    # The sockets of a process are found by its descriptors, which only root could list otherwise.
    monkeypatch.setenv("DLEDGER_DEBUGGABLE", "true")
    with ExitStack() as stack:
        yield Processes(stack, tmp_path)


def answer(listener: Listener, context: ssl.SSLContext | None, sent: bytes) -> bytes:
    """Return the first bytes that a server answers to an unknown client; none: it is refused."""
    with socket.create_connection((listener.host, listener.port), PATIENCE_S) as plain:
        try:
            connection = plain if context is None else context.wrap_socket(plain)
            connection.sendall(sent)
            received = connection.recv(1 << 10)
        except TimeoutError:
            raise
        except OSError:
            return b""
    return b"" if context is None and received[:1] == ALERT else received


def unknown_clients(folder: Path) -> dict[str, ssl.SSLContext | None]:
    """Return the ways in which an unknown client connects: none of them checks the certificate of the server."""
    files = write_tls(folder / "unknown", tls_of(user_pair(FOREIGN, "admin"), FOREIGN))
    found: dict[str, ssl.SSLContext | None] = {"plain": None}
    for name in ("no certificate", "a foreign certificate"):
        context = found[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2", "http/1.1"])
        if name == "a foreign certificate":
            context.load_cert_chain(files.certificate, files.key)
    return found


def served(listener: Listener, folder: Path) -> list[str]:
    """Return the unknown clients that get an answer."""
    return [
        f"{name}: {kind}"
        for name, context in unknown_clients(folder).items()
        for kind, sent in SENT.items()
        if answer(listener, context, sent)
    ]


def test_every_default_address_is_on_loopback() -> None:
    commands = {"broker": broker_command, "nameserver": nameserver_command}
    defaults = {f"server {name}": field.default for name, field in ServerOptions.model_fields.items()}
    for command, function in commands.items():
        holder = typer.Typer()
        holder.command()(function)
        defaults |= {f"{command} {each.name}": each.default for each in get_command(holder).params}
    addresses = {
        name: value if isinstance(value, Address) else parse_address(value)
        for name, value in defaults.items()
        if isinstance(value, Address) or (name.endswith((" listen", "metrics", "address")) and value)
    }

    assert {"server client_address", "server metrics_address", "broker listen", "nameserver listen"} <= set(addresses)
    assert [] == [name for name, address in addresses.items() if not is_loopback_host(address.host)]


def test_plain_processes_listen_on_loopback_only(processes: Processes, tmp_path: Path) -> None:
    """Goal: no port of any process is open to other machines. Method: all sockets of the processes of each kind."""
    processes.start_brokers(is_secured=False)
    processes.start_log(is_secured=False)
    processes.launch("standalone", "broker", "--standalone", str(tmp_path / "store"))
    processes.launch("names", "nameserver")

    assert processes.listeners == processes.given
    assert all(each.is_loopback for found in processes.listeners.values() for each in found)
    # The plain client of the other test can succeed: a plain port, or a page, answers it.
    assert all(any(answer(each, None, sent) for sent in SENT.values()) for each in processes.listeners["names"])


def test_every_port_of_secured_processes_refuses_unknown_clients(processes: Processes, tmp_path: Path) -> None:
    _, names = processes.start_secured()
    processes.launch("names without mutual", "nameserver", *_without_mutual(names), "--metrics-tls", "on")

    open_ones = processes.listeners.pop("names without mutual")
    assert processes.listeners.items() <= processes.given.items()
    assert {} == {
        (name, each): found
        for name, listeners in processes.listeners.items()
        for each in listeners
        if (found := served(each, tmp_path))
    }
    # The same clients are served where no certificate is demanded: they were refused above only for lack of one.
    assert len(open_ones) == 2
    for each in open_ones:
        assert {name.partition(":")[0] for name in served(each, tmp_path)} == {
            "no certificate",
            "a foreign certificate",
        }


def _without_mutual(options: list[str]) -> list[str]:
    """Return options of a name server that asks no client for a certificate, and so has no use for revoked ones."""
    kept = list(options)
    for name in ("--administrator", "--broker", "--tls-revoked-file"):
        place = kept.index(name)
        del kept[place : place + 2]
    return ["on" if each == "mutual" else each for each in kept]
