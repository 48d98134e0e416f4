"""Audit log and quotas of name servers, closed and open: registrations, changes by administrators, refusals."""

from __future__ import annotations

import json
import os
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

import cluster.server.gates
from cluster.access.quotas import Quotas
from cluster.config.quotas import QuotaSettings
from cluster.local.node import choose_ports
from cluster.protocol.route_table import BrokerNode, Extent, Registration, TopicQueues
from cluster.protocol.wire.routes import register_request
from cluster.server.name_server import NameServerConfig, QuotaRefusals, serve_name_server
from cluster.v1 import nameserver_pb2 as pb
from cluster.v1.nameserver_pb2_grpc import NameServerStub
from dledger.client.failures import CHANNEL_OPTIONS
from dledger.config import Address
from dledger.security.channels import open_aio_channel
from dledger.security.settings import PLAIN
from tests.support.certificates import new_authority, node_pair, tls_of, user_identity, user_pair, write_tls
from tests.support.waiting import in_a_loop

if TYPE_CHECKING:
    from pathlib import Path

    from dledger.security.settings import Security

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
        await serve_name_server(config, stack)
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
    assert lines_of(tmp_path, config, "access") == [
        (alice, "Register", "Broker:b0", "Node:n0", "ACCESS_DENIED"),
        (alice, "SetWritable", "Broker:b0", "ACCESS_DENIED"),
        (node, "Register", "Broker:b0", "Node:n0", "STALE_REGISTRATION"),
    ]


@in_a_loop
async def test_open_name_server_records_addresses(tmp_path: Path) -> None:
    config = config_of(tmp_path, is_mutual=False, audit_directory=str(tmp_path / "audit"))
    async with AsyncExitStack() as stack:
        await serve_name_server(config, stack)
        assert await outcome(config, PLAIN, "Register", register_request(GENUINE, GENUINE.topics)) == ""
    assert lines_of(tmp_path, config, "admin") == [("", "Register", "Broker:b0", "Node:n0", "OK")]


@in_a_loop
async def test_name_server_without_a_directory_records_nothing(tmp_path: Path) -> None:
    config = config_of(tmp_path, is_mutual=False)
    async with AsyncExitStack() as stack:
        await serve_name_server(config, stack)
        assert await outcome(config, PLAIN, "Register", register_request(GENUINE, GENUINE.topics)) == ""
    assert os.listdir(tmp_path) == []  # noqa: PTH208


@pytest.mark.parametrize("is_mutual", [False, True], ids=["open", "closed"])
@in_a_loop
async def test_client_above_its_quota_is_refused_and_certified_nodes_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_mutual: bool
) -> None:
    monkeypatch.setattr(cluster.server.gates, "Quotas", lambda settings, _: Quotas(settings, lambda: 1_000.0))
    (tmp_path / "certs").mkdir()
    config = config_of(tmp_path, is_mutual=is_mutual, quotas=QuotaSettings(quota_address_requests_per_s=2))
    refusals = QuotaRefusals()
    route = pb.RouteRequest(topics=["orders"])
    async with AsyncExitStack() as stack:
        await serve_name_server(config, stack, refusals)
        found = [await outcome(config, ALICE if is_mutual else PLAIN, "Route", route) for _ in range(5)]
        assert found == [""] * 3 + ["RESOURCE_EXHAUSTED"] * 2
        assert refusals.count == 2
        if is_mutual:
            registered = [
                await outcome(config, NODE, "Register", register_request(replace(GENUINE, sequence=number), ()))
                for number in range(1, 6)
            ]
            assert registered == [""] * 5
