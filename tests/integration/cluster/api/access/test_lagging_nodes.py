"""A refusal by a node that may lack the newest users and rights is not final: clients ask another node."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from cluster.client.producer.async_producer import AsyncProducer
from cluster.client.producer.options import ProducerOptions
from cluster.v1 import access_pb2 as pb
from cluster.v1 import broker_pb2
from dledger.authentication.tokens import api_token, digest_of_api_token
from dledger.authentication.verifier import make_verifier
from dledger.errors import AccessUnknown
from dledger.security.settings import Plain
from tests.integration.cluster.api.access.test_access_service import SALT, Client, bearer, first_administrator
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.support.waiting import PATIENCE_S, until

TOKEN = api_token(b"t" * 32)
PUT = broker_pb2.PutRequest(topic=TOPIC, queue_ids=[0], bodies=[b"x"])


@pytest.fixture
def lag(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether nodes lag, at index 0."""
    lags = [False]
    monkeypatch.setattr("cluster.broker.core.BrokerCore.is_current", lambda _: not lags[0])
    return lags


async def user_with_token(admin: Client, name: str, policies: list[pb.AccessPolicy]) -> None:
    verifier = make_verifier("battery staple", SALT).text()
    user = pb.AccessUser(name=name, policies=policies)
    assert (await admin.call("SetUser", user=user, verifier=verifier, is_new=True)).is_changed
    added = await admin.call("AddToken", user=name, id="ci", digest=digest_of_api_token(TOKEN))
    assert added.is_changed


async def refusal_of(stub, token: str) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.Put(PUT, metadata=bearer(token) if token else None)
    return refused.value.code(), refused.value.details()


def test_refusals_that_depend_on_users_and_rights_are_final_on_a_current_node_only(shop, lag) -> None:
    async def scenario() -> None:
        async with shop.open() as stub, Client(shop) as admin:
            await first_administrator(shop)
            await admin.login("admin", "correct horse")
            await user_with_token(admin, "alice", [])
            cases = {
                "unknown token": (api_token(b"u" * 32), grpc.StatusCode.UNAUTHENTICATED),
                "session of another key": (admin.token[:-4] + "AAAA", grpc.StatusCode.UNAUTHENTICATED),
                "no right": (TOKEN, grpc.StatusCode.PERMISSION_DENIED),
            }
            for name, (token, final) in cases.items():
                lag[0] = False
                code, details = await refusal_of(stub, token)
                assert code is final, name
                lag[0] = True
                assert await refusal_of(stub, token) == (
                    grpc.StatusCode.UNAVAILABLE,
                    f"{AccessUnknown.PREFIX}{details}",
                ), name
            # Without credentials no other node can know more.
            assert (await refusal_of(stub, ""))[0] is grpc.StatusCode.UNAUTHENTICATED
            # A right that is known counts.
            assert not (await stub.Put(PUT, metadata=bearer(admin.token))).answer.code

    run(scenario)


def test_login_at_a_node_that_lags_has_one_answer_for_every_cause(shop, lag) -> None:
    async def scenario() -> None:
        async with shop.open(), Client(shop) as client:
            await first_administrator(shop)
            lag[0] = True
            answers = [(await client.login(*each)).answer for each in (("admin", "wrong"), ("unknown", "wrong"))]
            assert answers[0].reason == "LEADER_NOT_READY"
            assert answers[0] == answers[1]
            assert not (await client.login("admin", "correct horse")).answer.code
            lag[0] = False
            assert (await client.login("unknown", "wrong")).answer.reason == "NOT_AUTHENTICATED"

    run(scenario)


def test_producer_repeats_what_a_node_refuses_that_does_not_know_its_user_yet(shop, monkeypatch) -> None:
    """Found with stalled processes: NOT_AUTHENTICATED of the next leader, which lagged, was final for the producer."""
    refused = []
    monkeypatch.setattr("cluster.broker.core.BrokerCore.is_current", lambda _: refused.append(1) or False)
    policies = [pb.AccessPolicy(resource=f"Topic:{TOPIC}", actions=1)]

    async def scenario() -> None:
        async with shop.open(), Client(shop) as admin:
            await first_administrator(shop)
            await admin.login("admin", "correct horse")
            await user_with_token(admin, "alice", policies)
            options = ProducerOptions(deadline_s=PATIENCE_S)
            async with AsyncProducer(str(shop.address), "", options, security=Plain(token=lambda: TOKEN)) as producer:
                await producer.send(TOPIC, b"of a known user")
                assert (await admin.call("DeleteUser", name="alice")).is_changed
                sending = asyncio.ensure_future(producer.send(TOPIC, b"of a user that is not known yet"))
                await until(lambda: refused or sending.done())
                assert not sending.done()
                await user_with_token(admin, "alice", policies)
                await sending

    run(scenario)
