"""Access control in front of a broker: RPCs without credentials, with wrong ones, with some rights, and revoked."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cluster.access.model import ALL_ACTIONS, Action, Policy, resource_of
from cluster.access.users import ApiToken, UserSettings
from cluster.api.rights import RIGHTS, Audience
from cluster.broker.core import wall_clock_ms
from cluster.state.access_commands import AddApiToken, DeleteApiToken, SetTokenKey, SetUser
from cluster.v1 import broker_pb2 as pb
from dledger.authentication.tokens import Session, api_token, digest_of_api_token, session_token
from dledger.authentication.verifier import Verifier
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.support.network.idle_streams import look_at_no_idle_stream
from tests.unit.cluster.api.test_rights import methods

ADMIN = UserSettings("admin", is_super=True, verifier=Verifier(b"s" * 16, 8_192, b"k" * 32, b"v" * 32))
WRITER = UserSettings("writer", policies=(Policy(resource_of(f"Topic:{TOPIC}"), Action.PUB),))
READER = UserSettings("reader", policies=(Policy(resource_of(f"Topic:{TOPIC}"), Action.SUB),))
TOKENS = {name: api_token(name.encode().ljust(32)) for name in ("admin", "writer", "reader", "nobody")}
KEY = b"K" * 32
# Their services refuse each request of the stream in an answer: tests below.
ANSWERED_WITHOUT_RIGHTS = {("PutStream", None), ("JoinGroup", None)}
DENIED, UNKNOWN_CALLER = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED


def bearer(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


def channel_of(shop) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(str(shop.address))


def as_user(name: str) -> list[tuple[str, str]]:
    return bearer(TOKENS[name])


async def close(shop) -> None:
    """Create users, which enables access control."""
    for settings in (ADMIN, WRITER, READER):
        await shop.broker.core.change(SetUser(settings))
        token = ApiToken("test", digest_of_api_token(TOKENS[settings.name]) or b"")
        await shop.broker.core.change(AddApiToken(settings.name, token))
    await shop.broker.core.change(SetTokenKey(KEY))


async def code_of(call) -> grpc.StatusCode | None:
    """Return the code of the refusal of a call or stream; None: its first response was not a refusal."""
    try:
        if hasattr(call, "read"):
            await call.read()
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return None


def naming_a_topic(request):
    """Return a request that names the topic, a group, and a user in all fields that have these names."""
    for field in request.DESCRIPTOR.fields:
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            inner = getattr(request, field.name)
            naming_a_topic(inner.add() if field.is_repeated else inner)
        elif field.name in ("topic", "group", "name", "user"):
            setattr(request, field.name, TOPIC)
        elif field.name == "topics":
            request.topics.append(TOPIC)
    return request


async def call(channel: grpc.aio.Channel, path: str, metadata=None, fill=lambda request: request):
    """Call a method with an empty request, or what `fill` makes of it; return its refusal."""
    method = methods()[path]
    kind_of_request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)

    def request():
        return fill(kind_of_request())

    kind = ("stream" if method.client_streaming else "unary") + "_" + ("stream" if method.server_streaming else "unary")
    made = getattr(channel, kind)(path, kind_of_request.SerializeToString, response.FromString)
    while True:
        code = await code_of(made(iter([request()]) if method.client_streaming else request(), metadata=metadata))
        # The client says so if the server ended the stream before the request was written.
        if code is not grpc.StatusCode.INTERNAL or not method.client_streaming:
            return code


def put(topic: str = TOPIC, request_id: int = 0) -> pb.PutRequest:
    return pb.PutRequest(topic=topic, queue_ids=[0], bodies=[b"x"], request_id=request_id)


def test_no_method_answers_without_credentials(shop) -> None:
    async def scenario() -> None:
        async with shop.open(), channel_of(shop) as channel:
            await close(shop)
            tried = 0
            for path, row in RIGHTS.items():
                is_of_broker = "BrokerService" in path or "AccessService" in path
                if row.audience is Audience.PUBLIC or not is_of_broker:
                    continue
                for metadata in (None, bearer("dla1_wrong"), bearer("dls1_wrong"), [("authorization", "Basic x")]):
                    assert await call(channel, path, metadata) is UNKNOWN_CALLER, path
                    tried += 1
            assert tried == (36 + 12) * 4

    run(scenario)


def test_no_method_is_served_to_a_user_without_rights(shop) -> None:
    async def scenario() -> None:
        async with shop.open(), channel_of(shop) as channel:
            await close(shop)
            await shop.broker.core.change(SetUser(UserSettings("nobody")))
            token = ApiToken("test", digest_of_api_token(TOKENS["nobody"]) or b"")
            await shop.broker.core.change(AddApiToken("nobody", token))
            served = set()
            for path, row in RIGHTS.items():
                is_of_broker = "BrokerService" in path or "AccessService" in path
                if row.audience is not Audience.PUBLIC and is_of_broker:
                    code = await call(channel, path, as_user("nobody"), naming_a_topic)
                    if code is not DENIED:
                        served.add((path.rpartition("/")[2], code))
            assert served == ANSWERED_WITHOUT_RIGHTS

    run(scenario)


def test_every_call_is_permitted_before_the_first_user(shop) -> None:
    async def scenario() -> None:
        async with shop.open() as stub:
            assert not (await stub.Put(put(), metadata=bearer("anything"))).answer.code
            assert await code_of(stub.Get(pb.GetRequest(topic=TOPIC))) is None
            await close(shop)
            assert await code_of(stub.Get(pb.GetRequest(topic=TOPIC))) is UNKNOWN_CALLER

    run(scenario)


def test_rights_decide_and_the_answer_names_the_missing_one(shop) -> None:
    async def scenario() -> None:
        async with shop.open() as stub:
            await close(shop)
            assert not (await stub.Put(put(), metadata=as_user("writer"))).answer.code
            assert await code_of(stub.Get(pb.GetRequest(topic=TOPIC), metadata=as_user("reader"))) is None
            for name, call in (
                ("writer", stub.Get(pb.GetRequest(topic=TOPIC), metadata=as_user("writer"))),
                ("reader", stub.Put(put(), metadata=as_user("reader"))),
            ):
                with pytest.raises(grpc.aio.AioRpcError, match=f"{name}.*lacks (Sub|Pub) on Topic:{TOPIC}") as refused:
                    await call
                assert refused.value.code() is DENIED
            assert await code_of(stub.ReadLog(pb.ReadLogRequest(end_offset=1), metadata=as_user("reader"))) is DENIED
            for request in (pb.ReadLogRequest(end_offset=1), pb.ReadLogRequest(topic=TOPIC, end=1)):
                assert await code_of(stub.ReadLog(request, metadata=as_user("admin"))) is None
            stored = await stub.Get(pb.GetRequest(topic=TOPIC), metadata=as_user("reader"))
            assert stored.max_offset == 1

    run(scenario)


def test_sessions_are_valid_until_they_expire_or_the_password_changes(shop) -> None:
    async def scenario() -> None:
        async with shop.open() as stub:
            await close(shop)
            access, now_s = shop.broker.core.replica.state.access, wall_clock_ms() // 1_000
            epoch = access.users["admin"].epoch

            async def status(user="admin", at=epoch, ends_s=now_s + 600, key=KEY) -> grpc.StatusCode | None:
                token = session_token(Session(user, at, ends_s), key)
                return await code_of(stub.Status(pb.BrokerStatusRequest(), metadata=bearer(token)))

            assert await status() is None
            assert await status(at=epoch + 1) is UNKNOWN_CALLER
            assert await status(ends_s=now_s - 1) is UNKNOWN_CALLER
            assert await status(key=b"other".ljust(32)) is UNKNOWN_CALLER
            assert await status(user="nobody") is UNKNOWN_CALLER
            assert await status(user="reader", at=access.users["reader"].epoch) is DENIED
            await shop.broker.core.change(SetTokenKey(b"L" * 32))
            assert await status() is None
            await shop.broker.core.change(
                SetUser(replace(ADMIN, verifier=Verifier(b"t" * 16, 8_192, b"k" * 32, b"v" * 32)))
            )
            assert await status() is UNKNOWN_CALLER

    run(scenario)


def test_a_refused_request_of_a_stream_of_puts_leaves_the_others(shop, monkeypatch) -> None:
    look_at_no_idle_stream(monkeypatch)

    async def scenario() -> None:
        async with shop.open() as stub:
            await shop.set_topic("secret")
            await close(shop)
            stream = stub.PutStream(metadata=as_user("writer"))
            answers = {}
            for number, topic in enumerate([TOPIC, "secret", TOPIC]):
                await stream.write(put(topic, number))
                response = await stream.read()
                answers[response.request_id] = (response.answer.reason, response.answer.certainty)
            assert [reason for reason, _ in answers.values()] == ["", "ACCESS_DENIED", ""]
            assert answers[1][1] == 2, "CERTAINTY_NOT_DONE"

            await shop.broker.core.change(DeleteApiToken("writer", "test"))
            await stream.write(put(TOPIC, 3))
            assert (await stream.read()).answer.reason == "NOT_AUTHENTICATED"
            await stream.done_writing()

    run(scenario)


def test_a_subscription_ends_when_the_right_ends(shop) -> None:
    async def scenario() -> None:
        async with shop.open() as stub:
            await shop.put(b"first")
            await close(shop)
            request = pb.SubscribeRequest(topic=TOPIC, queue_ids=[0], offsets=[0])
            stream = stub.Subscribe(request, metadata=as_user("reader"))
            # The first response confirms the subscription.
            assert [(await stream.read()).next_offset for _ in range(2)] == [0, 1]

            # An unrelated change does not end it.
            await shop.broker.core.change(SetUser(replace(WRITER, policies=(Policy(resource_of("*"), ALL_ACTIONS),))))
            await stub.Put(put(), metadata=as_user("writer"))
            assert (await stream.read()).next_offset == 2
            await shop.broker.core.change(SetUser(replace(READER, policies=())))
            await stub.Put(put(), metadata=as_user("writer"))
            with pytest.raises(grpc.aio.AioRpcError, match="lacks Sub") as refused:
                await stream.read()
            assert refused.value.code() is DENIED

    run(scenario)


def test_a_consumer_joins_the_groups_that_it_may(shop) -> None:
    async def scenario() -> None:
        async with shop.open() as stub:
            await close(shop)
            policies = tuple(Policy(resource_of(text), Action.SUB) for text in (f"Topic:{TOPIC}", "Group:mine"))
            await shop.broker.core.change(SetUser(replace(READER, policies=policies)))

            async def joined(group: str) -> str:
                stream = stub.JoinGroup(metadata=as_user("reader"))
                subscriptions = [pb.Subscription(topic=TOPIC, tags="*")]
                await stream.write(pb.JoinGroupRequest(group=group, client_id="c", subscriptions=subscriptions))
                response = await stream.read()
                stream.cancel()
                return response.answer.reason

            assert await joined("mine") == ""
            assert await joined("other") == "ACCESS_DENIED"
            assert "other" not in shop.broker.core.replica.state.groups

    run(scenario)


def test_health_is_public(shop) -> None:
    async def scenario() -> None:
        async with shop.open(), channel_of(shop) as channel:
            await close(shop)
            health = health_pb2_grpc.HealthStub(channel)
            assert (await health.Check(health_pb2.HealthCheckRequest())).status == 1
            watch = health.Watch(health_pb2.HealthCheckRequest())
            assert (await watch.read()).status == 1
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch.code()

    run(scenario)
