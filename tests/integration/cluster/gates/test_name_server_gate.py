"""Audit log and quotas of name servers, closed and open: registrations, changes by administrators, refusals."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import urllib.request
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
from prometheus_client import CollectorRegistry

import cluster.server.gates
from cluster.access.quotas import Quotas
from cluster.api.name_servers.metrics import TABLE, NameServerMetrics
from cluster.config.port_tls import PortTls
from cluster.config.quotas import QuotaSettings
from cluster.local.node import choose_ports
from cluster.protocol.route_table import BrokerNode, Extent, Registration, TopicQueues
from cluster.protocol.wire.routes import register_request
from cluster.server.name_server import NameServerConfig, serve_name_server
from cluster.v1 import nameserver_pb2 as pb
from cluster.v1.nameserver_pb2_grpc import NameServerStub
from dledger.client.failures import CHANNEL_OPTIONS
from dledger.config import Address
from dledger.security.channels import open_aio_channel
from dledger.security.settings import PLAIN
from tests.support.certificates import new_authority, node_pair, tls_of, user_identity, user_pair, write_tls
from tests.support.waiting import PATIENCE_S, in_a_loop

if TYPE_CHECKING:
    from dledger.security.settings import Security, Tls

OURS = new_authority()
NODE = tls_of(node_pair(OURS, "n0", group="b0"), OURS)
ALICE, ADMIN = (tls_of(user_pair(OURS, name), OURS) for name in ("alice", "admin"))
NODES = (BrokerNode("n0", "127.0.0.1:5"),)
GENUINE = Registration("b0", "c", 3, 1, "n0", NODES, (TopicQueues("orders", 8, 8, 6),), b"l" * 16)


def config_of(folder: Path, *, is_mutual: bool, **changes: Any) -> NameServerConfig:
    address = Address("127.0.0.1", choose_ports(1, None)[0])
    files = write_tls(folder / "certs", tls_of(node_pair(OURS, "ns0", group="nameserver"), OURS)) if is_mutual else None
    return NameServerConfig(
        address, files, is_mutual=is_mutual, administrators=(user_identity("admin"),) if is_mutual else (), **changes
    )


async def served(config: NameServerConfig, stack: AsyncExitStack) -> NameServerMetrics:
    """Serve a name server; return its metrics."""
    metrics = NameServerMetrics()
    await serve_name_server(config, stack, metrics, CollectorRegistry())
    return metrics


async def outcome(config: NameServerConfig, security: Security, method: str, request: Any) -> str:
    """Return the refusal of a call by the service or by the gate; empty: it was accepted."""
    async with open_aio_channel(str(config.address), security, CHANNEL_OPTIONS) as channel:
        try:
            response = await getattr(NameServerStub(channel), method)(request)
        except grpc.aio.AioRpcError as error:
            return error.code().name
    return response.answer.reason if hasattr(response, "answer") else ""


def lines_of(folder: Path, config: NameServerConfig, series: str) -> list[tuple[str, ...]]:
    name = str(config.address).replace(":", "_")
    lines = [json.loads(line) for line in (folder / "audit" / f"{name}-{series}.jsonl").open()]
    return [(each["user"], each["method"].partition("/")[2], *each["resources"], each["result"]) for each in lines]


@in_a_loop
async def test_closed_name_server_records_registrations_changes_and_refusals(tmp_path: Path) -> None:
    (tmp_path / "certs").mkdir()
    config = config_of(tmp_path, is_mutual=True, audit_directory=str(tmp_path / "audit"))
    full = register_request(GENUINE, GENUINE.topics)
    difference = register_request(replace(GENUINE, sequence=2), (), Extent(since_sequence=1))
    drain = pb.SetWritableRequest(broker="b0", is_writable=False)
    async with AsyncExitStack() as stack:
        await served(config, stack)
        assert await outcome(config, NODE, "Register", full) == ""
        assert await outcome(config, NODE, "Register", difference) == ""
        assert await outcome(config, ALICE, "Register", full) == "PERMISSION_DENIED"
        assert await outcome(config, ALICE, "SetWritable", drain) == "PERMISSION_DENIED"
        assert await outcome(config, ADMIN, "SetWritable", drain) == ""
        assert await outcome(config, ALICE, "Route", pb.RouteRequest(topics=["orders"])) == ""
        assert await outcome(config, NODE, "Register", register_request(replace(GENUINE, term=2), ())) == (
            "STALE_REGISTRATION"
        )
    node, alice, admin = "dledger://b0/node/n0", user_identity("alice").uri, user_identity("admin").uri
    assert lines_of(tmp_path, config, "admin") == [
        (node, "Register", "Broker:b0", "Node:n0", "OK"),
        (admin, "SetWritable", "Broker:b0", "OK"),
    ]
    assert lines_of(tmp_path, config, "refusals") == [
        (alice, "Register", "Broker:b0", "Node:n0", "ACCESS_DENIED"),
        (alice, "SetWritable", "Broker:b0", "ACCESS_DENIED"),
        (node, "Register", "Broker:b0", "Node:n0", "STALE_REGISTRATION"),
    ]


@in_a_loop
async def test_open_name_server_records_addresses(tmp_path: Path) -> None:
    config = config_of(tmp_path, is_mutual=False, audit_directory=str(tmp_path / "audit"))
    async with AsyncExitStack() as stack:
        await served(config, stack)
        assert await outcome(config, PLAIN, "Register", register_request(GENUINE, GENUINE.topics)) == ""
    assert lines_of(tmp_path, config, "admin") == [("", "Register", "Broker:b0", "Node:n0", "OK")]


@in_a_loop
async def test_name_server_without_a_directory_records_nothing(tmp_path: Path) -> None:
    config = config_of(tmp_path, is_mutual=False)
    async with AsyncExitStack() as stack:
        await served(config, stack)
        assert await outcome(config, PLAIN, "Register", register_request(GENUINE, GENUINE.topics)) == ""
    assert os.listdir(tmp_path) == []  # noqa: PTH208


def scraped(address: Address, shown: Tls) -> dict[str, float]:
    """Return the series of a page that demands a certificate, by name and labels."""
    context = ssl.create_default_context(cadata=shown.authority.decode())
    with TemporaryDirectory() as folder:
        files = write_tls(Path(folder) / "scraper", shown)
        context.load_cert_chain(files.certificate, files.key)
    with urllib.request.urlopen(f"https://{address}/metrics", timeout=PATIENCE_S, context=context) as page:
        lines = [line for line in page.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


@in_a_loop
async def test_page_shows_brokers_routes_refusals_and_certificates(tmp_path: Path) -> None:
    """Goal: every row of the table is counted. Method: a closed name server whose page demands a certificate, too."""
    (tmp_path / "certs").mkdir()
    page = Address("127.0.0.1", choose_ports(1, None)[0])
    config = config_of(tmp_path, is_mutual=True, audit_directory=str(tmp_path / "audit"), metrics_address=page)
    assert config.certificates is not None
    config = replace(config, metrics_tls=PortTls(config.certificates, is_mutual=True))
    full = register_request(GENUINE, GENUINE.topics)
    beat = pb.HeartbeatRequest(broker="b0", term=GENUINE.term, sequence=GENUINE.sequence, life=GENUINE.life)
    registry = CollectorRegistry()
    async with AsyncExitStack() as stack:
        await serve_name_server(config, stack, NameServerMetrics(registry), registry)
        assert await outcome(config, NODE, "Register", full) == ""
        assert await outcome(config, NODE, "Register", full) == ""
        assert await outcome(config, NODE, "Register", register_request(replace(GENUINE, term=2), ())) != ""
        assert await outcome(config, NODE, "Heartbeat", beat) == ""
        assert await outcome(config, ALICE, "Register", full) == "PERMISSION_DENIED"
        assert await outcome(config, ALICE, "Route", pb.RouteRequest(topics=["orders", "none"])) == ""
        with pytest.raises(OSError):
            await asyncio.to_thread(scraped, page, tls_of(user_pair(new_authority(), "alice"), OURS))
        found = await asyncio.to_thread(scraped, page, ALICE)
    assert {
        "dledger_nameserver_brokers": 1,
        "dledger_nameserver_topics": 1,
        "dledger_nameserver_dropped_brokers_total": 0,
        'dledger_nameserver_registrations_total{result="changed"}': 1,
        'dledger_nameserver_registrations_total{result="unchanged"}': 1,
        "dledger_nameserver_heartbeats_total": 1,
        "dledger_nameserver_routes_total": 2,
        'dledger_nameserver_refusals_total{reason="STALE_REGISTRATION"}': 1,
        'dledger_nameserver_refusals_total{reason="ACCESS_DENIED"}': 1,
        "dledger_nameserver_quota_refused_total": 0,
        'dledger_metrics_refused_connections_total{reason="handshake"}': 1,
    }.items() <= found.items()
    assert found['dledger_certificate_expiry_seconds{use="clients"}'] > 0
    assert found['dledger_certificate_expiry_seconds{use="metrics"}'] > 0
    assert found['dledger_nameserver_audit_lost_total{kind="admin"}'] == 0
    assert [] == [row.name for row in TABLE if not any(name.startswith(row.name) for name in found)]


@pytest.mark.parametrize("is_mutual", [False, True], ids=["open", "closed"])
@in_a_loop
async def test_client_above_its_quota_is_refused_and_certified_nodes_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_mutual: bool
) -> None:
    monkeypatch.setattr(cluster.server.gates, "Quotas", lambda settings, _: Quotas(settings, lambda: 1_000.0))
    (tmp_path / "certs").mkdir()
    config = config_of(tmp_path, is_mutual=is_mutual, quotas=QuotaSettings(quota_address_requests_per_s=2))
    route = pb.RouteRequest(topics=["orders"])
    async with AsyncExitStack() as stack:
        metrics = await served(config, stack)
        found = [await outcome(config, ALICE if is_mutual else PLAIN, "Route", route) for _ in range(5)]
        assert found == [""] * 3 + ["RESOURCE_EXHAUSTED"] * 2
        assert metrics.quota_refused == 2
        if is_mutual:
            registered = [
                await outcome(config, NODE, "Register", register_request(replace(GENUINE, sequence=number), ()))
                for number in range(1, 6)
            ]
            assert registered == [""] * 5
