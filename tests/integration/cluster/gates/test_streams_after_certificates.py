"""Idle streams of a log of raw entries after the certificate of their client was revoked, or has expired."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

import dledger.security.reloaded_file
from cluster.api.gates import call_audit
from dledger.client.failures import CHANNEL_OPTIONS
from dledger.errors import ResponseCode
from dledger.security.channels import open_aio_channel
from dledger.security.revoked import NOTHING_REVOKED, Revoked, text_of
from dledger.v1 import log_pb2
from dledger.v1.log_pb2_grpc import LogServiceStub
from tests.integration.cluster.gates.test_raw_log_rights import GROUP, METHODS, WRITER, RawNode, raw_node
from tests.support.certificates import user_identity
from tests.support.network.idle_streams import look_at_idle_streams_soon
from tests.support.waiting import in_a_loop

if TYPE_CHECKING:
    from pathlib import Path


async def appending(channel: grpc.aio.Channel) -> Any:
    stream = LogServiceStub(channel).AppendStream()
    while True:
        await stream.write(log_pb2.AppendRequest(group=GROUP, request_id=1, bodies=[b"x"]))
        # There may be no leader yet.
        if (await stream.read()).code == ResponseCode.SUCCESS:
            return stream


async def following(channel: grpc.aio.Channel) -> Any:
    stream = LogServiceStub(channel).Read(log_pb2.ReadRequest(group=GROUP, index=0, follow=True))
    assert (await stream.read()).code == ResponseCode.SUCCESS
    return stream


async def reflected(channel: grpc.aio.Channel) -> Any:
    stream = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
    await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    await stream.read()
    return stream


async def watching(channel: grpc.aio.Channel) -> Any:
    stream = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
    assert (await stream.read()).status
    return stream


# In this order: there is an entry to read after the append.
STREAMS = {"AppendStream": appending, "Read": following, "ServerReflectionInfo": reflected, "Watch": watching}


async def streams_of(node: RawNode, stack: AsyncExitStack) -> dict[str, Any]:
    channel = await stack.enter_async_context(open_aio_channel(node.address, WRITER, CHANNEL_OPTIONS))
    return {name: await opening(channel) for name, opening in STREAMS.items()}


async def assert_all_end(streams: dict[str, Any], text: str) -> None:
    for name, stream in streams.items():
        assert await stream.code() is grpc.StatusCode.UNAUTHENTICATED, name
        assert text in await stream.details(), name


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    look_at_idle_streams_soon(monkeypatch)
    monkeypatch.setattr(dledger.security.reloaded_file.ReloadedFile.watch, "__defaults__", (0.02,))


def test_the_streams_are_all_of_such_a_node() -> None:
    own = {path.rpartition("/")[2] for path, method in METHODS.items() if method.server_streaming}
    assert own | {"ServerReflectionInfo", "Watch"} == set(STREAMS)


@in_a_loop
async def test_each_idle_stream_ends_when_its_certificate_is_revoked(tmp_path: Path) -> None:
    file, new = tmp_path / "revoked", tmp_path / "new"
    file.write_text(text_of(NOTHING_REVOKED))
    async with raw_node(tmp_path, tls_revoked_file=str(file)) as node, AsyncExitStack() as stack:
        streams = await streams_of(node, stack)
        new.write_text(text_of(Revoked({user_identity("writer", GROUP).uri: datetime.now(UTC)})))
        new.rename(file)
        await assert_all_end(streams, "was revoked")


@in_a_loop
async def test_each_idle_stream_ends_when_its_certificate_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with raw_node(tmp_path) as node, AsyncExitStack() as stack:
        streams = await streams_of(node, stack)
        monkeypatch.setattr(call_audit, "wall_clock_s", lambda: 1e11)
        await assert_all_end(streams, "was valid until")
