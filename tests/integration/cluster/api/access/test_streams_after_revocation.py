"""Every stream of a broker's node after the rights of its user have ended: it ends, or refuses what comes next.

The tables below name every streaming RPC of every service, and what frames and the remoting protocol have in their
place; certificates are the subject of `test_streams_after_certificates.py`.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from cluster.access.access_keys import AccessKey, signature_of
from cluster.access.model import ALL_ACTIONS, Policy, resource_of
from cluster.access.users import ApiToken, UserSettings
from cluster.broker.core import wall_clock_ms
from cluster.remoting.command import RemotingCode
from cluster.rocketmq_v2 import messaging_pb2 as mq
from cluster.rocketmq_v2 import messaging_pb2_grpc
from cluster.state.access_commands import (
    AddAccessKey,
    AddApiToken,
    DeleteAccessKey,
    DeleteApiToken,
    DeleteUser,
    SetTokenKey,
    SetUser,
)
from cluster.v1 import broker_pb2 as pb
from cluster.v1 import broker_pb2_grpc
from dledger.authentication.tokens import Session, digest_of_api_token, session_token
from dledger.authentication.verifier import Verifier
from dledger.errors import ResponseCode
from dledger.frames.codec import TOKEN, encode_frame
from dledger.v1 import admin_pb2_grpc, log_pb2, log_pb2_grpc, watch_pb2
from tests.integration.cluster.api.access.test_access_control import ADMIN, KEY, TOKENS, as_user, bearer
from tests.support.brokers.fronted_node import fronted_node
from tests.support.brokers.remoting_peer import RemotingPeer
from tests.support.brokers.rocketmq_stub import resource
from tests.support.network.frame_client import raw_frames
from tests.support.network.idle_streams import look_at_idle_streams_soon
from tests.support.waiting import in_a_loop, until
from tests.unit.cluster.api.test_rights import methods

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from dledger.service.open_streams import OpenStreams
    from tests.support.brokers.fronted_node import FrontedNode
    from tests.support.network.frame_client import RawFrames

TOPIC, EMPTY, GROUP, SECRET = "orders", "later", "billing", "SK-of-the-app"
DENIED, UNKNOWN_CALLER = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED
VERIFIER = Verifier(b"a" * 16, 8_192, b"k" * 32, b"v" * 32)
# The administrator's rights are not the subject: it puts messages after the revocation.
APP = UserSettings("app", is_super=True, verifier=VERIFIER)
EVERYTHING = Policy(resource_of("*"), ALL_ACTIONS)
BROKER, LOG, NODES = "/cluster.v1.BrokerService/", "/dledger.v1.LogService/", "/dledger.v1.AdminService/"
MESSAGING, HEALTH = "/apache.rocketmq.v2.MessagingService/", "/grpc.health.v1.Health/"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
WAITING = pb.GetRequest(topic=EMPTY, wait_ms=20_000)
SESSION_S = 2
BODIES, BODY_SIZE = 8, 200_000
# A client that does not read takes 64 KiB, so that a stream of more waits for it.
SMALL_WINDOW = [("grpc.http2.bdp_probe", 0)]

# The commands of each kind, and the code with which streams end. Time passes without a command.
EXPIRY = "its session expires"
KINDS: dict[str, tuple[tuple[Any, ...], grpc.StatusCode]] = {
    "its user is deleted": ((DeleteUser("app"),), UNKNOWN_CALLER),
    "its user is disabled": ((SetUser(replace(APP, is_enabled=False)),), UNKNOWN_CALLER),
    "its password changes": ((SetUser(replace(APP, verifier=replace(VERIFIER, salt=b"b" * 16))),), UNKNOWN_CALLER),
    EXPIRY: ((), UNKNOWN_CALLER),
    "its token is deleted": ((DeleteApiToken("app", "test"),), UNKNOWN_CALLER),
    "its access key is deleted": ((DeleteAccessKey("app", "AK"),), UNKNOWN_CALLER),
    "its rules are removed": ((SetUser(replace(APP, is_super=False)),), DENIED),
    "a rule denies it": (
        (SetUser(replace(APP, is_super=False, policies=(replace(EVERYTHING, is_allowed=False), EVERYTHING))),),
        DENIED,
    ),
}
RULES = {"its rules are removed", "a rule denies it"}
SESSIONS = {"its password changes", EXPIRY}


@dataclass
class Callers:
    """Clients of all ports of a node: of the user `app` with a credential, and of the administrator."""

    node: FrontedNode
    metadata: list[tuple[str, str]]
    signed: list[tuple[str, str]]
    channel: grpc.aio.Channel
    front: grpc.aio.Channel

    @property
    def broker(self) -> Any:
        return broker_pb2_grpc.BrokerServiceStub(self.channel)

    async def put(self, body: bytes, topic: str = TOPIC) -> None:
        """Put a message as the administrator."""
        request = pb.PutRequest(topic=topic, queue_ids=[0], bodies=[body])
        assert not (await self.broker.Put(request, metadata=as_user("admin"))).answer.reason


async def put_stream(callers: Callers) -> Any:
    stream = callers.broker.PutStream(metadata=callers.metadata)
    await stream.write(pb.PutRequest(topic=TOPIC, queue_ids=[0], bodies=[b"x"], request_id=1))
    assert not (await stream.read()).answer.reason
    return stream


async def subscribe(callers: Callers) -> Any:
    end = (await callers.broker.Get(pb.GetRequest(topic=TOPIC), metadata=callers.metadata)).max_offset
    request = pb.SubscribeRequest(topic=TOPIC, queue_ids=[1], offsets=[0])
    assert end
    stream = callers.broker.Subscribe(request, metadata=callers.metadata)
    await stream.read()
    return stream


async def read_log(callers: Callers) -> Any:
    """Read the first of many chunks: the client does not take the others."""
    request = pb.ReadLogRequest(topic=TOPIC, end=BODIES, chunk_bytes=1 << 16)
    stream = callers.broker.ReadLog(request, metadata=callers.metadata)
    assert not (await stream.read()).answer.reason
    return stream


async def join_group(callers: Callers) -> Any:
    stream = callers.broker.JoinGroup(metadata=callers.metadata)
    subscriptions = [pb.Subscription(topic=TOPIC, tags="*")]
    await stream.write(pb.JoinGroupRequest(group=GROUP, client_id="c", subscriptions=subscriptions))
    assert not (await stream.read()).answer.reason
    return stream


async def transaction_checks(callers: Callers) -> Any:
    request = pb.TransactionChecksRequest(producer_group="PG", topics=[TOPIC])
    return callers.broker.TransactionChecks(request, metadata=callers.metadata)


async def append_stream(callers: Callers) -> Any:
    stream = log_pb2_grpc.LogServiceStub(callers.channel).AppendStream(metadata=callers.metadata)
    await stream.write(log_pb2.AppendRequest(bodies=[b"x"]))
    # A log of messages takes no entries of clients; the stream stays open.
    assert (await stream.read()).code
    return stream


async def follow_log(callers: Callers) -> Any:
    stub = log_pb2_grpc.LogServiceStub(callers.channel)
    stream = stub.Read(log_pb2.ReadRequest(group="test", index=0, follow=True), metadata=callers.metadata)
    assert (await stream.read()).code == ResponseCode.SUCCESS
    return stream


async def watch_node(callers: Callers) -> Any:
    stub = admin_pb2_grpc.AdminServiceStub(callers.channel)
    stream = stub.Watch(watch_pb2.WatchRequest(group="test"), metadata=callers.metadata)
    assert (await stream.read()).code == ResponseCode.SUCCESS
    return stream


async def reflection(callers: Callers) -> Any:
    stub = reflection_pb2_grpc.ServerReflectionStub(callers.channel)
    stream = stub.ServerReflectionInfo(metadata=callers.metadata)
    await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    await stream.read()
    return stream


async def watch(callers: Callers) -> Any:
    stream = health_pb2_grpc.HealthStub(callers.channel).Watch(health_pb2.HealthCheckRequest())
    assert (await stream.read()).status
    return stream


async def telemetry(callers: Callers) -> Any:
    stream = messaging_pb2_grpc.MessagingServiceStub(callers.front).Telemetry(metadata=callers.signed)
    settings = mq.Settings(client_type=mq.PRODUCER, publishing=mq.Publishing(topics=[resource(TOPIC)]))
    await stream.write(mq.TelemetryCommand(settings=settings))
    assert (await stream.read()).status.code == mq.OK
    return stream


# How each stream is opened, so that it waits for its client or for messages.
OPENED: dict[str, Callable[[Callers], Awaitable[Any]]] = {
    BROKER + "PutStream": put_stream,
    BROKER + "Subscribe": subscribe,
    BROKER + "ReadLog": read_log,
    BROKER + "JoinGroup": join_group,
    BROKER + "TransactionChecks": transaction_checks,
    LOG + "AppendStream": append_stream,
    LOG + "Read": follow_log,
    NODES + "Watch": watch_node,
    REFLECTION: reflection,
    HEALTH + "Watch": watch,
    MESSAGING + "Telemetry": telemetry,
}
# One response after a wait: no message is given. PullMessage is not served.
HELD = {MESSAGING + "ReceiveMessage", MESSAGING + "PullMessage"}


def stays(path: str, kind: str) -> bool:
    """Return whether a stream is not affected, or refuses each request for itself."""
    if path == HEALTH + "Watch":
        return True
    if path == MESSAGING + "Telemetry":
        # Access keys are credentials of their own.
        return kind in SESSIONS or kind == "its token is deleted"
    if kind == "its access key is deleted":
        return True
    # Each user may ask for reflection; a stream of puts may be about other topics.
    return kind in RULES and path in (REFLECTION, BROKER + "PutStream")


@asynccontextmanager
async def opened(folder: Path, kind: str = "") -> AsyncIterator[Callers]:
    """Serve a node with the user `app`, and connect to it with the credential that ends in this way."""
    async with (
        fronted_node(folder) as node,
        grpc.aio.insecure_channel(str(node.address), SMALL_WINDOW) as channel,
        grpc.aio.insecure_channel(str(node.rocketmq)) as front,
    ):
        callers = Callers(node, [], [], channel, front)
        for name in (TOPIC, EMPTY):
            topic = pb.Topic(name=name, read_queues=2, write_queues=2, permission=6)
            await callers.broker.SetTopic(pb.SetTopicRequest(topic=topic))
        for name, settings in (("admin", ADMIN), ("app", APP)):
            token = ApiToken("test", digest_of_api_token(TOKENS["writer" if name == "app" else name]) or b"")
            await node.change(SetUser(settings), AddApiToken(name, token))
        await node.change(SetTokenKey(KEY), AddAccessKey(AccessKey("AK", "app", SECRET)))
        callers.metadata = as_user("writer") if kind == "its token is deleted" else session_of(node)
        callers.signed = signed_metadata()
        for _ in range(BODIES):
            await callers.put(b"x" * BODY_SIZE)
        yield callers


async def end_of(stream: Any) -> grpc.StatusCode | None:
    """Return how a stream has ended, after the responses that are on their way."""
    try:
        while await stream.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return error.code()
    return None


def session_of(node: FrontedNode) -> list[tuple[str, str]]:
    epoch = node.broker.core.replica.state.access.users["app"].epoch
    # The clock does not run, so that a slow machine does not end the session.
    begin_s = wall_clock_ms() // 1_000
    node.broker._gate.clock_s = lambda: begin_s
    return bearer(session_token(Session("app", epoch, begin_s + SESSION_S), KEY))


def signed_metadata() -> list[tuple[str, str]]:
    date = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    value = (
        f"MQv2-HMAC-SHA1 Credential=AK, SignedHeaders=x-mq-date-time, "
        f"Signature={signature_of(SECRET, date.encode()).hex()}"
    )
    return [("x-mq-client-id", "c"), ("authorization", value), ("x-mq-date-time", date)]


async def revoke(node: FrontedNode, kind: str) -> None:
    commands, _ = KINDS[kind]
    if not commands:
        begin_s = node.broker._gate.clock_s()
        node.broker._gate.clock_s = lambda: begin_s + SESSION_S
    await node.change(*commands)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[OpenStreams]:
    """Return the open streams of each server that starts, which are looked at often."""
    return look_at_idle_streams_soon(monkeypatch)


def test_the_tables_name_every_streaming_rpc_of_all_services() -> None:
    every = dict(methods())
    messaging = mq.DESCRIPTOR.services_by_name["MessagingService"]
    every |= {f"/{messaging.full_name}/{method.name}": method for method in messaging.methods}
    streaming = {path for path, method in every.items() if method.client_streaming or method.server_streaming}
    assert streaming == set(OPENED) | HELD


@pytest.mark.parametrize("kind", KINDS)
@in_a_loop
async def test_each_idle_stream_ends_soon_after(tmp_path: Path, watched: list[OpenStreams], kind: str) -> None:
    """Method: open every stream, revoke, and wait for the end of each without another request or message."""
    async with opened(tmp_path, kind) as callers:
        streams: dict[str, Any] = {}
        for path, opening in OPENED.items():
            before = sum(map(len, watched))
            streams[path] = await opening(callers)
            await until(lambda before=before: sum(map(len, watched)) > before, f"{path} has begun")
        await revoke(callers.node, kind)
        _, code = KINDS[kind]
        for path, stream in streams.items():
            if not stays(path, kind):
                # A response of ReadLog is on its way, so gRPC has no status to send after it.
                expected = {code, grpc.StatusCode.CANCELLED} if path == BROKER + "ReadLog" else {code}
                assert await end_of(stream) in expected, path
        for path, stream in streams.items():
            assert stream.done() is not stays(path, kind), path
            stream.cancel()


@pytest.mark.parametrize("kind", sorted(RULES))
@in_a_loop
async def test_a_stream_of_puts_refuses_each_later_request(tmp_path: Path, kind: str) -> None:
    async with opened(tmp_path) as callers:
        stream = await put_stream(callers)
        await revoke(callers.node, kind)
        await stream.write(pb.PutRequest(topic=TOPIC, queue_ids=[0], bodies=[b"y"], request_id=2))
        assert (await stream.read()).answer.reason == "ACCESS_DENIED"
        stream.cancel()


async def by_grpc(callers: Callers) -> tuple[Any, int]:
    """Wait for a message of the empty topic; return the refusal, and the number of messages."""
    try:
        found = await callers.broker.Get(WAITING, metadata=callers.metadata)
    except grpc.aio.AioRpcError as error:
        return error.code(), 0
    return None, len(found.columns.bodies)


async def by_frames(frames: RawFrames) -> tuple[Any, int]:
    answer = await frames.answer(1, BROKER + "Get", WAITING)
    if answer.detail:
        return next(each for each in grpc.StatusCode if each.value[0] == answer.detail), 0
    return None, len(pb.GetResponse.FromString(answer.payload).columns.bodies)


async def received(callers: Callers) -> tuple[Any, int]:
    request = mq.ReceiveMessageRequest(
        group=resource(GROUP), message_queue=mq.MessageQueue(topic=resource(EMPTY)), batch_size=8
    )
    request.invisible_duration.seconds, request.long_polling_timeout.seconds = 30, 20
    stub = messaging_pb2_grpc.MessagingServiceStub(callers.front)
    given = [each async for each in stub.ReceiveMessage(request, metadata=callers.signed, timeout=40)]
    codes = {mq.UNAUTHORIZED: UNKNOWN_CALLER, mq.FORBIDDEN: DENIED, mq.OK: None}
    return codes[given[0].status.code], sum(each.HasField("message") for each in given)


async def pulled(peer: RemotingPeer) -> tuple[Any, int]:
    place = {"consumerGroup": GROUP, "topic": EMPTY, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32}
    hold = {"sysFlag": 6, "suspendTimeoutMillis": 20_000}
    found = await peer.ask(11, **place, **hold, commitOffset=0, subscription="*", subVersion=0)
    return {RemotingCode.NO_PERMISSION: DENIED, RemotingCode.SUCCESS: None}[found.code], bool(found.body)


@pytest.mark.parametrize("kind", KINDS)
@in_a_loop
async def test_what_waits_for_a_message_gets_none_after(tmp_path: Path, kind: str) -> None:
    """Method: wait for a message at each port, revoke, and put it: those that were not revoked get it."""
    async with opened(tmp_path, kind) as callers, raw_frames(callers.node.frames) as frames:
        node, code = callers.node, KINDS[kind][1]
        frames.send(encode_frame(TOKEN, callers.metadata[0][1].removeprefix("Bearer ").encode()))
        async with RemotingPeer(str(node.remoting), "AK", SECRET) as peer:
            ports = {"gRPC": by_grpc(callers), "frames": by_frames(frames)}
            fronts = {"ReceiveMessage": received(callers), "remoting": pulled(peer)}
            tasks = {name: asyncio.create_task(work) for name, work in (ports | fronts).items()}
            store = node.broker.core.replica.store
            await until(lambda: store.waiters_count >= len(tasks), lambda: f"{store.waiters_count} wait: {tasks}")
            await revoke(node, kind)
            await callers.put(b"given", EMPTY)
            found = {name: await task for name, task in tasks.items()}
        is_of_key = not stays(MESSAGING + "Telemetry", kind)
        is_of_token = kind != "its access key is deleted"
        for name, is_revoked in (("gRPC", is_of_token), ("frames", is_of_token), ("ReceiveMessage", is_of_key)):
            assert found[name] == ((code, 0) if is_revoked else (None, 1)), name
        # A client of the remoting protocol knows one refusal.
        assert found["remoting"] == ((DENIED, 0) if is_of_key else (None, 1))
