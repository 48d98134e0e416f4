"""Puts and gets by frames: the same rights, quotas, records and outcomes as by gRPC, and producers that use them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from cluster import MessageNotAppended, Producer
from cluster.access import quotas
from cluster.access.token_buckets import TokenBuckets
from cluster.access.users import ApiToken, UserSettings
from cluster.api.audited import AUDITED
from cluster.api.rights import RIGHTS, Audience
from cluster.config.quotas import QuotaSettings
from cluster.protocol.errors import Reason
from cluster.state.access_commands import AddApiToken, SetUser
from cluster.v1 import broker_pb2 as pb
from dledger.authentication.tokens import digest_of_api_token
from dledger.frames.codec import TOKEN, encode_frame
from dledger.security.settings import Plain
from tests.integration.cluster.api.access.test_access_control import (
    TOKENS,
    as_user,
    call,
    channel_of,
    close,
    naming_a_topic,
    put,
)
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.support.network.frame_client import raw_frames
from tests.support.waiting import PATIENCE_S
from tests.unit.cluster.api.test_rights import methods

if TYPE_CHECKING:
    from tests.support.network.frame_client import RawFrames

PUT, GET = "/cluster.v1.BrokerService/Put", "/cluster.v1.BrokerService/Get"
PRODUCING: dict[str, Any] = {"deadline_s": PATIENCE_S, "answer_timeout_s": PATIENCE_S}


async def status_of(frames: RawFrames, number: int, path: str, fill: Any) -> grpc.StatusCode | None:
    request = fill(GetMessageClass(methods()[path].input_type)())
    answer = await frames.answer(number, path, request)
    return None if answer.detail == 0 else next(each for each in grpc.StatusCode if each.value[0] == answer.detail)


def test_every_method_by_frames_has_rights_and_a_row_of_the_audit_and_is_answered_with_one_response(shop) -> None:
    async def scenario() -> None:
        async with shop.open(), raw_frames(shop.frames.address) as frames:
            assert list(frames.methods) == [PUT, GET]
            for path in frames.methods:
                method = methods()[path]
                assert RIGHTS[path].audience is Audience.RIGHTS
                assert path in AUDITED
                assert not method.client_streaming
                assert not method.server_streaming

    run(scenario)


def test_each_caller_has_the_same_rights_by_frames_as_by_grpc(shop) -> None:
    async def scenario() -> None:
        async with shop.open(), channel_of(shop) as channel, raw_frames(shop.frames.address) as frames:
            await close(shop)
            await shop.broker.core.change(SetUser(UserSettings("nobody")))
            await shop.broker.core.change(AddApiToken("nobody", token_of("nobody")))
            number = 0
            for token in ("", "dla1_wrong", "dls1_wrong", *(TOKENS[name] for name in ("writer", "reader", "nobody"))):
                frames.send(encode_frame(TOKEN, token.encode()))
                metadata = [("authorization", f"Bearer {token}")] if token else None
                for path in (PUT, GET):
                    for fill in (naming_a_topic, lambda request: request):
                        number += 1
                        expected = await call(channel, path, metadata, fill)
                        assert await status_of(frames, number, path, fill) is expected, (token, path)

    run(scenario)


def token_of(name: str) -> Any:

    return ApiToken("test", digest_of_api_token(TOKENS[name]) or b"")


def test_quota_counts_puts_of_both_ways_together(shop, monkeypatch) -> None:
    # The clock does not move, however long the puts take: five are the burst, and the sixth leaves a debt.
    monkeypatch.setattr(quotas, "TokenBuckets", lambda _now_s: TokenBuckets(lambda: 1_000.0))

    async def scenario() -> None:
        settings = QuotaSettings(quota_user_requests_per_s=5)
        async with shop.open(quotas=settings) as stub, raw_frames(shop.frames.address) as frames:
            await close(shop)
            frames.send(encode_frame(TOKEN, TOKENS["writer"].encode()))
            statuses = []
            for number in range(1, 11):
                await asyncio.gather(stub.Put(put(), metadata=as_user("writer")), return_exceptions=True)
                statuses.append((await frames.answer(number, PUT, put())).detail)
            refused = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
            assert statuses == [0, 0, 0, *[refused] * 7]
            assert shop.broker.core.metrics.counts.put_messages == 6

    run(scenario)


def test_producer_puts_by_frames_and_a_get_by_frames_returns_the_messages(shop) -> None:
    async def scenario() -> None:
        async with shop.open(), raw_frames(shop.frames.address) as frames:
            async with Producer(str(shop.address), **PRODUCING) as producer:
                placed = [await producer.send(TOPIC, b"%d" % number, queue_id=0) for number in range(5)]
                many = await asyncio.gather(*(producer.send(TOPIC, b"x", queue_id=1) for _ in range(500)))
            assert [each.queue_offset for each in placed] == [0, 1, 2, 3, 4]
            assert sorted(each.queue_offset for each in many) == list(range(500))
            calls = shop.frames.counts.calls
            assert calls >= 6
            request = pb.GetRequest(topic=TOPIC, queue_id=0, offset=0, max_messages=32)
            answer = await frames.answer(1, GET, request)
            assert list(pb.GetResponse.FromString(answer.payload).columns.bodies) == [b"0", b"1", b"2", b"3", b"4"]
            async with Producer(str(shop.address), may_use_frames=False, **PRODUCING) as producer:
                await producer.send(TOPIC, b"y")
            assert shop.frames.counts.calls == calls + 1, "only the get"

    run(scenario)


def test_messages_of_a_queue_keep_their_order(shop) -> None:
    async def scenario() -> None:
        async with shop.open():
            async with Producer(str(shop.address), batch_messages_max=7, **PRODUCING) as producer:
                sends = [producer.send(TOPIC, b"%d" % number, queue_id=0) for number in range(300)]
                placed = await asyncio.gather(*sends)
            assert [each.queue_offset for each in placed] == list(range(300))
            assert shop.frames.counts.calls >= 300 // 7

    run(scenario)


def test_producer_is_served_with_its_token_and_refused_without_a_right(shop) -> None:
    async def scenario() -> None:
        async with shop.open():
            await close(shop)
            security = Plain(token=lambda: TOKENS["writer"])
            async with Producer(str(shop.address), security=security, **PRODUCING) as producer:
                await producer.send(TOPIC, b"x")
                assert shop.frames.counts.calls == 1
                # The user is deleted while its connection is open.
                await shop.broker.core.change(SetUser(UserSettings("writer", is_enabled=False)))
                with pytest.raises(MessageNotAppended) as caught:
                    await producer.send(TOPIC, b"y")
            assert caught.value.reason in (Reason.NOT_AUTHENTICATED, Reason.ACCESS_DENIED)

    run(scenario)


def test_producer_outlives_a_restart_of_the_frame_port(shop) -> None:
    async def scenario() -> None:
        async with shop.open():
            async with Producer(str(shop.address), **PRODUCING) as producer:
                await producer.send(TOPIC, b"x")
                methods = shop.frames.methods
                await shop.frames.stop(0)
                await producer.send(TOPIC, b"y")
                shop.frames.__init__(shop.frames.address)
                await shop.frames.start(methods)
            assert shop.broker.core.metrics.counts.put_messages == 2

    run(scenario)
