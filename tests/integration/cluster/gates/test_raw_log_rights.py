"""A node of a log of raw entries with mutual TLS: each RPC by every kind of caller; quotas; audit."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client import CollectorRegistry, generate_latest
from typer.testing import CliRunner

import cluster.server.gates
import dledger.security.reloaded_file
from cluster.access.quotas import Quotas
from cluster.api.gates import call_audit
from cluster.cli.app import app
from cluster.config.load import load_config
from cluster.local.node import choose_ports
from cluster.server.node import serve_entries
from cluster.server.security import node_security
from dledger import LogClient, NotAppended
from dledger.client import AdminClient, AdminFailed, ReadFailed
from dledger.client.failures import CHANNEL_OPTIONS
from dledger.errors import ResponseCode
from dledger.metrics import NodeMetrics
from dledger.security.channels import open_aio_channel
from dledger.security.contexts import client_context
from dledger.security.revoked import NOTHING_REVOKED, Revoked, text_of
from dledger.security.settings import PLAIN, Tls
from dledger.v1 import admin_pb2, log_pb2
from dledger.v1.log_pb2_grpc import LogServiceStub
from tests.support.certificates import (
    new_authority,
    node_identity,
    node_pair,
    tls_of,
    user_identity,
    user_pair,
    write_tls,
)
from tests.support.network.frame_client import RawFrames, raw_frames
from tests.support.network.idle_streams import look_at_no_idle_stream
from tests.support.waiting import PATIENCE_S, in_a_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from dledger.config import Address
    from dledger.security.settings import Security

GROUP = "g"
OURS, FOREIGN = new_authority(), new_authority("a foreign authority")
ADMIN, WRITER, READER, OTHER = (
    tls_of(user_pair(OURS, name, group=GROUP), OURS) for name in ("admin", "writer", "reader", "other")
)
GUEST, UNTRUSTED = (tls_of(user_pair(OURS, name, group="h"), OURS) for name in ("guest", "untrusted"))
NODE, NODE_OF_OTHERS = (tls_of(node_pair(OURS, "n0", group=group), OURS) for group in (GROUP, "h"))
LISTS = {
    "log_administrators": user_identity("admin", GROUP).uri,
    "log_writers": f"{user_identity('writer', GROUP).uri}, {user_identity('guest', 'h').uri}",
    "log_readers": user_identity("reader", GROUP).uri,
}
DENIED = grpc.StatusCode.PERMISSION_DENIED
LOG, ADMINISTRATION = "/dledger.v1.LogService/", "/dledger.v1.AdminService/"
# By the name of the method: the callers that its row is for. A method that is not here fails the test.
WRITES, READS, SHOWS, CHANGES = {"writer", "guest"}, {"reader"}, {"writer", "reader", "guest"}, set[str]()
CALLERS = {
    LOG + "Append": WRITES,
    LOG + "AppendStream": WRITES,
    LOG + "Read": READS,
    LOG + "Status": SHOWS,
    ADMINISTRATION + "ListMembers": SHOWS,
    ADMINISTRATION + "AddMember": CHANGES,
    ADMINISTRATION + "PromoteMember": CHANGES,
    ADMINISTRATION + "RemoveMember": CHANGES,
    ADMINISTRATION + "TransferLeadership": CHANGES,
    ADMINISTRATION + "Watch": SHOWS,
}
IDENTITIES: dict[str, Security] = {
    "node": NODE,
    "admin": ADMIN,
    "writer": WRITER,
    "reader": READER,
    "guest": GUEST,
    "other": OTHER,
    "untrusted": UNTRUSTED,
    "node of another group": NODE_OF_OTHERS,
}
# Every service of a node of raw entries, by its descriptor.
METHODS = {
    f"/{service.full_name}/{method.name}": method
    for module in (log_pb2, admin_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


@dataclass
class RawNode:
    """Its addresses, its metrics, and the folder of its audit log."""

    address: str
    frames: Address
    registry: CollectorRegistry
    audit: Path

    def records(self, series: str) -> list[dict[str, Any]]:
        """Return the lines of the audit log; for after the node has ended."""
        return [json.loads(line) for line in (self.audit / f"n0-{series}.jsonl").open()]


@asynccontextmanager
async def raw_node(folder: Path, **settings: str) -> AsyncIterator[RawNode]:
    """Serve the only node of a group."""
    peers, clients, metrics, frames = choose_ports(4, None)
    files = write_tls(folder, NODE)
    given = {
        "group": GROUP,
        "self_id": "n0",
        "peers": f"n0-127.0.0.1:{peers}",
        "store_base_dir": str(folder / "data"),
        "client_address": f"127.0.0.1:{clients}",
        "frame_address": f"127.0.0.1:{frames}",
        "metrics_address": f"127.0.0.1:{metrics}",
        "client_tls": "mutual",
        "tls_certificate_file": str(files.certificate),
        "tls_key_file": str(files.key),
        "tls_authority_file": str(files.authority),
        "min_election_timeout_ms": "100",
        "max_election_timeout_ms": "200",
        "heart_beat_time_interval_ms": "20",
        "mapped_file_size_for_entry_data": str(1 << 20),
        "mapped_file_size_for_entry_index": str(32 * 1024),
    } | settings
    config = load_config(None, {}, given)
    registry = CollectorRegistry()
    async with AsyncExitStack() as stack:
        security = await node_security(config, registry, stack)
        await serve_entries(config, NodeMetrics(registry, GROUP, "n0"), registry, None, security, stack)
        assert config.frame_address is not None
        yield RawNode(str(config.node.client_address), config.frame_address, registry, folder / "data" / "audit")


async def outcome(address: str, security: Security, path: str) -> grpc.StatusCode | None:
    """Return how an empty request was refused; None: it reached the service, which answers it with a code."""
    while True:
        code = await outcome_of_one_call(address, security, path)
        # The client says so if the server ended the stream before the request was written.
        if code is not grpc.StatusCode.INTERNAL or not METHODS[path].client_streaming:
            return code


async def outcome_of_one_call(address: str, security: Security, path: str) -> grpc.StatusCode | None:
    """Return the same for one call; INTERNAL also if the client of gRPC has not written the request in time."""
    method = METHODS[path]
    sent, received = (GetMessageClass(each) for each in (method.input_type, method.output_type))
    kind = {(False, False): "unary_unary", (False, True): "unary_stream", (True, True): "stream_stream"}[
        (method.client_streaming, method.server_streaming)
    ]
    async with open_aio_channel(address, security, CHANNEL_OPTIONS) as channel:
        multi = getattr(channel, kind)(path, sent.SerializeToString, received.FromString)
        try:
            if kind == "unary_unary":
                await multi(sent(), timeout=PATIENCE_S)
                return None
            responses = multi([sent()] if kind == "stream_stream" else sent(), timeout=PATIENCE_S)
            async for response in responses:
                # The service itself refuses requests of this stream.
                return DENIED if response.code == ResponseCode.ACCESS_DENIED else None
        except grpc.aio.AioRpcError as error:
            return error.code()
    return None


async def framed_outcome(address: Address, security: Security, path: str) -> grpc.StatusCode | None:
    """Return the same for a call by frames."""
    assert isinstance(security, Tls)
    try:
        async with raw_frames(address, client_context(security)) as frames:
            answer = await frames.answer(1, path, b"")
    except (OSError, EOFError):
        return grpc.StatusCode.UNAVAILABLE
    return None if answer.detail == 0 else next(each for each in grpc.StatusCode if each.value[0] == answer.detail)


def test_every_rpc_of_a_raw_log_has_its_callers() -> None:
    assert set(METHODS) == set(CALLERS)


@in_a_loop
async def test_each_rpc_is_for_the_certificates_of_its_row(tmp_path: Path) -> None:
    """Goal: no RPC is open to more identities than its row. Method: every RPC with every identity."""
    async with raw_node(tmp_path, **LISTS) as node:
        for name, security in IDENTITIES.items():
            for path in METHODS:
                is_admitted = name in ("node", "admin") or name in CALLERS[path]
                assert await outcome(node.address, security, path) is (None if is_admitted else DENIED), (name, path)
    users = {each["user"] for each in node.records("refusals")}
    assert {UNTRUSTED_URI, "dledger://h/node/n0", "dledger://g/user/other", "dledger://g/user/writer"} <= users


UNTRUSTED_URI = user_identity("untrusted", "h").uri


@in_a_loop
async def test_each_method_by_frames_is_for_the_same_certificates_and_is_recorded(tmp_path: Path) -> None:
    """Goal: frames give no rights. Method: every method of the port with every identity, as on gRPC."""
    async with raw_node(tmp_path, audit="all", **LISTS) as node:
        async with raw_frames(node.frames, client_context(NODE)) as frames:
            framed = list(frames.methods)
        assert framed == [LOG + "Append", LOG + "Status"]
        for name, security in IDENTITIES.items():
            for path in framed:
                expected = await outcome(node.address, security, path)
                assert await framed_outcome(node.frames, security, path) is expected, (name, path)
        foreign = tls_of(node_pair(FOREIGN, "n0", group=GROUP), OURS)
        for untrusted in (Tls(OURS.certificate_pem()), foreign):
            assert await framed_outcome(node.frames, untrusted, LOG + "Append") is grpc.StatusCode.UNAVAILABLE
    seen = [
        (each["kind"], each["user"], each["method"], each["result"])
        for each in node.records("access")
        if each["method"] == "LogService/Append" and each["kind"] == "access"
    ]
    # Each admitted append is recorded twice: by gRPC, and by frames.
    assert seen
    assert all(seen.count(each) == 2 for each in seen)


@in_a_loop
async def test_without_lists_users_of_the_group_use_the_log_and_only_nodes_administer(tmp_path: Path) -> None:
    async with raw_node(tmp_path) as node:
        for name, security in IDENTITIES.items():
            is_ours = name in ("node", "admin", "writer", "reader", "other")
            for path, callers in CALLERS.items():
                is_admitted = name == "node" or (is_ours and callers is not CHANGES)
                assert await outcome(node.address, security, path) is (None if is_admitted else DENIED), (name, path)


@in_a_loop
async def test_untrusted_clients_get_no_connection(tmp_path: Path) -> None:
    untrusted: dict[str, Security] = {
        "plain": PLAIN,
        "no certificate": Tls(OURS.certificate_pem()),
        "a foreign authority": tls_of(node_pair(FOREIGN, "n0", group=GROUP), OURS),
        "an authority of the same name": tls_of(user_pair(new_authority(), "admin", group=GROUP), OURS),
        "expired": tls_of(node_pair(OURS, "n0", group=GROUP, is_expired=True), OURS),
    }
    async with raw_node(tmp_path, **LISTS) as node:
        for name, security in untrusted.items():
            for path in METHODS:
                assert await outcome(node.address, security, path) is grpc.StatusCode.UNAVAILABLE, (name, path)


def use(address: str, security: Security, what: str) -> Any:
    """Append, read or remove a member with the client of the log."""
    if what == "administer":
        with AdminClient(address, group=GROUP, security=security, deadline_s=PATIENCE_S) as admin:
            return admin.remove("n9")
    with LogClient(address, group=GROUP, security=security, deadline_s=PATIENCE_S) as log:
        return log.append(b"an entry") if what == "append" else [entry.body for entry in log.read(0, max_entries=1)]


@in_a_loop
async def test_clients_report_a_refusal_with_what_to_do(tmp_path: Path) -> None:
    async with raw_node(tmp_path, **LISTS) as node:

        async def refused(security: Security, what: str, error: type[Any]) -> str:
            with pytest.raises(error) as caught:
                await asyncio.to_thread(use, node.address, security, what)
            assert caught.value.code == ResponseCode.ACCESS_DENIED
            return str(caught.value)

        await asyncio.to_thread(use, node.address, WRITER, "append")
        assert b"an entry" in await asyncio.to_thread(use, node.address, READER, "read")
        assert "user reader of group g: lacks Pub on Cluster:g" in await refused(READER, "append", NotAppended)
        assert "lacks Sub on Cluster:g" in await refused(WRITER, "read", ReadFailed)
        text = await refused(WRITER, "administer", AdminFailed)
        assert "name it in log_administrators" in text
        assert "expected a certificate of a node of group 'g'" in await refused(UNTRUSTED, "append", NotAppended)
        with pytest.raises(AdminFailed) as caught:
            await asyncio.to_thread(use, node.address, ADMIN, "administer")
        assert caught.value.code == ResponseCode.UNKNOWN_MEMBER
    (line,) = [each for each in node.records("admin") if each["user"] == user_identity("admin", GROUP).uri]
    assert (line["method"], line["resources"], line["via"]) == ("AdminService/RemoveMember", ["Node:n9"], "certificate")


@in_a_loop
async def test_commands_show_a_refusal(tmp_path: Path) -> None:
    write_tls(tmp_path, NODE)
    user = tmp_path / "user"
    files = write_tls(user, WRITER)
    options = ["--tls-ca", str(files.authority), "--tls-cert", str(files.certificate), "--tls-key", str(files.key)]
    async with raw_node(tmp_path / "node", **LISTS) as node:
        command = ["members", "remove", "n9", "--endpoints", node.address, "--group", GROUP, *options]
        result = await asyncio.to_thread(CliRunner().invoke, app, command, input="y\n")
    assert result.exit_code == 1
    assert "user writer of group g: lacks" in result.output
    assert "log_administrators" in result.output


@in_a_loop
async def test_user_above_its_quota_is_refused_and_nodes_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A clock that does not move: one second's worth and one more is served.
    monkeypatch.setattr(cluster.server.gates, "Quotas", lambda settings, _: Quotas(settings, lambda: 1_000.0))
    quotas = {"quota_user_requests_per_s": "2"}
    async with raw_node(tmp_path, **LISTS, **quotas) as node:
        outcomes = [await outcome(node.address, WRITER, LOG + "Append") for _ in range(5)]
        assert outcomes == [None] * 3 + [grpc.StatusCode.RESOURCE_EXHAUSTED] * 2
        assert await outcome(node.address, GUEST, LOG + "Append") is None
        assert [await outcome(node.address, NODE, LOG + "Append") for _ in range(5)] == [None] * 5
        page = generate_latest(node.registry).decode()
    refused = next(line for line in page.splitlines() if line.startswith("dledger_quota_refused_total{"))
    assert float(refused.split()[-1]) == 2
    assert 'dledger_audit_lost_total{group="g",kind="admin",self_id="n0"} 0.0' in page


async def opened_frames(node: RawNode, stack: AsyncExitStack) -> dict[str, RawFrames]:
    return {
        name: await stack.enter_async_context(raw_frames(node.frames, client_context(security)))
        for name, security in {"writer": WRITER, "node": NODE, "reader": READER}.items()
    }


@in_a_loop
async def test_revoked_certificates_are_refused_by_every_rpc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a stolen certificate ends at once. Method: of a user and of a node, on connections that are open already.

    Health checks are refused, too, and streams that have begun end with their next request.
    """
    monkeypatch.setattr(dledger.security.reloaded_file.ReloadedFile.watch, "__defaults__", (0.01,))
    look_at_no_idle_stream(monkeypatch)
    file = tmp_path / "revoked"
    file.write_text(text_of(NOTHING_REVOKED))
    async with raw_node(tmp_path, tls_revoked_file=str(file)) as node:
        async with AsyncExitStack() as stack:
            channels = {
                name: await stack.enter_async_context(open_aio_channel(node.address, security, CHANNEL_OPTIONS))
                for name, security in {"writer": WRITER, "node": NODE, "reader": READER}.items()
            }

            async def status(name: str) -> str:
                try:
                    await LogServiceStub(channels[name]).Status(log_pb2.StatusRequest(), timeout=PATIENCE_S)
                except grpc.aio.AioRpcError as error:
                    return f"{error.code().name} {error.details()}"
                return ""

            framed = await opened_frames(node, stack)
            assert [await status(name) for name in channels] == ["", "", ""]
            assert [(await each.answer(1, LOG + "Status", b"")).detail for each in framed.values()] == [0, 0, 0]
            stream = LogServiceStub(channels["writer"]).AppendStream(timeout=PATIENCE_S)
            await stream.write(log_pb2.AppendRequest(group=GROUP, request_id=1, bodies=[b"x"]))
            # It may have no leader yet.
            assert (await stream.read()).code != ResponseCode.NOT_AUTHENTICATED

            now = datetime.now(UTC)
            new = tmp_path / "new"
            new.write_text(text_of(Revoked({user_identity("writer", GROUP).uri: now, NODE_URI: now})))
            new.rename(file)
            async with asyncio.timeout(PATIENCE_S):
                while not await status("node"):
                    pass
            for name in ("writer", "node"):
                assert "UNAUTHENTICATED the certificate of dledger://g/" in await status(name)
                answer = await framed[name].answer(2, LOG + "Status", b"")
                assert answer.detail == UNAUTHENTICATED.value[0]
                assert b"was revoked" in answer.payload
            assert await framed_outcome(node.frames, WRITER, LOG + "Append") is UNAUTHENTICATED
            assert (await framed["reader"].answer(2, LOG + "Status", b"")).detail == 0
            assert await status("reader") == ""
            await stream.write(log_pb2.AppendRequest(group=GROUP, request_id=2, bodies=[b"y"]))
            assert (await stream.read()).code == ResponseCode.NOT_AUTHENTICATED
            for path in METHODS:
                assert await outcome(node.address, WRITER, path) in (UNAUTHENTICATED, None), path
            health = health_pb2_grpc.HealthStub(channels["writer"])
            with pytest.raises(grpc.aio.AioRpcError, match="was revoked"):
                await health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
            page = generate_latest(node.registry).decode()
        assert "dledger_revoked_owners 2.0" in page
        assert "dledger_revoked_file_faulty 0.0" in page
    refused = node.records("refusals")
    assert any("was revoked" in each["detail"] for each in refused)


@in_a_loop
async def test_certificates_that_expire_are_refused_on_open_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By gRPC and by frames, for a new call and for the next request of a stream."""
    look_at_no_idle_stream(monkeypatch)
    async with raw_node(tmp_path) as node, AsyncExitStack() as stack:
        channel = await stack.enter_async_context(open_aio_channel(node.address, WRITER, CHANNEL_OPTIONS))
        framed = (await opened_frames(node, stack))["writer"]
        stream = LogServiceStub(channel).AppendStream(timeout=PATIENCE_S)
        await stream.write(log_pb2.AppendRequest(group=GROUP, request_id=1, bodies=[b"x"]))
        assert (await stream.read()).code != ResponseCode.NOT_AUTHENTICATED
        assert (await framed.answer(1, LOG + "Status", b"")).detail == 0

        monkeypatch.setattr(call_audit, "wall_clock_s", lambda: 1e11)

        with pytest.raises(grpc.aio.AioRpcError, match=r"was valid until .* renew it, and connect again"):
            await LogServiceStub(channel).Status(log_pb2.StatusRequest(), timeout=PATIENCE_S)
        answer = await framed.answer(2, LOG + "Status", b"")
        assert (answer.detail, b"was valid until" in answer.payload) == (UNAUTHENTICATED.value[0], True)
        await stream.write(log_pb2.AppendRequest(group=GROUP, request_id=2, bodies=[b"y"]))
        assert (await stream.read()).code == ResponseCode.NOT_AUTHENTICATED


NODE_URI = node_identity("n0", GROUP).uri
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
