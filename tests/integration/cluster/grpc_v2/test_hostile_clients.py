"""Strangers at the port for official clients of a real node: others are served, nothing is stored, memory is bounded.

The port has the server and the guard of our own services, whose attacks are in `tests/integration/dledger/service`.
Here are those against what differs: its methods, its options, its callers, and the bodies that it decompresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import lz4.frame
import pytest
import zstandard
from google.protobuf.message_factory import GetMessageClass

from cluster.access.access_keys import AccessKey, signature_of
from cluster.access.users import UserSettings
from cluster.fronts import callers
from cluster.remoting.command import RemotingCode
from cluster.rocketmq_v2 import messaging_pb2 as mq
from cluster.state.access_commands import AddAccessKey, SetTokenKey, SetUser
from cluster.v1 import broker_pb2 as pb
from cluster.v1 import broker_pb2_grpc
from tests.integration.cluster.api.access.test_access_control import ADMIN, KEY, naming_a_topic
from tests.integration.dledger.service.test_hostile_frames import (
    HOSTILE,
    header,
    largest_memory_kib,
    message,
    reset_largest_memory,
    send,
)
from tests.support.brokers.fronted_node import fronted_node
from tests.support.brokers.remoting_peer import RemotingPeer
from tests.support.brokers.rocketmq_stub import resource
from tests.support.network.http2 import DATA, END_HEADERS, END_STREAM, HEADERS, frame, headers_of, opening, reset_calls
from tests.support.waiting import PATIENCE_S, in_a_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.support.brokers.fronted_node import FrontedNode

TOPIC = "orders"
SERVICE = mq.DESCRIPTOR.services_by_name["MessagingService"]
METHODS = {f"/{SERVICE.full_name}/{method.name}": method for method in SERVICE.methods}
SEND = f"/{SERVICE.full_name}/SendMessage"
HEARTBEAT = f"/{SERVICE.full_name}/Heartbeat"
# No official client uses them.
NOT_SERVED = {"PullMessage", "UpdateOffset", "GetOffset", "QueryOffset", "SyncLiteSubscription"}
# They are about the client itself, and answer nothing of others.
OF_THE_CLIENT = {"NotifyClientTermination"}
SECRETS = {"AK0": "secret-of-the-admin", "AK1": "secret-of-no-rights"}
BOMB = 256 << 20
GROWTH_KIB_MAX = 96 << 10


def metadata(key: str = "", secret: str = "", *, date: datetime | None = None) -> list[tuple[str, str]]:
    """Return the metadata that an official client sends with each call; without a key it is anonymous."""
    own = [("x-mq-client-id", "c")]
    if not key:
        return own
    text = (date or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    signed = signature_of(secret, text.encode()).hex()
    value = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={signed}"
    return [*own, ("authorization", value), ("x-mq-date-time", text)]


def changed(given: list[tuple[str, str]], name: str, value: str) -> list[tuple[str, str]]:
    return [(each, value if each == name else old) for each, old in given]


def strangers() -> dict[str, list[tuple[str, str]]]:
    """Return callers that are not those of a valid access key, by what is wrong."""
    right, now = metadata("AK0", SECRETS["AK0"]), datetime.now(UTC)
    return {
        "anonymous": metadata(),
        "unknown key": metadata("AK9", "secret-of-nothing"),
        "wrong secret": metadata("AK0", SECRETS["AK1"]),
        "key of another signature": changed(right, "authorization", right[1][1].replace("AK0", "AK1")),
        "signature of another date": changed(right, "x-mq-date-time", f"{now + timedelta(hours=1):%Y%m%dT%H%M%SZ}"),
        "old date": metadata("AK0", SECRETS["AK0"], date=now - timedelta(days=2)),
        "future date": metadata("AK0", SECRETS["AK0"], date=now + timedelta(days=2)),
        "no date": [each for each in right if each[0] != "x-mq-date-time"],
        "no hexadecimal": changed(right, "authorization", right[1][1][:-4] + "zzzz"),
        # Clients add the headers of a repeated call to those before, so the last one counts.
        "wrong signature after a right one": [*right, metadata("AK0", SECRETS["AK1"])[1]],
        "token of our own services": [*metadata(), ("authorization", "Bearer dla1_wrong")],
        "long": changed(right, "authorization", right[1][1] + " " * 4_000),
    }


@contextlib.asynccontextmanager
async def node_in(folder: Path, *, has_users: bool = True) -> AsyncIterator[FrontedNode]:
    async with fronted_node(folder) as node, grpc.aio.insecure_channel(str(node.address)) as channel:
        topic = pb.Topic(name=TOPIC, read_queues=1, write_queues=1, permission=6)
        await broker_pb2_grpc.BrokerServiceStub(channel).SetTopic(pb.SetTopicRequest(topic=topic))
        if has_users:
            await node.change(SetUser(ADMIN), SetUser(UserSettings("nothing")), SetTokenKey(KEY))
            for key, user in (("AK0", "admin"), ("AK1", "nothing")):
                await node.change(AddAccessKey(AccessKey(key, user, SECRETS[key])))
        yield node


def stored(node: FrontedNode) -> tuple[list[str], int]:
    """Return the topics, and the number of messages."""
    replica = node.broker.core.replica
    return sorted(replica.state.topics), replica.store.get(TOPIC, 0, 0, 1, 1, "*").max_offset


async def outcome(channel: grpc.aio.Channel, path: str, given: list[tuple[str, str]]) -> str:
    """Return how a request that names the topic, and is else empty, is answered by a method."""
    method = METHODS[path]
    request = naming_a_topic(GetMessageClass(method.input_type)())
    kind = ("stream" if method.client_streaming else "unary") + "_" + ("stream" if method.server_streaming else "unary")
    response = GetMessageClass(method.output_type)
    call = getattr(channel, kind)(path, type(request).SerializeToString, response.FromString)
    sent = iter([request]) if method.client_streaming else request
    called = call(sent, metadata=given, timeout=PATIENCE_S)
    try:
        found = await called.read() if method.server_streaming else await called
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    return "EOF" if found is grpc.aio.EOF else str(mq.Code.Name(found.status.code))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The delay after wrong signatures, and their number from an address, are not what is tested."""
    monkeypatch.setattr(callers.LoginFailures, "note", lambda *_: 0.0)
    monkeypatch.setattr(callers.LoginFailures, "may_try", lambda *_: True)


@in_a_loop
async def test_no_rpc_is_served_to_a_stranger(tmp_path: Path, quick: None) -> None:
    """Method: every RPC of the service with every kind of wrong credentials."""
    del quick
    async with node_in(tmp_path) as node, grpc.aio.insecure_channel(str(node.rocketmq)) as channel:
        before = stored(node)
        for name, given in strangers().items():
            for path in METHODS:
                expected = {"UNAUTHORIZED", "UNAUTHENTICATED"}
                if path.rpartition("/")[2] in NOT_SERVED:
                    expected = {"UNIMPLEMENTED"}
                assert await outcome(channel, path, given) in expected, (name, path)
        assert stored(node) == before


@in_a_loop
async def test_no_rpc_is_served_to_a_user_without_rights_and_a_super_user_reaches_all(
    tmp_path: Path, quick: None
) -> None:
    """Method: the same requests with the key of a user without rights, and as a control with an administrator's."""
    del quick
    refused = {"FORBIDDEN", "PERMISSION_DENIED"}
    async with node_in(tmp_path) as node, grpc.aio.insecure_channel(str(node.rocketmq)) as channel:
        served = set()
        for path in METHODS:
            name = path.rpartition("/")[2]
            by_nobody = await outcome(channel, path, metadata("AK1", SECRETS["AK1"]))
            by_admin = await outcome(channel, path, metadata("AK0", SECRETS["AK0"]))
            assert by_admin not in {*refused, "UNAUTHORIZED", "UNAUTHENTICATED"}, name
            if name not in NOT_SERVED and by_nobody not in refused:
                served.add((name, by_nobody, by_admin))
        assert {name for name, by_nobody, _ in served if by_nobody == "OK"} == OF_THE_CLIENT
        # The others are refused for their own faults, before the leader would decide about rights.
        assert all(by_nobody == by_admin for _, by_nobody, by_admin in served)


async def still_serves(node: FrontedNode) -> None:
    async with grpc.aio.insecure_channel(str(node.rocketmq)) as channel:
        assert await outcome(channel, HEARTBEAT, metadata()) == "OK"


def hostile() -> Iterator[tuple[str, bytes]]:
    """Yield the bytes that a stranger sends, by name."""
    for name, sent in HOSTILE.items():
        yield name, sent.replace(b"/dledger.v1.LogService/Append", SEND.encode()) if name != "no protobuf" else sent
    # An unknown field of groups in groups, and known messages of another length than they say.
    for name, body in (
        ("nested groups", b"\xfb\x07" * 100_000),
        ("nested messages", b"\x0a\x7f" * 100_000),
        ("length that overflows", b"\x0a" + b"\xff" * 9 + b"\x01"),
    ):
        call = frame(HEADERS, END_HEADERS, 1, headers_of(SEND)) + frame(DATA, 0, 1, message(body, is_compressed=False))
        yield name, opening() + call
    yield "ten thousand resets", opening() + reset_calls(1, 10_000, SEND)


@in_a_loop
async def test_hostile_frames_end_only_their_own_connection(tmp_path: Path) -> None:
    async with node_in(tmp_path, has_users=False) as node:
        before = stored(node)
        for name, sent in hostile():
            await asyncio.to_thread(send, node.rocketmq, sent)
            await still_serves(node)
            assert stored(node) == before, name


@in_a_loop
async def test_half_greetings_and_calls_without_a_request_leave_others_served(tmp_path: Path) -> None:
    async with node_in(tmp_path, has_users=False) as node, contextlib.AsyncExitStack() as stack:
        call = frame(HEADERS, END_HEADERS, 1, headers_of(SEND))
        for sent in [opening()[:10]] * 60 + [opening() + call] * 60:
            _, writer = await asyncio.open_connection(node.rocketmq.host, node.rocketmq.port)
            stack.callback(writer.close)
            writer.write(sent)
        await still_serves(node)


@in_a_loop
async def test_a_request_is_as_large_as_its_decompressed_bytes(tmp_path: Path) -> None:
    """256 MiB of zeros are 256 KiB on the wire."""
    compress = zlib.compressobj(9, wbits=31)
    bomb = b"".join([*(compress.compress(bytes(1 << 20)) for _ in range(BOMB >> 20)), compress.flush()])
    data = message(bomb, is_compressed=True)
    pieces = [data[begin : begin + 16_384] for begin in range(0, len(data), 16_384)]
    head = frame(HEADERS, END_HEADERS, 1, headers_of(SEND) + header(b"grpc-encoding", b"gzip"))
    sent = opening() + head + b"".join(frame(DATA, 0, 1, each) for each in pieces) + frame(DATA, END_STREAM, 1)
    async with node_in(tmp_path, has_users=False) as node:
        await still_serves(node)
        reset_largest_memory()
        before_kib = largest_memory_kib()
        await asyncio.to_thread(send, node.rocketmq, sent)
        await still_serves(node)
        assert largest_memory_kib() - before_kib < GROWTH_KIB_MAX


def bombs() -> dict[str, tuple[int, bytes]]:
    """Return bodies of 256 MiB of zeros, with the flags that RocketMQ's clients send."""
    zeros = bytes(BOMB)
    return {
        "zlib": (1 | 3 << 8, zlib.compress(zeros)),
        "lz4": (1 | 1 << 8, lz4.frame.compress(zeros)),
        "zstd": (1 | 2 << 8, zstandard.ZstdCompressor().compress(zeros)),
    }


@in_a_loop
async def test_bodies_that_expand_are_stored_as_they_are_and_take_no_memory_where_they_are_given(
    tmp_path: Path,
) -> None:
    """Method: send a bomb of each codec by the remoting protocol, and one message after them; receive by gRPC."""
    made = bombs()
    async with node_in(tmp_path, has_users=False) as node, RemotingPeer(str(node.remoting)) as peer:
        for flags, body in made.values():
            fields = {"a": "PG", "b": TOPIC, "c": "TBW102", "d": 4, "e": 0, "f": flags, "g": 1, "h": 0, "i": "", "j": 0}
            assert (await peer.ask(310, body, **fields)).code == RemotingCode.SUCCESS
        assert (await peer.send(TOPIC, b"good")).code == RemotingCode.SUCCESS
        del fields
        reset_largest_memory()
        before_kib = largest_memory_kib()
        async with grpc.aio.insecure_channel(str(node.rocketmq)) as channel:
            assert [each.body for each in await received(channel)] == [b"good"]
        grown_kib = largest_memory_kib() - before_kib
        print(f"the largest memory of the process grew by {grown_kib} KiB")
        assert grown_kib < GROWTH_KIB_MAX


async def received(channel: grpc.aio.Channel) -> list[Any]:
    request = mq.ReceiveMessageRequest(
        group=resource("G"), message_queue=mq.MessageQueue(topic=resource(TOPIC)), batch_size=32
    )
    request.invisible_duration.seconds, request.long_polling_timeout.seconds = 30, 5
    call = channel.unary_stream(
        f"/{SERVICE.full_name}/ReceiveMessage",
        mq.ReceiveMessageRequest.SerializeToString,
        mq.ReceiveMessageResponse.FromString,
    )
    responses = [each async for each in call(request, metadata=metadata(), timeout=PATIENCE_S)]
    return [each.message for each in responses if each.HasField("message")]
