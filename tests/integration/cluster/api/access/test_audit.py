"""The audit log of a broker: user, address, action and result of each call, and nothing secret."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from cluster.api.audited import AUDITED, Recorded
from cluster.api.rights import RIGHTS, Audience
from cluster.audit.line_window import EQUAL_PER_WINDOW_MAX
from cluster.audit.log import AuditLog
from cluster.audit.series import SeriesName
from cluster.v1 import access_pb2, access_pb2_grpc
from cluster.v1 import broker_pb2 as pb
from dledger.authentication.scram import ScramClient
from tests.integration.cluster.api.access.test_access_control import (
    TOKENS,
    as_user,
    bearer,
    call,
    channel_of,
    close,
    code_of,
    put,
)
from tests.integration.cluster.api.conftest import TOPIC, run

if TYPE_CHECKING:
    from pathlib import Path


class Audited:
    """The audit log of a shop: closed, and so complete, when its lines are read."""

    def __init__(self, shop, path: Path, *, is_access_recorded: bool = False) -> None:
        self.path = path
        self.log = shop.audit = AuditLog(path, "n0", is_access_recorded=is_access_recorded)

    def lines(self, name: str = "admin") -> list[dict[str, Any]]:
        self.log.close()
        return [json.loads(line) for line in (self.path / f"n0-{name}.jsonl").open()]


@pytest.fixture
def audited(shop, tmp_path: Path):
    """Return the audit log of the shop, without access to messages."""
    return Audited(shop, tmp_path / "audit")


def shown(lines: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    return [(each["user"], each["via"], each["method"], *each["resources"], each["result"]) for each in lines]


def test_administration_is_recorded_with_its_result(shop, audited) -> None:
    async def scenario() -> None:
        async with shop.open() as stub, channel_of(shop) as channel:
            await close(shop)
            topic = pb.Topic(name="new", read_queues=1, write_queues=1, permission=6)
            await stub.SetTopic(pb.SetTopicRequest(topic=topic), metadata=as_user("admin"))
            await stub.DeleteTopic(pb.DeleteTopicRequest(topic="missing"), metadata=as_user("admin"))
            access = access_pb2_grpc.AccessServiceStub(channel)
            user = access_pb2.AccessUser(name="bad\nname")
            await access.SetUser(access_pb2.SetUserRequest(user=user), metadata=as_user("admin"))
            # Neither is recorded: a read of names, and access to messages.
            await stub.ListTopics(pb.ListTopicsRequest(), metadata=as_user("admin"))
            await stub.Put(put(), metadata=as_user("writer"))

    run(scenario)
    lines = audited.lines()
    assert shown(lines) == [
        ("", "", "BrokerService/SetTopic", f"Topic:{TOPIC}", "OK"),
        ("admin", "token", "BrokerService/SetTopic", "Topic:new", "OK"),
        ("admin", "token", "BrokerService/DeleteTopic", "Topic:missing", "UNKNOWN_TOPIC"),
        ("admin", "token", "AccessService/SetUser", "User:bad\nname", "ILLEGAL_REQUEST"),
    ]
    assert {(each["node"], each["kind"], each["address"]) for each in lines} == {("n0", "admin", "127.0.0.1")}
    assert audited.lines("access") == []


def test_every_method_that_needs_rights_records_its_refusal(shop, audited) -> None:
    """Each RPC of the broker, without credentials and as a user without rights: one record each."""
    paths = [
        path
        for path, row in RIGHTS.items()
        if row.audience is not Audience.PUBLIC and path.startswith(("/cluster.v1.B", "/cluster.v1.A", "/grpc.ref"))
    ]

    async def scenario() -> None:
        async with shop.open(), channel_of(shop) as channel:
            await close(shop)
            for path in paths:
                # A new window each time, or equal refusals would be counted.
                audited.log._windows[SeriesName.REFUSALS].end()
                assert await call(channel, path) is grpc.StatusCode.UNAUTHENTICATED, path
                audited.log._windows[SeriesName.REFUSALS].end()
                await call(channel, path, as_user("reader"))

    run(scenario)
    lines = audited.lines("refusals")
    refused = {(each["method"], each["result"]) for each in lines}
    assert len(paths) > 35
    for path in paths:
        method, row = path.rpartition(".")[2], RIGHTS[path]
        assert (method, "NOT_AUTHENTICATED") in refused
        names_nothing = path.endswith(("Route", "PlanLog"))
        is_refused = row.audience is not Audience.USER and not names_nothing
        assert ((method, "ACCESS_DENIED") in refused) == is_refused, method
    assert {each["kind"] for each in lines} == {"refusal"}
    assert {each["user"] for each in lines} == {"", "reader"}


def test_every_method_that_administrates_records_its_end(shop, audited) -> None:
    """Each RPC of the broker as its administrator, whatever the result of an empty request."""
    services = ("/cluster.v1.BrokerService/", "/cluster.v1.AccessService/")
    paths = [path for path in AUDITED if path.startswith(services) and AUDITED[path].recorded is Recorded.ADMIN]

    async def scenario() -> None:
        async with shop.open(), channel_of(shop) as channel:
            await close(shop)
            for path in paths:
                assert await call(channel, path, as_user("admin")) is None

    run(scenario)
    assert [path.rpartition(".")[2] for path in paths] == [
        each["method"] for each in audited.lines() if each["user"] == "admin"
    ]


def test_lists_of_users_and_roles_are_recorded_with_what_is_read(shop, audited) -> None:
    """Not with changes: an administrator that asks in a loop would make rotation delete them."""
    paths = [path for path in AUDITED if AUDITED[path].recorded is Recorded.ADMIN_READ]

    async def scenario() -> None:
        async with shop.open(), channel_of(shop) as channel:
            await close(shop)
            for path in paths:
                assert await call(channel, path, as_user("admin")) is None

    run(scenario)
    assert [path.rpartition("/")[2] for path in paths] == ["ListUsers", "ListRoles", "Explain"]
    found = [(each["kind"], each["method"]) for each in audited.lines("access")]
    assert found == [("admin_read", path.rpartition(".")[2]) for path in paths]


def test_access_to_messages_is_recorded_on_demand(shop, tmp_path: Path) -> None:
    audited = Audited(shop, tmp_path / "audit", is_access_recorded=True)

    async def scenario() -> None:
        async with shop.open() as stub:
            await close(shop)
            await stub.Put(put(), metadata=as_user("writer"))
            await stub.Get(pb.GetRequest(topic=TOPIC), metadata=as_user("reader"))
            stream = stub.PutStream(metadata=as_user("writer"))
            for number in range(2):
                await stream.write(put(TOPIC, number))
                await stream.read()
            await stream.done_writing()
            request = pb.SubscribeRequest(topic=TOPIC, queue_ids=[0], offsets=[0])
            subscription = stub.Subscribe(request, metadata=as_user("reader"))
            await subscription.read()
            subscription.cancel()

    run(scenario)
    assert shown(audited.lines("access")) == [
        ("writer", "token", "BrokerService/Put", f"Topic:{TOPIC}", "OK"),
        ("reader", "token", "BrokerService/Get", f"Topic:{TOPIC}", "OK"),
        *[("writer", "token", "BrokerService/PutStream", f"Topic:{TOPIC}", "ADMITTED")] * 2,
        ("reader", "token", "BrokerService/Subscribe", f"Topic:{TOPIC}", "ADMITTED"),
    ]


def test_an_action_whose_caller_goes_away_is_recorded(shop, audited, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client cancels its call while the broker works on it: whether it took effect is unknown."""
    begun = asyncio.Event()

    async def scenario() -> None:
        async with shop.open() as stub:
            await close(shop)

            async def stalls(*_: object) -> None:
                begun.set()
                await asyncio.Event().wait()

            monkeypatch.setattr(shop.broker._service.topics, "delete_topic", stalls)
            deletion = stub.DeleteTopic(pb.DeleteTopicRequest(topic=TOPIC), metadata=as_user("admin"))
            waiting = asyncio.ensure_future(code_of(deletion))
            await begun.wait()
            waiting.cancel()
            deletion.cancel()

    run(scenario)
    assert shown(audited.lines())[-1] == ("admin", "token", "BrokerService/DeleteTopic", f"Topic:{TOPIC}", "UNKNOWN")


def test_a_flood_of_refusals_leaves_a_few_lines(shop, audited) -> None:
    async def scenario() -> None:
        async with shop.open() as stub:
            await close(shop)
            for number in range(200):
                await code_of(stub.Put(put(f"t{number}"), metadata=as_user("reader")))

    run(scenario)
    lines = audited.lines("refusals")
    assert len(lines) == EQUAL_PER_WINDOW_MAX + 1
    assert lines[-1]["count"] == 200 - EQUAL_PER_WINDOW_MAX
    assert lines[0]["detail"].startswith("user 'reader' lacks Pub on Topic:t0")


def test_logins_are_recorded_and_names_of_unknown_users_are_not(shop, audited) -> None:
    """An unknown name may be a password that was entered in the wrong place."""

    async def log_in(channel: grpc.aio.Channel, user: str, password: str) -> str:
        stub = access_pb2_grpc.AccessServiceStub(channel)
        client = ScramClient(user, password, "n" * 24)
        begun = await stub.StartLogin(access_pb2.StartLoginRequest(client_first=client.first))
        final = client.final(begun.server_first)
        return (await stub.FinishLogin(access_pb2.FinishLoginRequest(client_final=final))).answer.reason

    async def scenario() -> None:
        async with shop.open(), channel_of(shop) as channel:
            await close(shop)
            assert await log_in(channel, "admin", "wrong horse") == "NOT_AUTHENTICATED"
            assert await log_in(channel, "correct_horse", "admin") == "NOT_AUTHENTICATED"

    run(scenario)
    lines = audited.lines("refusals")
    assert [(each["kind"], each["user"], each["detail"]) for each in lines] == [
        ("login", "admin", "wrong password"),
        ("login", "", "unknown user"),
    ]
    assert "horse" not in json.dumps(lines)


def test_a_wrong_token_is_in_no_line(shop, audited) -> None:
    async def scenario() -> None:
        async with shop.open() as stub:
            await close(shop)
            for token in ("dla1_secret", "dls1_secret", "secret", TOKENS["admin"] + "x"):
                await code_of(stub.Put(put(), metadata=bearer(token)))

    run(scenario)
    text = json.dumps(audited.lines("refusals"))
    assert text.count("NOT_AUTHENTICATED") == 4
    assert "secret" not in text
    assert TOKENS["admin"] not in text
