"""Quotas in front of a broker: requests above one are refused without effect, or delayed; others are not affected."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import cluster.server.broker
from cluster.access.quotas import Quotas
from cluster.config.quotas import BYTES_PER_S_MIN, QuotaSettings
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.wire.answers import failure_of_call
from cluster.v1 import broker_pb2 as pb
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from tests.integration.cluster.api.access.test_access_control import as_user, channel_of, close, put
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """Return the clock of quotas, which only the test advances."""
    now_s = [1_000.0]
    monkeypatch.setattr(cluster.server.broker, "Quotas", lambda settings, _: Quotas(settings, lambda: now_s[0]))
    return now_s


async def refusal_of(call) -> RequestFailed | None:
    """Return the error of a client for a call; None: it was answered."""
    try:
        response = await call
    except grpc.aio.AioRpcError as error:
        return failure_of_call("a:1", error.code(), error.details() or "", "BrokerService")
    assert not response.answer.reason, response
    return None


def test_user_above_its_quota_is_refused_with_nothing_done_and_others_are_served(shop, clock) -> None:
    async def scenario() -> None:
        async with shop.open(quotas=QuotaSettings(quota_user_requests_per_s=5)), channel_of(shop) as channel:
            await close(shop)
            stub = BrokerServiceStub(channel)
            puts = [await refusal_of(stub.Put(put(), metadata=as_user("writer"))) for _ in range(20)]
            served = [failure is None for failure in puts]
            assert served == [True] * 6 + [False] * 14
            failure = puts[-1]
            assert (failure.reason, failure.is_worth_trying) == (Reason.OVER_QUOTA, True)
            assert "user 'writer' or address 127.0.0.1" in failure.message
            assert shop.broker.core.metrics.counts.put_messages == 6
            get = pb.GetRequest(topic=TOPIC, queue_id=0, offset=0, max_messages=32)
            answer = await stub.Get(get, metadata=as_user("reader"))
            assert len(answer.columns.bodies) == 6
            clock[0] += 0.2
            assert await refusal_of(stub.Put(put(), metadata=as_user("writer"))) is None
            assert shop.broker.core.metrics.counts.quota_refused == 14

    run(scenario)


def test_address_above_its_quota_is_refused_and_health_is_answered(shop, clock) -> None:
    async def scenario() -> None:
        async with shop.open(quotas=QuotaSettings(quota_address_requests_per_s=3)), channel_of(shop) as channel:
            stub = BrokerServiceStub(channel)
            clock[0] += 100
            refusals = [await refusal_of(stub.Put(put())) for _ in range(6)]
            assert [failure is None for failure in refusals] == [True] * 4 + [False] * 2
            asked = health_pb2.HealthCheckRequest()
            answer = await health_pb2_grpc.HealthStub(channel).Check(asked, timeout=PATIENCE_S)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING

    run(scenario)


def test_request_of_a_stream_above_a_quota_is_refused_alone(shop, clock) -> None:
    async def scenario() -> None:
        async with shop.open(quotas=QuotaSettings(quota_address_requests_per_s=2)), channel_of(shop) as channel:
            clock[0] += 100
            stream = BrokerServiceStub(channel).PutStream()
            reasons = {}
            for number in range(5):
                await stream.write(put(request_id=number))
                response = await stream.read()
                reasons[response.request_id] = response.answer.reason
            clock[0] += 1
            await stream.write(put(request_id=5))
            assert not (await stream.read()).answer.reason
            assert list(reasons.values()) == ["", "", "", "OVER_QUOTA", "OVER_QUOTA"]

    run(scenario)


def test_answers_of_a_stream_are_delayed_until_they_are_paid_for(shop, clock) -> None:
    quotas = QuotaSettings(quota_address_bytes_per_s=BYTES_PER_S_MIN)

    async def scenario() -> None:
        async with shop.open(quotas=quotas), channel_of(shop) as channel:
            stub = BrokerServiceStub(channel)
            for queue_id in (0, 1):
                clock[0] += 100
                large = pb.PutRequest(topic=TOPIC, queue_ids=[queue_id], bodies=[b"x" * (BYTES_PER_S_MIN + 6_000)])
                assert await refusal_of(stub.Put(large)) is None
            clock[0] += 100
            stream = stub.Subscribe(pb.SubscribeRequest(topic=TOPIC, queue_ids=[0, 1], offsets=[0, 0]))
            loop = asyncio.get_running_loop()
            # The first response says that the stream is accepted.
            assert [(await stream.read()).ByteSize() > BYTES_PER_S_MIN for _ in range(2)] == [False, True]
            begin_s = loop.time()
            await stream.read()
            assert loop.time() - begin_s > 0.05
            stream.cancel()

    run(scenario)
