"""A broker under more load than it takes: a user with its share is refused with a hint, and others are served."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from cluster.api.rights import RIGHTS, Audience
from cluster.protocol.errors import Reason
from cluster.protocol.wire.answers import failure_of_call
from cluster.v1 import broker_pb2 as pb
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from dledger.frames.codec import TOKEN, encode_frame
from dledger.service import grpc_server
from dledger.service.limits.fair_shares import FairShares
from store.errors import Certainty
from store.model.commit_log import PutOutcome, PutStatus
from tests.integration.cluster.api.access.test_access_control import TOKENS, as_user, channel_of, close, put
from tests.integration.cluster.api.access.test_frames_of_brokers import PUT
from tests.integration.cluster.api.access.test_quotas import refusal_of
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.support.network.frame_client import raw_frames
from tests.support.waiting import until

ANSWERED = PutOutcome(PutStatus.OS_PAGE_CACHE_BUSY, Certainty.NOT_APPENDED, (), "ended by the test")


class HeldPuts:
    """Puts of a log whose disk does not answer until `release`."""

    def __init__(self, shop, monkeypatch) -> None:
        self.pending: list[asyncio.Future[PutOutcome]] = []
        monkeypatch.setattr(shop.replica, "serving_puts", lambda: self)

    def begin_put(self, _messages) -> asyncio.Future[PutOutcome]:
        self.pending.append(asyncio.get_running_loop().create_future())
        return self.pending[-1]

    def release(self) -> None:
        for each in self.pending:
            each.set_result(ANSWERED)
        self.pending.clear()


async def flood(stub, count: int, metadata=None) -> list:
    """Put one message in each of many calls; return those that are not answered."""
    return [asyncio.ensure_future(stub.Put(put(), metadata=metadata)) for _ in range(count)]


async def reasons_of(calls) -> list[str]:
    return [(await each).answer.reason for each in calls if each.done()]


def test_user_with_its_share_of_pending_puts_is_refused_and_a_modest_one_never(shop, monkeypatch) -> None:
    async def scenario() -> None:
        async with shop.open(pending_messages_max=40), channel_of(shop) as channel, channel_of(shop) as other:
            await close(shop)
            held = HeldPuts(shop, monkeypatch)
            heavy, modest = BrokerServiceStub(channel), BrokerServiceStub(other)
            calls = await flood(heavy, 100, as_user("writer"))
            await until(lambda: sum(each.done() for each in calls) == 80)
            assert len(held.pending) == 20
            assert set(await reasons_of(calls)) == {"OVERLOADED"}
            refused = (await next(each for each in calls if each.done())).answer
            assert "user 'writer' has its share of the" in refused.message
            assert (refused.code, "repeat the request in" in refused.message) == (8, True)
            # Nine requests of another user, while the first one tries again and again.
            others = await flood(modest, 9, as_user("admin"))
            more = await flood(heavy, 50, as_user("writer"))
            await until(lambda: len(held.pending) == 29 and all(each.done() for each in more))
            assert not any(each.done() for each in others)
            held.release()
            answers = [await each for each in others]
            assert {each.answer.reason for each in answers} == {"LEADER_PENDING_FULL"}
            monkeypatch.undo()
            assert await refusal_of(heavy.Put(put(), metadata=as_user("writer"))) is None

    run(scenario)


def test_share_of_puts_is_kept_until_they_are_decided_although_their_client_leaves(shop, monkeypatch) -> None:
    async def scenario() -> None:
        async with shop.open(pending_messages_max=8), channel_of(shop) as channel:
            held = HeldPuts(shop, monkeypatch)
            calls = await flood(BrokerServiceStub(channel), 4)
            await until(lambda: len(held.pending) == 4)
            for each in calls:
                each.cancel()
            await asyncio.wait(calls)
            assert (await BrokerServiceStub(channel).Put(put())).answer.reason == "OVERLOADED"
            held.release()
            monkeypatch.undo()
            assert await refusal_of(BrokerServiceStub(channel).Put(put())) is None

    run(scenario)


def test_requests_of_a_stream_above_the_share_are_refused_and_the_stream_continues(shop, monkeypatch) -> None:
    async def scenario() -> None:
        async with shop.open(pending_messages_max=8), channel_of(shop) as channel:
            held = HeldPuts(shop, monkeypatch)
            stream = BrokerServiceStub(channel).PutStream()
            for number in range(6):
                await stream.write(put(request_id=number))
            refused = [await stream.read() for _ in range(2)]
            assert [(each.request_id, each.answer.reason) for each in refused] == [(4, "OVERLOADED"), (5, "OVERLOADED")]
            held.release()
            assert {(await stream.read()).request_id for _ in range(4)} == {0, 1, 2, 3}
            monkeypatch.undo()
            await stream.write(put(request_id=7))
            assert not (await stream.read()).answer.reason

    run(scenario)


def test_bytes_of_one_address_are_bounded_by_its_share(shop, monkeypatch) -> None:
    async def scenario() -> None:
        async with shop.open(pending_size_bytes_max=100_000), channel_of(shop) as channel:
            held = HeldPuts(shop, monkeypatch)
            stub = BrokerServiceStub(channel)
            large = pb.PutRequest(topic=TOPIC, queue_ids=[0], bodies=[b"x" * 30_000])
            calls = [asyncio.ensure_future(stub.Put(large)) for _ in range(5)]
            await until(lambda: sum(each.done() for each in calls) == 3)
            assert len(held.pending) == 2
            held.release()
            await asyncio.wait(calls)

    run(scenario)


BODY_SIZE = 1 << 20


@pytest.mark.parametrize("by_frames", [False, True], ids=["gRPC", "frames"])
def test_bytes_of_requests_in_flight_are_bounded_for_each_user(shop, monkeypatch, by_frames) -> None:
    """Method: of 5 MiB in all, a user gets three requests of 1 MiB; small requests and other users are served."""
    monkeypatch.setattr(grpc_server, "REQUEST_BYTES_MAX", 5 * BODY_SIZE)
    large = pb.PutRequest(topic=TOPIC, queue_ids=[0], bodies=[b"x" * BODY_SIZE])

    async def scenario() -> None:
        async with shop.open(), channel_of(shop) as channel, raw_frames(shop.frames.address) as frames:
            await close(shop)
            held, stub = HeldPuts(shop, monkeypatch), BrokerServiceStub(channel)
            frames.send(encode_frame(TOKEN, TOKENS["writer"].encode()))

            async def refused(number: int) -> bytes:
                """Return the refusal of a large put of the user: nothing was begun."""
                if by_frames:
                    answer = await frames.answer(number, PUT, large)
                    assert answer.detail == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
                    return answer.payload
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await stub.Put(large, metadata=as_user("writer"))
                assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                return error.value.details().encode()

            calls = []
            for number in range(3):
                if by_frames:
                    frames.call(number + 1, PUT, large)
                else:
                    calls.append(asyncio.ensure_future(stub.Put(large, metadata=as_user("writer"))))
                await until(lambda number=number: len(held.pending) == number + 1)
            text = await refused(4)
            assert b"user 'writer' has its share of the 5242880 bytes of requests in flight" in text
            assert b"repeat the request in" in text
            calls += [
                asyncio.ensure_future(stub.Put(each, metadata=as_user(name)))
                for each, name in ((put(), "writer"), (large, "admin"))
            ]
            await until(lambda: len(held.pending) == 5)
            held.release()
            await asyncio.gather(*calls)
            for _ in range(3 * by_frames):
                await frames.next()
            monkeypatch.undo()
            # All of it was given back.
            assert await refusal_of(stub.Put(large, metadata=as_user("writer"))) is None

    run(scenario)


@pytest.fixture
def sixteen_calls(monkeypatch) -> list[FairShares]:
    """Bound the calls of a server: 4 without a request, 1 that is answered at once, 11 others, 6 for one user alone.

    Return the shares of those with a request, once the server is started.
    """
    shares: list[FairShares] = []

    def open_shares(size: int) -> FairShares:
        shares.append(FairShares(size))
        return shares[-1]

    defaults = grpc_server.start_grpc_server.__kwdefaults__ or {}
    monkeypatch.setattr(grpc_server.start_grpc_server, "__kwdefaults__", {**defaults, "calls_max": 16})
    monkeypatch.setattr(grpc_server, "FairShares", open_shares)
    return shares


def test_public_methods_are_served_to_an_address_with_its_share_of_all_calls(shop, sixteen_calls) -> None:
    """All but a health check that lasts; each row of the table of rights is tried."""
    public = {path for path, row in RIGHTS.items() if row.audience is Audience.PUBLIC}

    async def scenario() -> None:
        async with shop.open(waiters_max=1_000), channel_of(shop) as channel, channel_of(shop) as other:
            # The place of the call that made the topic is given back after its answer.
            await until(lambda: not any(each.used for each in sixteen_calls))
            waiting = pb.GetRequest(topic=TOPIC, queue_id=0, offset=0, wait_ms=600_000)
            calls = [asyncio.ensure_future(BrokerServiceStub(channel).Get(waiting)) for _ in range(8)]
            await until(lambda: sum(each.done() for each in calls) == 2)
            codes = {path: await code_of(other.unary_unary(path)(b"")) for path in public}
            for each in calls:
                each.cancel()
            await asyncio.wait(calls)
        overloaded = {path for path, code in codes.items() if code is grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert overloaded == {"/grpc.health.v1.Health/Watch"}
        assert "/cluster.v1.AccessService/StartLogin" in public

    run(scenario)


async def code_of(call) -> grpc.StatusCode:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def test_user_with_its_share_of_all_calls_ends_early_and_others_are_served(shop, sixteen_calls) -> None:
    async def scenario() -> None:
        async with shop.open(waiters_max=1_000), channel_of(shop) as channel, channel_of(shop) as other:
            await close(shop)
            await until(lambda: not any(each.used for each in sixteen_calls))
            waiting = pb.GetRequest(topic=TOPIC, queue_id=0, offset=0, wait_ms=30_000)
            calls = [
                asyncio.ensure_future(BrokerServiceStub(channel).Get(waiting, metadata=as_user("reader")))
                for _ in range(8)
            ]
            await until(lambda: sum(each.done() for each in calls) == 2)
            error = next(each for each in calls if each.done()).exception()
            assert isinstance(error, grpc.aio.AioRpcError)
            failure = failure_of_call("a:1", error.code(), error.details() or "", "BrokerService")
            assert (failure.reason, failure.is_worth_trying) == (Reason.OVERLOADED, True)
            pushback = dict(error.trailing_metadata() or ())["grpc-retry-pushback-ms"]
            assert abs(int(pushback) / 1000 - failure.repeat_after_s) <= 0.02
            assert shop.broker.core.metrics.counts.refusals == {"OVERLOADED": 2}
            assert await refusal_of(BrokerServiceStub(other).Put(put(), metadata=as_user("writer"))) is None
            await asyncio.wait(calls)

    run(scenario)


@pytest.mark.parametrize("name", ["Subscribe", "Get"])
def test_readers_that_wait_have_shares(shop, name) -> None:
    async def scenario() -> None:
        async with shop.open(waiters_max=8), channel_of(shop) as channel:
            await close(shop)
            stub = BrokerServiceStub(channel)

            def read(user: str):
                if name == "Get":
                    wanted = pb.GetRequest(topic=TOPIC, queue_id=0, offset=0, wait_ms=30_000)
                    return asyncio.ensure_future(stub.Get(wanted, metadata=as_user(user)))
                wanted = pb.SubscribeRequest(topic=TOPIC, queue_ids=[0, 1], offsets=[0, 0])
                return stub.Subscribe(wanted, metadata=as_user(user))

            # A stream counts with each of its two queues.
            waiting = [read("reader") for _ in range(4 if name == "Get" else 2)]
            await until(lambda: shop.replica.store.waiters_count == 4)
            refused = read("reader")
            answer = (await refused if name == "Get" else await refused.read()).answer
            assert answer.reason == "OVERLOADED"
            other = read("admin")
            await until(lambda: shop.replica.store.waiters_count > 4)
            for each in (*waiting, other):
                each.cancel()

    run(scenario)
