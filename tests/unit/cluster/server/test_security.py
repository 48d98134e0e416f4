"""Settings to the security of a node's ports: files are read, watched, and what is plain is logged."""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from cluster.api.name_servers.metrics import NameServerMetrics
from cluster.broker.core import BrokerOptions
from cluster.config.exposure import ExposedPort
from cluster.config.load import ServerConfig, load_config
from cluster.config.port_tls import process_tls
from cluster.replica.standalone import StandaloneConfig
from cluster.server.broker import BrokerConfig
from cluster.server.broker import _serve as serve_broker
from cluster.server.name_server import NameServerConfig, serve_name_server
from cluster.server.security import ProcessSecurity, node_security, standalone_security
from dledger.config import Address
from dledger.security.credentials import CertificateFiles
from dledger.security.errors import CertificateFault, WrongIdentity
from dledger.security.peers import PLAIN_PEERS, PeerKind
from dledger.security.settings import PLAIN, Plain, Tls
from dledger.security.shared_secret import new_secret
from tests.support.certificates import new_authority, node_pair, tls_of, write_tls

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from dledger.security.settings import Security

OURS = new_authority()
PEERS = "n0-127.0.0.1:1001;n1-127.0.0.1:1002;n2-127.0.0.1:1003"


def config(folder: Path, *, node_id: str = "n0", **settings: str) -> ServerConfig:
    files = write_tls(folder / "tls", tls_of(node_pair(OURS, node_id), OURS))
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_bytes(new_secret())
    names = {
        "tls_authority_file": files.authority,
        "tls_certificate_file": files.certificate,
        "tls_key_file": files.key,
        "peer_secret_file": str(secret),
    }
    own = {"self_id": "n0", "group": "g0", "peers": PEERS, "store_base_dir": "data"}
    return load_config(None, {}, own | names | settings)


def opened(loaded: ServerConfig) -> tuple[ProcessSecurity, CollectorRegistry]:
    registry = CollectorRegistry()

    async def main() -> ProcessSecurity:
        async with AsyncExitStack() as stack:
            return await node_security(loaded, registry, stack)

    return asyncio.run(main()), registry


def test_everything_is_plain_without_settings(tmp_path: Path) -> None:
    security, _ = opened(config(tmp_path))

    assert (security.clients, security.peers, security.name_servers()) == (PLAIN, PLAIN_PEERS, PLAIN)
    assert security.metrics is None
    assert (security.fronts.clients, security.fronts.leader()) == (PLAIN, PLAIN)


def test_page_of_metrics_has_certificates_of_its_own(tmp_path: Path) -> None:
    loaded = config(tmp_path, client_tls="on", metrics_tls="mutual")
    security, registry = opened(loaded)

    assert security.metrics is not None
    assert security.metrics().verify_mode is ssl.CERT_REQUIRED
    used = {sample.labels["use"] for metric in registry.collect() for sample in metric.samples}
    assert used == {"clients", "metrics"}


FRONT = {"broker": "g0", "rocketmq_grpc_address": "127.0.0.1:8081", "first_user_file": "first-user"}


@pytest.mark.parametrize("mode", ["on", "mutual"])
def test_ports_for_rocketmqs_clients_demand_no_certificate_and_call_the_leader_with_that_of_the_node(
    tmp_path: Path, mode: str
) -> None:
    security, registry = opened(config(tmp_path, client_tls=mode, **FRONT))

    shown, own, to_leader = security.fronts.clients, security.clients, security.fronts.leader()
    assert not isinstance(shown, Tls | Plain)
    assert not isinstance(own, Tls | Plain)
    assert own().is_certificate_required is (mode == "mutual")
    assert (shown().is_certificate_required, shown().certificate) == (False, own().certificate)
    assert shown() is shown()
    assert isinstance(to_leader, Tls)
    assert to_leader.authority == OURS.certificate_pem()
    assert to_leader.certificate == own().certificate
    used = {sample.labels["use"] for metric in registry.collect() for sample in metric.samples}
    assert used == {"clients", "fronts"}


def test_a_leader_that_demands_certificates_is_not_called_with_that_of_another_node(tmp_path: Path) -> None:
    with pytest.raises(WrongIdentity):
        opened(config(tmp_path, node_id="n1", client_tls="mutual", **FRONT))


def test_standalone_broker_is_the_node_of_its_own_name(tmp_path: Path) -> None:
    """Goal: a closed name server accepts only its certificate. Method: that of another node is refused at the start."""

    async def main(node_id: str) -> Security:
        files = write_tls(tmp_path / node_id, tls_of(node_pair(OURS, node_id, group="b"), OURS))
        async with AsyncExitStack() as stack:
            tls = process_tls("off", "off", "on", files)
            return (await standalone_security(tls, "", "b", CollectorRegistry(), stack)).name_servers()

    assert isinstance(asyncio.run(main("b")), Tls)
    with pytest.raises(WrongIdentity):
        asyncio.run(main("n0"))


@pytest.mark.parametrize("kind", [PeerKind.TLS, PeerKind.SECRET])
def test_peers_use_what_the_settings_name(tmp_path: Path, kind: PeerKind, caplog: pytest.LogCaptureFixture) -> None:
    security, registry = opened(config(tmp_path, peer_security=kind.value, peer_security_also="off", client_tls="on"))

    assert security.peers.kinds == (kind, PeerKind.PLAIN)
    assert security.peers.generation_of(kind) == 1
    assert security.clients is not PLAIN
    assert "peer_connections_may_be_plain" in caplog.text
    used = {sample.labels["use"] for metric in registry.collect() for sample in metric.samples}
    assert used == {"clients", "peers"} if kind is PeerKind.TLS else {"clients"}


def test_certificate_of_another_node_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(WrongIdentity):
        opened(config(tmp_path, node_id="n1", peer_security="tls"))


def test_plain_ports_of_a_network_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        opened(config(tmp_path, client_address="10.0.0.1:1", insecure="all"))

    assert "insecure_port option=client_address address=10.0.0.1:1" in caplog.text


def test_plain_ports_of_a_standalone_broker_and_of_a_name_server_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Method: the processes log them first of all; that there are no certificates ends the start before any port."""
    port, page = ExposedPort("--listen", Address("10.0.0.1", 1)), ExposedPort("--metrics", Address("10.0.0.1", 2))
    files = CertificateFiles(*(str(tmp_path / name) for name in ("authority", "certificate", "key")))
    standalone = BrokerConfig(
        StandaloneConfig(str(tmp_path / "store"), "b", "10.0.0.1:1"),
        BrokerOptions("b"),
        port.address,
        tls=process_tls("on", "off", "off", files),
        exposed_ports=(port, page),
    )
    name_server = NameServerConfig(port.address, files, exposed_ports=(port, page))

    async def start(serve: Callable[[AsyncExitStack], Coroutine[Any, Any, object]]) -> str:
        caplog.clear()
        async with AsyncExitStack() as stack:
            with pytest.raises(CertificateFault):
                await serve(stack)
        return caplog.text

    async def main() -> list[str]:
        stopped: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        metrics, registry = NameServerMetrics(), CollectorRegistry()
        return [
            await start(lambda _: serve_broker(standalone, stopped)),
            await start(lambda stack: serve_name_server(name_server, stack, metrics, registry)),
        ]

    for text in asyncio.run(main()):
        assert "insecure_port option=--listen address=10.0.0.1:1" in text
        assert "insecure_port option=--metrics address=10.0.0.1:2" in text
